"""What tests that compare a graph over HTTP with the same graph at hand share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omnigraph.api.graph import Graph
from omnigraph.errors import OmnigraphError
from tests.server.running import SCHEMA

SET = "query set($n: String, $a: I32?) { update Person set { age: $a } where name = $n }"
WIDER = SCHEMA.replace("age: I32?", "age: I32?  city: String?")
LABELLED = SCHEMA.replace("age: I32?", "age: I32?  label: String  size: I64")


def told(error: OmnigraphError) -> tuple[Any, ...]:
    """Everything that an error says, except for ids of rows that were drawn for the attempt."""
    more = {name: value for name, value in vars(error).items() if name not in ("message", "details", "hint")}
    if "violations" in more:
        more["violations"] = [{**item, "id": None} for item in more["violations"]]
    return type(error), error.code, error.message, error.details, error.hint, more


def failure(call: Callable[[Graph], Any], graph: Graph) -> OmnigraphError:
    """The error that a call raises."""
    with pytest.raises(OmnigraphError) as caught:
        call(graph)
    return caught.value

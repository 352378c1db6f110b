"""The resources of the server: the schema and the branches."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from omnigraph.api.graph import Graph
from omnigraph.mcp.pages import MAX_ITEMS


@dataclass(frozen=True)
class GraphResource:
    """A text that clients can read without a tool call."""

    uri: str
    name: str
    description: str
    mime_type: str
    read: Callable[[Graph], str]


def _schema(graph: Graph) -> str:
    return graph.schema.source()


def _branches(graph: Graph) -> str:
    return json.dumps({"branches": graph.branches.list(limit=MAX_ITEMS)}, ensure_ascii=False)


RESOURCES: Final = (
    GraphResource(
        "omnigraph://schema", "schema", "Schema of main in the .pg language.", "text/plain", _schema
    ),
    GraphResource(
        "omnigraph://branches",
        "branches",
        f"Names of the branches, at most {MAX_ITEMS:,}.",
        "application/json",
        _branches,
    ),
)

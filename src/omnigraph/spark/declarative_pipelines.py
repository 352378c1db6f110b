"""Spark Declarative Pipelines: the client of a run must ignore a response that PySpark 4.3 does not expect.

When Python code ran in a session, such as the sink of a graph, the Connect server ends its answer to a command with
the session's internal accumulators. The client has handled them when it yields them, but `spark-pipelines run`
refuses every response that is no event, after the run is complete.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

_ACCUMULATOR: Final = "__python_accumulator__"
_FETCH: Final = "_execute_and_fetch_as_iterator"


def ignore_accumulators(spark: Any) -> None:
    """Let the client of a session drop internal accumulators from responses, if a pipeline is being defined.

    Idempotent. Sessions outside of `spark-pipelines` are unchanged.
    """
    from pyspark.sql import SparkSession

    if isinstance(spark, SparkSession) or not _defines_pipeline():
        return
    client = spark.client
    fetch = getattr(client, _FETCH, None)
    if fetch is not None and not isinstance(fetch, partial):
        setattr(client, _FETCH, partial(_without_accumulators, fetch))


def _defines_pipeline() -> bool:
    from pyspark.errors import PySparkException

    # The module is loaded if a pipeline is being defined.
    registry: Any = sys.modules.get("pyspark.pipelines.graph_element_registry")
    if registry is None:
        return False
    try:
        registry.get_active_graph_element_registry()
    except PySparkException:
        return False
    return True


def _without_accumulators(fetch: Any, *given: Any, **named: Any) -> Iterator[Any]:
    for response in fetch(*given, **named):
        if getattr(response, "name", None) != _ACCUMULATOR:
            yield response

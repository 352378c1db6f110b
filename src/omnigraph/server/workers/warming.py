"""Warming of the caches of a process before it accepts requests."""

from __future__ import annotations

from typing import Final

from omnigraph.budget.deadline import time_limit
from omnigraph.errors import OmnigraphError
from omnigraph.policy.gate import Access
from omnigraph.server.hosted_graphs import HostedGraph, ServerResources
from omnigraph.server.logs import LOGGER

# A process starts to serve after this time at the latest, with the caches that it has by then.
WARMING_SECONDS: Final = 5.0


def warm(resources: ServerResources) -> None:
    """Read the head of each graph and compile its stored queries. An error is left to the requests that meet it."""
    for hosted in resources.graphs.values():
        try:
            with time_limit(WARMING_SECONDS / len(resources.graphs)):
                _warm_graph(hosted)
        except OmnigraphError as error:
            fields = {"graph_id": hosted.id, "reason": error.message}
            LOGGER.info("caches not warmed", extra={"fields": fields})


def _warm_graph(hosted: HostedGraph) -> None:
    graph = hosted.graph.authorized_view(None, frozenset({Access("read", "main")}), hosted.gate)
    graph.snapshot()
    for query in hosted.queries.values():
        if not query.mutates and not query.checked.params:
            graph.explain(query.text, name=query.name)

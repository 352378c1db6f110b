"""Readiness: which graphs are damaged or gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from omnigraph.errors import OmnigraphError
from omnigraph.graph.health import HealthCheck
from omnigraph.server.hosted_graphs import HostedGraph, ServerResources
from omnigraph.server.logs import LOGGER

if TYPE_CHECKING:
    from omnigraph.api.local.local_graph import LocalGraph


class Readiness:
    """Checks the graphs of a server. Thread-safe; one check runs at a time."""

    def __init__(self, resources: ServerResources) -> None:
        self._resources = resources
        # The check of each graph, and the handle that it uses.
        self._checks: dict[str, tuple[LocalGraph, HealthCheck]] = {}
        self._lock = threading.Lock()
        self._problems: dict[str, OmnigraphError] = {}
        self._started_at = float("-inf")

    def report(self, graph_id: str, error: OmnigraphError) -> None:
        """Remember a damaged file that a request found. Does not wait for a check that is running."""
        hosted = self._resources.graphs.get(graph_id)
        if hosted is not None:
            self._check_of(hosted).report(error)

    def find_problems(self) -> Mapping[str, OmnigraphError]:
        """Return the problem of each graph that is damaged or gone, by graph id, and log changes.

        Calls that wait for a check share the next one, so that many requests cause few checks.
        """
        called_at = time.monotonic()
        with self._lock:
            if self._started_at < called_at:
                self._started_at = time.monotonic()
                hosted = [*self._resources.graphs.values()]
                found = {item.id: self._check_of(item).find_problem() for item in hosted}
                problems = {id_: problem for id_, problem in found.items() if problem is not None}
                _log_changes(self._problems, problems)
                self._problems = problems
            return {**self._resources.damaged, **self._problems}

    def _check_of(self, hosted: HostedGraph) -> HealthCheck:
        found = self._checks.get(hosted.id)
        if found is not None and found[0] is not hosted.graph:
            # The graph was opened again.
            self._checks.pop(hosted.id, None)
            found = None
        if found is None:
            found = self._checks.setdefault(hosted.id, (hosted.graph, hosted.graph.health_check()))
        return found[1]


def _log_changes(before: Mapping[str, OmnigraphError], after: Mapping[str, OmnigraphError]) -> None:
    for id_, problem in after.items():
        if id_ not in before or before[id_].message != problem.message:
            fields = {"graph_id": id_, "reason": problem.message, "hint": problem.hint}
            LOGGER.error("graph not ready", extra={"fields": fields})
    for id_ in before.keys() - after.keys():
        LOGGER.info("graph ready again", extra={"fields": {"graph_id": id_}})

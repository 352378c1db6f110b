"""Readiness: which graphs are damaged or gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from omnigraph.errors import OmnigraphError
from omnigraph.graph.health import HealthCheck
from omnigraph.server.hosted_graphs import ServerResources
from omnigraph.server.logs import LOGGER


class Readiness:
    """Checks the graphs of a server. Thread-safe; one check runs at a time."""

    def __init__(self, resources: ServerResources) -> None:
        self._resources = resources
        self._checks: dict[str, HealthCheck] = {}
        self._lock = threading.Lock()
        self._problems: dict[str, OmnigraphError] = {}
        self._started_at = float("-inf")

    def report(self, graph_id: str, error: OmnigraphError) -> None:
        """Remember a damaged file that a request found. Does not wait for a check that is running."""
        self._check_of(graph_id).report(error)

    def find_problems(self) -> Mapping[str, OmnigraphError]:
        """Return the problem of each graph that is damaged or gone, by graph id, and log changes.

        Calls that wait for a check share the next one, so that many requests cause few checks.
        """
        called_at = time.monotonic()
        with self._lock:
            if self._started_at < called_at:
                self._started_at = time.monotonic()
                found = {id_: self._check_of(id_).find_problem() for id_ in self._resources.graphs}
                problems = {id_: problem for id_, problem in found.items() if problem is not None}
                _log_changes(self._problems, problems)
                self._problems = problems
            return {**self._resources.damaged, **self._problems}

    def _check_of(self, graph_id: str) -> HealthCheck:
        check = self._checks.get(graph_id)
        if check is None:
            check = self._checks.setdefault(graph_id, self._resources.graphs[graph_id].graph.health_check())
        return check


def _log_changes(before: Mapping[str, OmnigraphError], after: Mapping[str, OmnigraphError]) -> None:
    for id_, problem in after.items():
        if id_ not in before or before[id_].message != problem.message:
            fields = {"graph_id": id_, "reason": problem.message, "hint": problem.hint}
            LOGGER.error("graph not ready", extra={"fields": fields})
    for id_ in before.keys() - after.keys():
        LOGGER.info("graph ready again", extra={"fields": {"graph_id": id_}})

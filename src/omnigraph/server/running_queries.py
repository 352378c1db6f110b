"""Running queries: their limits, the memory they share, a list of them, cancellation and the slow-query log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from ulid import ULID

from omnigraph.budget.deadline import Deadline, time_limit
from omnigraph.budget.machine import usable_memory
from omnigraph.budget.query_budget import MemoryPool, QueryBudget, QueryLimits, limit_query
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.server.limits import ServerLimits
from omnigraph.server.logs import LOGGER

# Characters of a query text in the list and in the log.
_SHOWN_TEXT: Final = 2_000
_MAX_DEFAULT_QUERY_BYTES: Final = 1 << 30
_MIN_DEFAULT_BYTES: Final = 64 << 20
_EXPLAIN_SECONDS: Final = 2.0


@dataclass(eq=False)
class RunningQuery:
    """A request that runs a query or other work on a graph."""

    graph_id: str
    actor: str | None
    request_id: str
    operation: str
    deadline: Deadline | None
    id: str = field(default_factory=lambda: str(ULID()))
    text: str | None = None
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    is_waiting: bool = True
    budget: QueryBudget | None = None
    _began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """The seconds since the request began."""
        return time.monotonic() - self._began

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the list."""
        budget = self.budget
        return {
            "id": self.id,
            "graph_id": self.graph_id,
            "actor_id": self.actor,
            "operation": self.operation,
            "state": "waiting" if self.is_waiting else "running",
            "query": None if self.text is None else self.text[:_SHOWN_TEXT],
            "started_at": self.started_at.isoformat(timespec="milliseconds"),
            "seconds": round(self.seconds, 3),
            "memory_bytes": 0 if budget is None else budget.peak_bytes,
            "visited_edges": 0 if budget is None else budget.edges,
            "cancellable": self.deadline is not None and not self.deadline.is_lifted,
            "request_id": self.request_id,
        }


class RunningQueries:
    """The queries of one server process. Thread-safe."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self.query_limits, self.pool = memory_limits(limits)
        self._lock = threading.Lock()
        self._running: dict[str, RunningQuery] = {}

    @contextmanager
    def track(self, query: RunningQuery) -> Iterator[RunningQuery]:
        """List a request while the context is open."""
        with self._lock:
            self._running[query.id] = query
        try:
            yield query
        finally:
            with self._lock:
                del self._running[query.id]

    @contextmanager
    def limit(
        self, query: RunningQuery, text: str, requested: QueryLimits, explain: Callable[[], str]
    ) -> Iterator[None]:
        """Run a query inside of its limits. `explain` returns its plan for the slow-query log."""
        query.text = text
        outcome = "finished"
        try:
            limits = self.query_limits.lowered(requested)
            with limit_query(limits, self.pool, query.actor) as query.budget:
                yield
        except OmnigraphError as error:
            outcome = error.message
            raise
        finally:
            if query.seconds >= self._limits.slow_query_seconds:
                self._log(query, outcome, explain)

    def list(self, graph_id: str) -> list[dict[str, Any]]:
        """Return the requests to a graph, the oldest first."""
        with self._lock:
            found = [item for item in self._running.values() if item.graph_id == graph_id]
        return [item.to_json() for item in found]

    def cancel(self, graph_id: str, id_: str, actor: str | None) -> dict[str, Any]:
        """Cancel a request and return its entry. Raises `NotFound` if no such request runs.

        A write that has begun to change the graph is not cancelled; `cancelled` is false then.
        """
        with self._lock:
            found = self._running.get(id_)
        if found is None or found.graph_id != graph_id:
            raise NotFound(f"no running query '{id_}'", details={"query_id": id_})
        by = "an administrator" if actor is None else f"'{actor}'"
        cancelled = found.deadline is not None and found.deadline.cancel(f"by {by}")
        return {**found.to_json(), "cancelled": cancelled}

    def _log(self, query: RunningQuery, outcome: str, explain: Callable[[], str]) -> None:
        fields = query.to_json()
        for name in ("state", "cancellable"):
            del fields[name]
        # A new context: the deadline of the query may have passed.
        fields |= {"outcome": outcome, "plan": Context().run(_explain, explain)}
        LOGGER.warning("slow query", extra={"fields": fields})


def _explain(explain: Callable[[], str]) -> str | None:
    try:
        with time_limit(_EXPLAIN_SECONDS):
            return explain()
    except OmnigraphError:
        # The text is invalid, or its plan takes too long.
        return None


def memory_limits(limits: ServerLimits) -> tuple[QueryLimits, MemoryPool]:
    """Return the limits of one query and the memory that queries share.

    By default, all queries share a quarter of the memory of the machine or container. One query gets at most half
    of that and at most 1 GiB, and the queries of one actor get at most half.
    """
    pool = limits.query_pool_bytes or max(_MIN_DEFAULT_BYTES, usable_memory() // 4)
    one = limits.query_bytes or min(_MAX_DEFAULT_QUERY_BYTES, pool // 2)
    actor = limits.actor_query_bytes or max(one, pool // 2)
    own = QueryLimits(
        rows=limits.query_rows or None,
        bytes=one,
        edges=limits.query_edges or None,
        spilled=limits.query_spill_bytes,
    )
    return own, MemoryPool(pool, actor)

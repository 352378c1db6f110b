"""Budgets of queries: limits on result rows, on memory and on visited edges.

A step of a query calls `require_bytes` with the estimated size of its result before it allocates memory. The
budget of the current query is set around the work, like a deadline, and applies in threads that run in a copy of
the context. Without a budget every check passes.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar

from omnigraph.budget.deadline import time_limit
from omnigraph.errors import InvalidInput, ResourceLimit

N = TypeVar("N", int, float)

ROWS: Final = "query_rows"
BYTES: Final = "query_bytes"
EDGES: Final = "query_edges"
DECODED: Final = "load_decoded_bytes"
SPILLED: Final = "query_spill_bytes"
POOL: Final = "query_pool_bytes"
ACTOR_POOL: Final = "actor_query_bytes"
# Temporary shortages: the same query may succeed when other queries have ended.
TEMPORARY: Final = frozenset({POOL, ACTOR_POOL})
# Up to this size a query takes no memory from the pool, so that small queries run beside large ones.
FREE_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of one query. None means no limit.

    - `seconds`: time; `rows`: rows of the result
    - `bytes`: estimated memory of the largest step, intermediate rows and result included
    - `edges`: edges that the query follows, each as often as it is followed
    - `decoded`: bytes that a load decompresses and decodes
    - `spilled`: bytes on disk that a sort or a grouping may use which exceeds the memory; 0 means none

    >>> QueryLimits(seconds=30, rows=100).lowered(QueryLimits(rows=1_000, edges=5))
    QueryLimits(seconds=30, rows=100, bytes=None, edges=5, decoded=None, spilled=None)
    """

    seconds: float | None = None
    rows: int | None = None
    bytes: int | None = None
    edges: int | None = None
    decoded: int | None = None
    spilled: int | None = None

    def __post_init__(self) -> None:
        for name in ("seconds", "rows", "bytes", "edges", "decoded"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InvalidInput(f"a limit of {name} must be a positive number, got {value!r}")

    def lowered(self, other: QueryLimits) -> QueryLimits:
        """Return the lower limit of each kind."""
        return QueryLimits(
            _lower(self.seconds, other.seconds),
            _lower(self.rows, other.rows),
            _lower(self.bytes, other.bytes),
            _lower(self.edges, other.edges),
            _lower(self.decoded, other.decoded),
            _lower(self.spilled, other.spilled),
        )


def _lower(left: N | None, right: N | None) -> N | None:
    return right if left is None else left if right is None else min(left, right)


NO_LIMITS: Final = QueryLimits()


class MemoryPool:
    """Memory that all queries of a process share, with a limit for each owner. Thread-safe.

    >>> pool = MemoryPool(100, 60)
    >>> pool.acquire("ann", 50)
    >>> pool.acquire("ann", 20)
    Traceback (most recent call last):
    omnigraph.errors.ResourceLimit: the running queries of the actor need 70 bytes of memory, the limit is 60
    hint: retry when other queries have ended, or run fewer queries at a time
    >>> pool.release("ann", 50)
    >>> pool.used
    0
    """

    def __init__(self, size: int, owner_size: int) -> None:
        self.size = size
        self.owner_size = owner_size
        self.used = 0
        self._lock = threading.Lock()
        self._owners: dict[Hashable, int] = {}

    def acquire(self, owner: Hashable, size: int) -> None:
        """Reserve memory; `ResourceLimit` if the queries of the owner, or all queries, would exceed the limit."""
        with self._lock:
            own = self._owners.get(owner, 0) + size
            if own > self.owner_size:
                raise _shortage("the running queries of the actor need", ACTOR_POOL, self.owner_size, own)
            if self.used + size > self.size:
                raise _shortage("the running queries need", POOL, self.size, self.used + size)
            self._owners[owner] = own
            self.used += size

    def release(self, owner: Hashable, size: int) -> None:
        """Return reserved memory."""
        with self._lock:
            self.used -= size
            left = self._owners.get(owner, 0) - size
            if left > 0:
                self._owners[owner] = left
            else:
                self._owners.pop(owner, None)


def _shortage(subject: str, resource: str, limit: int, actual: int) -> ResourceLimit:
    return ResourceLimit(
        f"{subject} {actual:,} bytes of memory, the limit is {limit:,}",
        details={"resource": resource, "limit": limit, "actual": actual},
        hint="retry when other queries have ended, or run fewer queries at a time",
    )


class QueryBudget:
    """What one query has used of its limits. Belongs to one thread, and to those that work for it."""

    def __init__(self, limits: QueryLimits, pool: MemoryPool | None = None, owner: Hashable = None) -> None:
        self.limits = limits
        self.peak_bytes = 0
        self.edges = 0
        self.decoded = 0
        self._pool = pool
        self._owner = owner
        self._reserved = 0
        self._held = 0

    def lowered(self, limits: QueryLimits) -> QueryBudget:
        """Return a new budget with the lower limits, which takes its memory from the same pool."""
        return QueryBudget(self.limits.lowered(limits), self._pool, self._owner)

    def require_bytes(self, size: int) -> None:
        """Reserve memory for a step that needs `size` bytes at a time, beside what `hold_bytes` holds.

        Raises `ResourceLimit` before the memory is used.
        """
        needed = self._held + size
        if needed <= self.peak_bytes:
            return
        limit = self.limits.bytes
        if limit is not None and needed > limit:
            raise ResourceLimit(
                f"the request needs about {needed:,} bytes of memory, the limit is {limit:,}",
                details={"resource": BYTES, "limit": limit, "actual": needed},
                hint="connect patterns, filter earlier, return fewer columns, or load fewer rows at a time",
            )
        if self._pool is not None and needed > FREE_BYTES:
            self._pool.acquire(self._owner, needed - self._reserved)
            self._reserved = needed
        self.peak_bytes = needed

    def left_bytes(self) -> int | None:
        """Return the memory that a step may need at most; None without a limit."""
        return None if self.limits.bytes is None else self.limits.bytes - self._held

    @contextmanager
    def hold_bytes(self, size: int) -> Iterator[None]:
        """Count memory that stays in use while the context is open."""
        self._held += size
        try:
            yield
        finally:
            self._held -= size

    def visit_edges(self, count: int) -> None:
        """Count edges that are about to be followed; `ResourceLimit` if they exceed the limit."""
        self.edges += count
        limit = self.limits.edges
        if limit is not None and self.edges > limit:
            raise ResourceLimit(
                f"the query follows more than {limit:,} edges",
                details={"resource": EDGES, "limit": limit, "actual": self.edges},
                hint="start from fewer nodes, or follow fewer hops",
            )

    def count_decoded(self, size: int) -> None:
        """Count bytes that a load has decompressed or decoded; `ResourceLimit` if they exceed the limit."""
        self.decoded += size
        self.check_decoded(0)

    def check_decoded(self, size: int) -> None:
        """Raise `ResourceLimit` if `size` more decoded bytes would exceed the limit."""
        limit = self.limits.decoded
        if limit is not None and self.decoded + size > limit:
            raise ResourceLimit(
                f"the input has more than {limit:,} bytes when it is decompressed and decoded",
                details={"resource": DECODED, "limit": limit, "actual": self.decoded + size},
                hint="load the rows in several parts",
            )

    def check_rows(self, count: int) -> None:
        """Raise `ResourceLimit` if the result would have too many rows."""
        limit = self.limits.rows
        if limit is not None and count > limit:
            raise ResourceLimit(
                f"the result has {count:,} rows, the limit is {limit:,}",
                details={"resource": ROWS, "limit": limit, "actual": count},
                hint="add a `limit` to the query, or read the rows in several queries",
            )

    def close(self) -> None:
        """Return the reserved memory to the pool."""
        if self._pool is not None and self._reserved:
            self._pool.release(self._owner, self._reserved)
            self._reserved = 0


_current: ContextVar[QueryBudget | None] = ContextVar("omnigraph_query_budget", default=None)


@contextmanager
def limit_query(
    limits: QueryLimits, pool: MemoryPool | None = None, owner: Hashable = None
) -> Iterator[QueryBudget]:
    """Run the query inside with limits. Inside of another budget, the lower limits apply.

    >>> with limit_query(QueryLimits(bytes=1_000)):
    ...     require_bytes(2_000)
    Traceback (most recent call last):
    omnigraph.errors.ResourceLimit: the request needs about 2,000 bytes of memory, the limit is 1,000
    hint: connect patterns, filter earlier, return fewer columns, or load fewer rows at a time
    """
    outer = _current.get()
    budget = QueryBudget(limits, pool, owner) if outer is None else outer.lowered(limits)
    token = _current.set(budget)
    try:
        with time_limit(budget.limits.seconds):
            yield budget
    finally:
        _current.reset(token)
        budget.close()


def require_bytes(size: int) -> None:
    """Check the memory that the next step of the current query needs. See `QueryBudget.require_bytes`."""
    found = _current.get()
    if found is not None:
        found.require_bytes(size)


@contextmanager
def hold_bytes(size: int) -> Iterator[None]:
    """Count memory of the current query while the context is open."""
    found = _current.get()
    if found is None:
        yield
        return
    with found.hold_bytes(size):
        yield


def visit_edges(count: int) -> None:
    """Count edges that the current query is about to follow. See `QueryBudget.visit_edges`."""
    found = _current.get()
    if found is not None:
        found.visit_edges(count)


def count_decoded(size: int) -> None:
    """Count bytes that the current load has decoded. See `QueryBudget.count_decoded`."""
    found = _current.get()
    if found is not None:
        found.count_decoded(size)


def check_decoded(size: int) -> None:
    """Check whether the current load may decode `size` more bytes. See `QueryBudget.check_decoded`."""
    found = _current.get()
    if found is not None:
        found.check_decoded(size)


def check_rows(count: int) -> None:
    """Check the number of result rows of the current query. See `QueryBudget.check_rows`."""
    found = _current.get()
    if found is not None:
        found.check_rows(count)


def current_budget() -> QueryBudget | None:
    """Return the budget of the current query, or None."""
    return _current.get()


def has_budget() -> bool:
    """Return whether the current query has a budget."""
    return _current.get() is not None

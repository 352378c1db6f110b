"""Count the storage requests of each call.

Requests for control objects are counted where they are sent. Lance counts its own requests, as one total per
graph. An increase of that total while one call is inside Lance belongs to that call. An increase while several
calls are inside Lance is divided evenly between them and reported as shared. The sum over all calls is therefore
exact, and so is the count of every call that did not overlap with another call on the same graph.

A request is one operation on an object store, without the retries of the HTTP client. Not counted are the two
requests that begin and complete a multipart upload of Lance, the requests that create the first version of
`__manifest`, requests for control objects on a local disk, and requests of other processes, such as Spark
executors.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar

from omnigraph.store.spans import span

P = ParamSpec("P")
R = TypeVar("R")


class _IoStats(Protocol):
    @property
    def read_iops(self) -> int: ...

    @property
    def write_iops(self) -> int: ...

    @property
    def read_bytes(self) -> int: ...

    @property
    def written_bytes(self) -> int: ...


class LanceRequestCounter:
    """The request total of Lance for one graph, and the calls that are inside Lance now.

    `enter` and `leave` append an event without taking a lock. Every call enters and leaves many times, so a lock
    here would serialize the threads. `apply_events` evaluates the events when a call asks for its counts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stats: dict[str, Callable[[], _IoStats]] = {}
        # Total reads and writes at the time of the event, the call, and +1 for enter or -1 for leave.
        self._events: deque[tuple[int, int, RequestCounts, int]] = deque()
        self._reads = 0
        self._writes = 0
        self._inside: dict[RequestCounts, int] = {}

    def add_source(self, origin: str, stats: Callable[[], _IoStats]) -> None:
        """Add the statistics of a dataset. All datasets of one graph and one origin report the same total."""
        if origin not in self._stats:
            with self._lock:
                self._stats = {origin: stats, **self._stats}

    def enter(self, call: RequestCounts) -> None:
        """Record that a call enters Lance. Several threads of one call may be inside at once."""
        self._events.append((*self._totals(), call, 1))

    def leave(self, call: RequestCounts) -> None:
        """Record that a call leaves Lance."""
        self._events.append((*self._totals(), call, -1))

    def transferred_bytes(self) -> tuple[int, int]:
        """Return the bytes of table files that were read and written so far."""
        current = [stats() for stats in self._stats.values()]
        return sum(item.read_bytes for item in current), sum(item.written_bytes for item in current)

    def apply_events(self) -> None:
        """Add to every call the requests that the recorded events attribute to it."""
        with self._lock:
            while self._events:
                self._apply(*self._events.popleft())

    def _totals(self) -> tuple[int, int]:
        current = [stats() for stats in self._stats.values()]
        return sum(item.read_iops for item in current), sum(item.write_iops for item in current)

    def _apply(self, reads: int, writes: int, call: RequestCounts, step: int) -> None:
        # Two threads may append in another order than they read the totals. Totals only grow.
        new_reads, new_writes = max(0, reads - self._reads), max(0, writes - self._writes)
        self._reads += new_reads
        self._writes += new_writes
        if new_reads or new_writes:
            for position, other in enumerate(self._inside):
                other.add(
                    _share(new_reads, len(self._inside), position),
                    _share(new_writes, len(self._inside), position),
                    is_shared=len(self._inside) > 1,
                )
        self._inside[call] = self._inside.get(call, 0) + step
        if not self._inside[call]:
            del self._inside[call]


def _share(count: int, parts: int, position: int) -> int:
    """Return one part of a count that is divided evenly; the first parts get the remainder.

    >>> [_share(5, 3, position) for position in range(3)]
    [2, 2, 1]
    """
    return count // parts + (position < count % parts)


@dataclass(eq=False)
class RequestCounts:
    """The storage requests of one call. `shared` of them may belong to a concurrent call.

    >>> with track_requests() as requests:
    ...     count_requests(reads=1)
    >>> requests.to_json()
    {'read': 1, 'write': 0}
    """

    reads: int = 0
    writes: int = 0
    shared: int = 0
    counter: LanceRequestCounter | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, reads: int, writes: int, *, is_shared: bool = False) -> None:
        """Add requests."""
        with self._lock:
            self.reads += reads
            self.writes += writes
            self.shared += reads + writes if is_shared else 0

    def to_json(self) -> dict[str, int]:
        """Return the counts by kind, in the form of the request log."""
        if self.counter is not None:
            self.counter.apply_events()
        counts = {"read": self.reads, "write": self.writes}
        return {**counts, "shared": self.shared} if self.shared else counts


_CALL: ContextVar[RequestCounts | None] = ContextVar("omnigraph-requests", default=None)


@contextmanager
def track_requests() -> Iterator[RequestCounts]:
    """Count the storage requests of this context, and of threads that run with `propagate_context`."""
    call = RequestCounts()
    token = _CALL.set(call)
    try:
        yield call
    finally:
        _CALL.reset(token)
        if call.counter is not None:
            call.counter.apply_events()


def count_requests(reads: int = 0, writes: int = 0) -> None:
    """Add requests to the call of this context, if there is one."""
    call = _CALL.get()
    if call is not None:
        call.add(reads, writes)


def attribute_requests_to(counter: LanceRequestCounter) -> None:
    """Set the graph that the call of this context works on from now on."""
    call = _CALL.get()
    if call is not None:
        call.counter = counter


class LanceCall:
    """A context in which Lance requests of any thread are counted. Without a call in progress it does nothing."""

    __slots__ = ("_call", "_counter", "_span")

    def __enter__(self) -> None:
        self._span = span("storage")
        self._span.__enter__()
        self._call = _CALL.get()
        self._counter = None if self._call is None else self._call.counter
        if self._call is not None and self._counter is not None:
            self._counter.enter(self._call)

    def __exit__(self, *_: object) -> None:
        if self._call is not None and self._counter is not None:
            self._counter.leave(self._call)
        self._span.__exit__(None, None, None)


def propagate_context(work: Callable[P, R]) -> Callable[P, R]:
    """Return a function for another thread that runs `work` in a copy of the present context."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        # A context can be entered once at a time, and several threads may run this function.
        return context.copy().run(work, *args, **kwargs)

    return run

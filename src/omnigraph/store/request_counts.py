"""How many requests to storage a call makes.

Our own objects are counted where they are asked for. Lance counts by itself, one sum for all that goes on in a
graph; what it adds while one call alone is in Lance is that call's, and what it adds while several are is dealt out
evenly between them and told as shared. So the sum over all calls is exact, and so is every call that did not meet
another one in the storage of the same graph.

A request is one operation on an object store, without the repetitions of the HTTP client below it. Not counted are
the two by which Lance begins and completes a file that it uploads in parts, those that make the first version of
`__manifest`, on a local disk those for our own objects, and what other processes do, such as those of Spark.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Stats(Protocol):
    @property
    def read_iops(self) -> int: ...

    @property
    def write_iops(self) -> int: ...


class Tally:
    """What Lance has done in the storage of one graph, and the calls that are in Lance now.

    Going in and out is only noted, without a lock: threads that have to wait for one another here would do so many
    times in each call, and with enough of them they would do little else. Notes are read when a call asks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stats: dict[str, Callable[[], _Stats]] = {}
        # Lance's sums at that moment, who, and whether they went in or came out.
        self._notes: deque[tuple[int, int, Requests, int]] = deque()
        self._reads = 0
        self._writes = 0
        self._inside: dict[Requests, int] = {}

    def watch(self, origin: str, stats: Callable[[], _Stats]) -> None:
        """Count by what a dataset says: all of one graph and one origin tell the same sum."""
        if origin not in self._stats:
            with self._lock:
                self._stats = {origin: stats, **self._stats}

    def enter(self, call: Requests) -> None:
        """A call goes into Lance; it may do so several times at once."""
        self._notes.append((*self._sums(), call, 1))

    def leave(self, call: Requests) -> None:
        """It comes out again."""
        self._notes.append((*self._sums(), call, -1))

    def settle(self) -> None:
        """Give every call what is known to be its own by now."""
        with self._lock:
            while self._notes:
                self._apply(*self._notes.popleft())

    def _sums(self) -> tuple[int, int]:
        now = [stats() for stats in self._stats.values()]
        return sum(item.read_iops for item in now), sum(item.write_iops for item in now)

    def _apply(self, reads: int, writes: int, call: Requests, step: int) -> None:
        # Two threads may note in another order than they looked: sums only ever grow.
        new_reads, new_writes = max(0, reads - self._reads), max(0, writes - self._writes)
        self._reads += new_reads
        self._writes += new_writes
        if new_reads or new_writes:
            for place, other in enumerate(self._inside):
                other.add(
                    _share(new_reads, len(self._inside), place),
                    _share(new_writes, len(self._inside), place),
                    is_shared=len(self._inside) > 1,
                )
        self._inside[call] = self._inside.get(call, 0) + step
        if not self._inside[call]:
            del self._inside[call]


def _share(count: int, among: int, place: int) -> int:
    """An even part of a number, with one more for the first ones.

    >>> [_share(5, 3, place) for place in range(3)]
    [2, 2, 1]
    """
    return count // among + (place < count % among)


@dataclass(eq=False)
class Requests:
    """What one call has asked of storage. `shared` of it may have been another call's.

    >>> with counting() as requests:
    ...     count_requests(reads=1)
    >>> requests.to_json()
    {'read': 1, 'write': 0}
    """

    reads: int = 0
    writes: int = 0
    shared: int = 0
    tally: Tally | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, reads: int, writes: int, *, is_shared: bool = False) -> None:
        """Count some more."""
        with self._lock:
            self.reads += reads
            self.writes += writes
            self.shared += reads + writes if is_shared else 0

    def to_json(self) -> dict[str, int]:
        """The numbers by kind, as logs have them."""
        if self.tally is not None:
            self.tally.settle()
        found = {"read": self.reads, "write": self.writes}
        return {**found, "shared": self.shared} if self.shared else found


_CALL: ContextVar[Requests | None] = ContextVar("omnigraph-requests", default=None)


@contextmanager
def counting() -> Iterator[Requests]:
    """Count what is asked of storage in this context, and in threads that carry it on."""
    call = Requests()
    token = _CALL.set(call)
    try:
        yield call
    finally:
        _CALL.reset(token)
        if call.tally is not None:
            call.tally.settle()


def count_requests(reads: int = 0, writes: int = 0) -> None:
    """Count requests that are known to be made here."""
    call = _CALL.get()
    if call is not None:
        call.add(reads, writes)


def count_by(tally: Tally) -> None:
    """Say which graph this context works on from now on."""
    call = _CALL.get()
    if call is not None:
        call.tally = tally


class InLance:
    """A context in which what Lance does is counted, in whichever threads; without a call it is next to nothing."""

    __slots__ = ("_call", "_tally")

    def __enter__(self) -> None:
        self._call = _CALL.get()
        self._tally = None if self._call is None else self._call.tally
        if self._call is not None and self._tally is not None:
            self._tally.enter(self._call)

    def __exit__(self, *_: object) -> None:
        if self._call is not None and self._tally is not None:
            self._tally.leave(self._call)


def carried(work: Callable[P, R]) -> Callable[P, R]:
    """The same work for another thread, which is counted as part of this context."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        # A context can be entered once at a time, and the work may be done by several threads.
        return context.copy().run(work, *args, **kwargs)

    return run

"""A write queue for each branch: the first waiting write leads, and commits a group of the writes behind it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from omnigraph.graph.write_statistics import WriteStatistics

# Longer than a queue of small writes takes. A writer does not wait longer than this.
WAIT_TIMEOUT = 30.0

W = TypeVar("W")
State: TypeAlias = Literal["waiting", "preparing", "prepared", "publishing", "withdrawn", "done"]


@dataclass(eq=False)
class _Entry(Generic[W]):
    """A write in the queue. `woken` is set when the write is done, or when its thread shall lead."""

    write: W
    alone: bool
    # Whether the write may join the group of another one.
    joins: bool = True
    state: State = "waiting"
    leads: bool = False
    woken: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False)
class _Branch(Generic[W]):
    """The writes that wait for one branch, in the order of their arrival. One thread leads at a time."""

    waiting: deque[_Entry[W]] = field(default_factory=deque)


class Turn(Generic[W]):
    """The right to commit to a branch, held by the thread of the first write of a group.

    `write` is that first write. The thread takes further writes with `take_next`, and reports each with `finish`.
    """

    def __init__(self, queue: WriteQueue[W], branch: _Branch[W] | None, first: _Entry[W]) -> None:
        self._queue = queue
        self._branch = branch
        self._first = first
        self._taken = [first]

    @property
    def write(self) -> W:
        """The write of the thread that leads."""
        return self._first.write

    @property
    def statistics(self) -> WriteStatistics:
        """The statistics of all writes of the queue."""
        return self._queue.statistics

    @property
    def has_waiting(self) -> bool:
        """Whether a write waits that can join the group."""
        if self._branch is None or self._first.alone:
            return False
        with self._queue.lock:
            return bool(self._branch.waiting) and self._branch.waiting[0].joins

    def take_next(self) -> W | None:
        """Take the next waiting write into the group; None if there is none, or if it must not join a group."""
        if self._branch is None or self._first.alone:
            return None
        with self._queue.lock:
            if not self._branch.waiting or not self._branch.waiting[0].joins:
                return None
            entry = self._branch.waiting.popleft()
            entry.state = "prepared"
            self._taken.append(entry)
            return entry.write

    @contextmanager
    def preparing(self, write: W) -> Iterator[bool]:
        """Keep a write from being withdrawn by its thread. Yields False if it has been withdrawn."""
        entry = self._entry(write)
        with self._queue.lock:
            is_wanted = entry.state != "withdrawn"
            if is_wanted:
                entry.state = "preparing"
        try:
            yield is_wanted
        finally:
            with self._queue.lock:
                if entry.state == "preparing":
                    entry.state = "prepared"

    def begin_publishing(self, writes: Sequence[W]) -> list[W]:
        """Mark writes as being published. Return those that were withdrawn: then no write is marked."""
        entries = [self._entry(write) for write in writes]
        with self._queue.lock:
            withdrawn = [entry.write for entry in entries if entry.state == "withdrawn"]
            if not withdrawn:
                for entry in entries:
                    entry.state = "publishing"
            return withdrawn

    def finish(self, write: W) -> None:
        """Wake the thread of a write, whose outcome is known."""
        entry = self._entry(write)
        with self._queue.lock:
            entry.state = "done"
        entry.woken.set()

    def _entry(self, write: W) -> _Entry[W]:
        return next(entry for entry in self._taken if entry.write is write)

    def unfinished(self) -> list[_Entry[W]]:
        """Return the entries of the other writes without an outcome. The caller holds the lock of the queue."""
        return [entry for entry in self._taken[1:] if entry.state not in ("withdrawn", "done")]


class WriteQueue(Generic[W]):
    """Waiting writes by branch. Safe to share between threads.

    The queue is an optimization, and correctness does not depend on it: the compare-and-swap of the manifest
    decides between threads as between processes. A write that finds no other write at its branch leads at once. It
    takes the writes that arrive while it prepares, and they are committed together. Later writes wait; when the
    group is done, the first of them leads the next group. There is no timer.

    A write that waited for the timeout proceeds by itself, so that a stuck writer does not block others forever.
    A thread that leads may write to the same branch: such a write does not wait.

    >>> queue = WriteQueue()
    >>> with queue.enter("main", "a write") as turn, queue.enter("review", "another"):
    ...     turn.write, turn.take_next(), queue.branches
    ('a write', None, ['main', 'review'])
    >>> queue.branches
    []
    """

    def __init__(self, timeout: float = WAIT_TIMEOUT) -> None:
        self.statistics = WriteStatistics()
        self._timeout = timeout
        self.lock = threading.Lock()
        self._branches: dict[str, _Branch[W]] = {}
        # The branches that the present thread leads.
        self._led = threading.local()

    @property
    def branches(self) -> list[str]:
        """The branches that a thread writes to or waits for."""
        with self.lock:
            return sorted(self._branches)

    def waiting(self, branch: str) -> int:
        """Return the number of writes that wait for a branch and are not part of a group yet."""
        with self.lock:
            queue = self._branches.get(branch)
            return 0 if queue is None else len(queue.waiting)

    @contextmanager
    def enter(
        self, branch: str, write: W, *, alone: bool = False, starts: bool = False
    ) -> Iterator[Turn[W] | None]:
        """Wait until a write is done by the leader of its group, or until this thread shall lead.

        Yields None if the write is done, else the turn. A write that is `alone` is never taken into a group, and
        one that `starts` a group only leads one. Writes that a leader took and did not finish are first in the next
        group.
        """
        entry = _Entry(write, alone, joins=not alone and not starts)
        led: set[str] = self._led.__dict__.setdefault("branches", set())
        if branch in led:
            yield Turn(self, None, entry)
            return
        with self.lock:
            queue = self._branches.get(branch)
            if queue is None:
                queue = self._branches[branch] = _Branch()
                entry.leads = True
            else:
                queue.waiting.append(entry)
        if not entry.leads and not self._wait(branch, queue, entry):
            yield None if entry.state == "done" else Turn(self, None, entry)
            return
        turn = Turn(self, queue, entry)
        led.add(branch)
        try:
            yield turn
        finally:
            led.discard(branch)
            self._pass_on(branch, queue, turn)

    def _wait(self, branch: str, queue: _Branch[W], entry: _Entry[W]) -> bool:
        """Wait for a leader; return whether this thread shall lead. A write that gives up leaves its group."""
        try:
            if not entry.woken.wait(self._timeout) and not self._withdraw(queue, entry):
                entry.woken.wait()
        except BaseException:
            # The thread was interrupted. The write may still be committed if its group is being published.
            if not self._withdraw(queue, entry, interrupted=True) and entry.leads:
                self._pass_on(branch, queue, Turn(self, queue, entry))
            raise
        return entry.leads

    def _withdraw(self, queue: _Branch[W], entry: _Entry[W], *, interrupted: bool = False) -> bool:
        """Withdraw a write; return False if its thread leads, or its group is being published.

        The leader may be inside the preparation of the write. Then only an interrupted write is withdrawn.
        """
        with self.lock:
            if entry.leads or entry.state in ("publishing", "done"):
                return False
            if entry.state == "preparing" and not interrupted:
                return False
            if entry.state == "waiting":
                queue.waiting.remove(entry)
            entry.state = "withdrawn"
            return True

    def _pass_on(self, branch: str, queue: _Branch[W], turn: Turn[W]) -> None:
        """Let the first waiting write lead. Writes that have no outcome come first again."""
        with self.lock:
            for entry in reversed(turn.unfinished()):
                entry.state = "waiting"
                queue.waiting.appendleft(entry)
            if queue.waiting:
                first = queue.waiting.popleft()
                first.leads = True
                first.woken.set()
            else:
                del self._branches[branch]

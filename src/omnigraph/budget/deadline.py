"""Deadlines and cancellation of reads, which long work checks between its steps.

The caller sets a deadline around the work. It applies in threads that run in a copy of the context. A check costs
less than a microsecond.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread

from omnigraph.errors import Cancelled, ResourceLimit

RESOURCE = "read_seconds"
_INTERRUPT_INTERVAL = 0.05


class Deadline:
    """The time limit of one piece of work. It can be lifted or cancelled while the work runs.

    Work inside a `parent` also ends with the parent.
    """

    def __init__(self, seconds: float | None, parent: Deadline | None = None) -> None:
        self._seconds = seconds
        self._began = time.monotonic()
        self._lifted = False
        self._cancelled: str | None = None
        self._parent = parent

    @property
    def left(self) -> float | None:
        """The seconds left, negative after the deadline; None without a deadline, or if it was lifted."""
        if self._lifted:
            return None
        if self._cancelled is not None:
            return -1.0
        own = None if self._seconds is None else self._began + self._seconds - time.monotonic()
        outer = None if self._parent is None else self._parent.left
        return own if outer is None else outer if own is None else min(own, outer)

    @property
    def is_lifted(self) -> bool:
        """Whether the work is about to write, so that it can no longer be aborted."""
        return self._lifted

    def lift(self) -> None:
        """Remove the time limit. The work can no longer be cancelled."""
        self._lifted = True
        if self._parent is not None:
            self._parent.lift()

    def cancel(self, reason: str) -> bool:
        """Make the work fail at its next check. Return False if it can no longer be aborted."""
        if self._lifted:
            return False
        self._cancelled = reason
        return True

    def error(self) -> ResourceLimit | Cancelled:
        """Return the error for work that was cancelled or exceeded the deadline."""
        if self._cancelled is not None:
            return Cancelled(
                f"the request was cancelled: {self._cancelled}", details={"reason": self._cancelled}
            )
        parent = self._parent
        own = None if self._seconds is None else self._began + self._seconds - time.monotonic()
        if self._seconds is None or (
            parent is not None and parent.left is not None and (own or 0) > parent.left
        ):
            return Deadline(0).error() if parent is None else parent.error()
        unit = "second" if self._seconds == 1 else "seconds"
        actual = round(time.monotonic() - self._began, 3)
        return ResourceLimit(
            f"the read exceeded its time limit of {self._seconds:g} {unit}",
            details={"resource": RESOURCE, "limit": self._seconds, "actual": actual},
            hint="reduce the amount of data that the query reads, or raise the limit",
        )


_current: ContextVar[Deadline | None] = ContextVar("omnigraph_deadline", default=None)


@contextmanager
def time_limit(seconds: float | None) -> Iterator[Deadline]:
    """Run the work inside with a time limit; None sets no limit of its own.

    A time limit inside of another one cannot extend it.

    >>> with time_limit(0.0):
    ...     check_deadline()
    Traceback (most recent call last):
    omnigraph.errors.ResourceLimit: the read exceeded its time limit of 0 seconds
    hint: reduce the amount of data that the query reads, or raise the limit
    """
    found = Deadline(seconds, _current.get())
    token = _current.set(found)
    try:
        yield found
    finally:
        _current.reset(token)


def check_deadline() -> None:
    """Raise `ResourceLimit` if the deadline of the current work has passed, and `Cancelled` if it was cancelled."""
    found = _current.get()
    if found is not None and (left := found.left) is not None and left <= 0:
        raise found.error()


def current_deadline() -> Deadline | None:
    """Return the deadline of the current work, or None."""
    return _current.get()


def lift_deadline() -> None:
    """Remove the time limit of the current work, which is about to write and must not be aborted."""
    found = _current.get()
    if found is not None:
        found.lift()


@contextmanager
def interrupt_at_deadline(interrupt: Callable[[], object], stopped: type[Exception]) -> Iterator[None]:
    """Interrupt work that cannot check the deadline itself. It must then raise `stopped`, which becomes
    `ResourceLimit` or `Cancelled`.
    """
    found = _current.get()
    if found is None or found.left is None:
        yield
        return
    done = Event()

    def watch() -> None:
        # Look again at short intervals: the work may be cancelled, and an interruption that arrives before the
        # work has started has no effect.
        while not done.wait(_INTERRUPT_INTERVAL):
            left = found.left
            if left is not None and left <= 0:
                interrupt()

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except stopped as error:
        raise found.error() from error
    finally:
        done.set()
        # The interrupted object may be closed after this context.
        watcher.join()

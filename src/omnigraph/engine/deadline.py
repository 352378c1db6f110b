"""Deadlines of reads, which long work checks between its steps.

The caller sets a deadline around the work. It applies in threads that run in a copy of the context. A check costs
less than a microsecond.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread

from omnigraph.errors import ResourceLimit

RESOURCE = "read_seconds"
_INTERRUPT_INTERVAL = 0.05


class Deadline:
    """The time limit of one piece of work. It can be lifted while the work runs."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()
        self._lifted = False

    @property
    def left(self) -> float | None:
        """The seconds left, negative after the deadline; None if the deadline was lifted."""
        return None if self._lifted else self._began + self._seconds - time.monotonic()

    def lift(self) -> None:
        """Remove the time limit."""
        self._lifted = True

    def error(self) -> ResourceLimit:
        """Return the error for work that exceeded the deadline."""
        unit = "second" if self._seconds == 1 else "seconds"
        actual = round(time.monotonic() - self._began, 3)
        return ResourceLimit(
            f"the read exceeded its time limit of {self._seconds:g} {unit}",
            details={"resource": RESOURCE, "limit": self._seconds, "actual": actual},
            hint="reduce the amount of data that the query reads, or raise the limit",
        )


_current: ContextVar[Deadline | None] = ContextVar("omnigraph_deadline", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[Deadline]:
    """Run the work inside with a time limit.

    >>> with time_limit(0.0):
    ...     check_deadline()
    Traceback (most recent call last):
    omnigraph.errors.ResourceLimit: the read exceeded its time limit of 0 seconds
    hint: reduce the amount of data that the query reads, or raise the limit
    """
    found = Deadline(seconds)
    token = _current.set(found)
    try:
        yield found
    finally:
        _current.reset(token)


def check_deadline() -> None:
    """Raise `ResourceLimit` if the deadline of the current work has passed."""
    found = _current.get()
    if found is not None and (left := found.left) is not None and left <= 0:
        raise found.error()


def lift_deadline() -> None:
    """Remove the time limit of the current work, which is about to write and must not be aborted."""
    found = _current.get()
    if found is not None:
        found.lift()


@contextmanager
def interrupt_at_deadline(interrupt: Callable[[], object], stopped: type[Exception]) -> Iterator[None]:
    """Interrupt work that cannot check the deadline itself. It must then raise `stopped`, which becomes
    `ResourceLimit`.
    """
    found = _current.get()
    left = None if found is None else found.left
    if found is None or left is None:
        yield
        return
    done = Event()

    def watch() -> None:
        # Repeat the interruption: one that arrives before the work has started has no effect.
        pause = left
        while not done.wait(max(0, pause)):
            interrupt()
            pause = _INTERRUPT_INTERVAL

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

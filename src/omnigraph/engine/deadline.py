"""A time by which work has to be done: whoever does much looks at the clock between its steps.

Whoever waits for the work sets the deadline around it. It goes along into threads that take the context over, and
costs a step less than a microsecond.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread

from omnigraph.errors import ResourceLimit

RESOURCE = "read_seconds"
_AGAIN = 0.05


class Deadline:
    """The end of the time for one piece of work, which can be lifted while it runs."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()
        self._lifted = False

    @property
    def left(self) -> float | None:
        """The seconds that are left, below zero when they are over; None when there is no end any more."""
        return None if self._lifted else self._began + self._seconds - time.monotonic()

    def lift(self) -> None:
        """Have no end."""
        self._lifted = True

    def error(self) -> ResourceLimit:
        """The refusal of work that took longer."""
        actual = round(time.monotonic() - self._began, 3)
        return ResourceLimit(
            f"the read takes longer than {self._seconds:g} seconds",
            details={"resource": RESOURCE, "limit": self._seconds, "actual": actual},
            hint="ask for less, or raise the limit",
        )


_current: ContextVar[Deadline | None] = ContextVar("omnigraph_deadline", default=None)


@contextmanager
def ending_after(seconds: float) -> Iterator[Deadline]:
    """Give the work inside so much time.

    >>> with ending_after(0.0):
    ...     check_deadline()
    Traceback (most recent call last):
    omnigraph.errors.ResourceLimit: the read takes longer than 0 seconds
    hint: ask for less, or raise the limit
    """
    found = Deadline(seconds)
    token = _current.set(found)
    try:
        yield found
    finally:
        _current.reset(token)


def check_deadline() -> None:
    """Return while there is time, else `ResourceLimit`."""
    found = _current.get()
    if found is not None and (left := found.left) is not None and left <= 0:
        raise found.error()


def lift_deadline() -> None:
    """Let the work that is under way take as long as it takes: what is going to be written is not cut off."""
    found = _current.get()
    if found is not None:
        found.lift()


@contextmanager
def interrupting(interrupt: Callable[[], object], stopped: type[Exception]) -> Iterator[None]:
    """Have work that cannot look at the clock stopped from outside; it then raises `stopped`."""
    found = _current.get()
    left = None if found is None else found.left
    if found is None or left is None:
        yield
        return
    done = Event()

    def watch() -> None:
        # Again and again: an interruption that comes before the work has begun is forgotten.
        pause = left
        while not done.wait(max(0, pause)):
            interrupt()
            pause = _AGAIN

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except stopped as error:
        raise found.error() from error
    finally:
        done.set()
        # What is interrupted may be closed from here on.
        watcher.join()

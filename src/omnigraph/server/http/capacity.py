"""How much the whole server has in hand: what is more is refused at once, and memory does not grow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.server.http.error_responses import Refused
from omnigraph.server.limits import Limits

# Whoever watches the server learns how it is especially when it is busy.
WATCHED = frozenset({"/healthz", "/readyz", "/metrics"})
READY = "/readyz"
STOPPING = "the server is stopping"
SOON_SECONDS = 5


class Capacity:
    """Counts the requests in hand and the bytes of their bodies in memory. It belongs to one event loop.

    >>> capacity = Capacity(Limits(waiting=1))
    >>> with capacity.take("/graphs/g/query") as place:
    ...     place.hold(100)
    ...     capacity.in_hand, capacity.held
    (1, 100)
    >>> capacity.in_hand, capacity.held
    (0, 0)
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.in_hand = 0
        self.held = 0
        # Whoever asks learns that this server is about to end; new work is taken until it is refused.
        self.is_stopping = False
        self.is_refusing = False

    @contextmanager
    def take(self, path: str) -> Iterator[Place]:
        """A place for a request as long as the context lasts, or a refusal with 503."""
        place = Place(self)
        if path == READY and self.is_stopping:
            raise overloaded(STOPPING)
        if path in WATCHED:
            yield place
            return
        if self.is_refusing:
            raise overloaded(STOPPING)
        if self.in_hand >= self.limits.waiting:
            raise overloaded(f"the server has {self.limits.waiting:,} requests in hand")
        self.in_hand += 1
        try:
            yield place
        finally:
            self.in_hand -= 1
            place.release()


class Place:
    """What one request has of the capacity."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._held = 0

    def hold(self, size: int) -> None:
        """Count bytes that stay in memory until the request is answered, or refuse with 503."""
        capacity = self._capacity
        if capacity.held + size > capacity.limits.bodies:
            raise overloaded(f"the server has {capacity.limits.bodies:,} bytes of requests in hand")
        capacity.held += size
        self._held += size

    def release(self) -> None:
        """Give everything back."""
        self._capacity.held -= self._held
        self._held = 0


def overloaded(text: str) -> Refused:
    """The refusal of work that another moment, or another server, can do."""
    return Refused(503, text, headers={"Retry-After": str(SOON_SECONDS), "Connection": "close"})

"""Server-wide admission control: limits on the requests in flight and on the memory of their bodies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.server.http.error_responses import HttpError
from omnigraph.server.limits import ServerLimits

if TYPE_CHECKING:
    from omnigraph.server.workers.shared_usage import SharedUsage

# Monitoring must work when the server is overloaded, so these paths have no limit.
MONITORING_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
READINESS_PATH = "/readyz"
SHUTTING_DOWN = "the server is shutting down"
RETRY_SOON_SECONDS = 5


class Capacity:
    """Counts the requests in flight and the bytes of their bodies in memory. Belongs to one event loop.

    >>> capacity = Capacity(ServerLimits(requests=1))
    >>> with capacity.acquire("/graphs/g/query") as slot:
    ...     slot.reserve(100)
    ...     capacity.requests, capacity.bytes
    (1, 100)
    >>> capacity.requests, capacity.bytes
    (0, 0)
    """

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self.requests = 0
        self.bytes = 0
        self._shared: SharedUsage | None = None
        # Shutdown has two phases: readiness fails first, and new requests are rejected after the drain time.
        self.is_draining = False
        self.is_closed = False

    def share(self, usage: SharedUsage) -> None:
        """Apply the limits to all processes of the server together."""
        self._shared = usage

    def count(self, requests: int, size: int) -> int | None:
        """Count requests and bytes; return the index of the limit it would exceed, and then count nothing."""
        limits = (self.limits.requests, self.limits.body_bytes)
        if self._shared is not None:
            exceeded = self._shared.add_to_all(requests, size, limits)
            if exceeded is not None:
                return exceeded
        elif requests > 0 and self.requests + requests > limits[0]:
            return 0
        elif size > 0 and self.bytes + size > limits[1]:
            return 1
        self.requests += requests
        self.bytes += size
        return None

    @contextmanager
    def acquire(self, path: str) -> Iterator[RequestSlot]:
        """Hold a slot while the context is open; `HttpError` with 503 if the server is full or shutting down."""
        slot = RequestSlot(self)
        if path == READINESS_PATH and self.is_draining:
            raise unavailable(SHUTTING_DOWN)
        if path in MONITORING_PATHS:
            yield slot
            return
        if self.is_closed:
            raise unavailable(SHUTTING_DOWN)
        if self.count(1, 0) is not None:
            raise unavailable(f"server overloaded: limit of {self.limits.requests:,} requests in flight")
        try:
            yield slot
        finally:
            self.count(-1, -slot.reserved)


class RequestSlot:
    """The share of the capacity that one request holds."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        # Bytes of the body, which are returned with the slot.
        self.reserved = 0

    def reserve(self, size: int) -> None:
        """Count bytes that stay in memory until the response; `HttpError` with 503 if the limit is exceeded."""
        capacity = self._capacity
        if capacity.count(0, size) is not None:
            raise unavailable(
                f"server overloaded: limit of {capacity.limits.body_bytes:,} bytes of request bodies in memory"
            )
        self.reserved += size


def unavailable(text: str) -> HttpError:
    """Return a 503 that asks the client to retry soon."""
    return HttpError(503, text, headers={"Retry-After": str(RETRY_SOON_SECONDS), "Connection": "close"})

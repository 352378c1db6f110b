"""Per-actor admission control: limits on requests in flight, on reads, on writes and on the bytes of bodies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anyio import CapacityLimiter

from omnigraph.budget.deadline import lift_deadline
from omnigraph.server.http.error_responses import RETRY_SECONDS, HttpError
from omnigraph.server.limits import ServerLimits

if TYPE_CHECKING:
    from omnigraph.server.workers.shared_usage import SharedUsage

# What is counted in `SharedUsage`.
_HELD, _WRITES = "held", "writes"


class Admission:
    """Counts the writes in flight by actor. Thread-safe.

    >>> admission = Admission(ServerLimits(actor_requests=1))
    >>> with admission.admit("ann", 10), admission.admit("bo", 10):
    ...     admission.in_flight
    2
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        # Number of requests and bytes by actor.
        self._usage: dict[str | None, tuple[int, int]] = {}
        self._shared: SharedUsage | None = None
        # Requests in flight and the threads of reads, by actor. Both belong to the event loop.
        self._requests: dict[str | None, int] = {}
        self._readers: dict[str | None, CapacityLimiter] = {}

    def share(self, usage: SharedUsage) -> None:
        """Apply the limits to all processes of the server together."""
        self._shared = usage

    @contextmanager
    def hold(self, actor: str | None) -> Iterator[None]:
        """Count a request while the context is open; `HttpError` with 429 if the actor has too many in flight.

        A request counts before its body is read. One actor with many slow bodies thus leaves room for others.
        """
        count, limit = self._requests.get(actor, 0), self._limits.actor_in_flight
        if self._shared is not None:
            exceeded = self._shared.add(_HELD, actor, 1, 0, (limit, 0))
        else:
            exceeded = 0 if count >= limit else None
        if exceeded is not None:
            raise _too_many_requests(f"actor in-flight count cap {self._limits.actor_in_flight} exceeded")
        self._requests[actor] = count + 1
        try:
            yield
        finally:
            if self._shared is not None:
                self._shared.add(_HELD, actor, -1, 0, (limit, 0))
            if self._requests[actor] == 1:
                del self._requests[actor]
                self._readers.pop(actor, None)
            else:
                self._requests[actor] -= 1

    def readers(self, actor: str | None) -> CapacityLimiter:
        """Return the limiter of an actor's reads: three quarters of the read threads. The actor must be held."""
        found = self._readers.get(actor)
        if found is None:
            threads = self._limits.read_threads
            found = self._readers[actor] = CapacityLimiter(max(1, threads - threads // 4))
        return found

    @property
    def in_flight(self) -> int:
        """The number of admitted requests."""
        with self._lock:
            return sum(requests for requests, _ in self._usage.values())

    @contextmanager
    def admit(self, actor: str | None, size: int) -> Iterator[None]:
        """Count a write of `size` bytes while the context is open; `HttpError` with 429 if a limit is exceeded.

        The read deadline does not apply to writes, so it is lifted.
        """
        limits = (self._limits.actor_requests, self._limits.actor_bytes)
        with self._lock:
            requests, used = self._usage.get(actor, (0, 0))
            if self._shared is not None:
                exceeded = self._shared.add(_WRITES, actor, 1, size, limits)
            else:
                exceeded = 0 if requests + 1 > limits[0] else 1 if used + size > limits[1] else None
            if exceeded == 0:
                raise _too_many_requests(f"actor in-flight count cap {limits[0]} exceeded")
            if exceeded == 1:
                raise _too_many_requests(f"actor in-flight byte budget {limits[1]} exceeded")
            self._usage[actor] = (requests + 1, used + size)
        try:
            lift_deadline()
            yield
        finally:
            with self._lock:
                if self._shared is not None:
                    self._shared.add(_WRITES, actor, -1, -size, limits)
                requests, used = self._usage[actor]
                if requests == 1:
                    del self._usage[actor]
                else:
                    self._usage[actor] = (requests - 1, used - size)


def _too_many_requests(text: str) -> HttpError:
    return HttpError(429, text, headers={"Retry-After": str(RETRY_SECONDS)})

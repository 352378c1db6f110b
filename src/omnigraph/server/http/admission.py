"""Per-actor admission control: limits on requests in flight, on reads, on writes and on the bytes of bodies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from anyio import CapacityLimiter

from omnigraph.budget.deadline import lift_deadline
from omnigraph.server.http.error_responses import RETRY_SECONDS, HttpError
from omnigraph.server.limits import ServerLimits


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
        # Requests in flight and the threads of reads, by actor. Both belong to the event loop.
        self._requests: dict[str | None, int] = {}
        self._readers: dict[str | None, CapacityLimiter] = {}

    @contextmanager
    def hold(self, actor: str | None) -> Iterator[None]:
        """Count a request while the context is open; `HttpError` with 429 if the actor has too many in flight.

        A request counts before its body is read. One actor with many slow bodies thus leaves room for others.
        """
        count = self._requests.get(actor, 0)
        if count >= self._limits.actor_in_flight:
            raise _too_many_requests(f"actor in-flight count cap {self._limits.actor_in_flight} exceeded")
        self._requests[actor] = count + 1
        try:
            yield
        finally:
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
        with self._lock:
            requests, used = self._usage.get(actor, (0, 0))
            if requests + 1 > self._limits.actor_requests:
                raise _too_many_requests(f"actor in-flight count cap {self._limits.actor_requests} exceeded")
            if used + size > self._limits.actor_bytes:
                raise _too_many_requests(f"actor in-flight byte budget {self._limits.actor_bytes} exceeded")
            self._usage[actor] = (requests + 1, used + size)
        try:
            lift_deadline()
            yield
        finally:
            with self._lock:
                requests, used = self._usage[actor]
                if requests == 1:
                    del self._usage[actor]
                else:
                    self._usage[actor] = (requests - 1, used - size)


def _too_many_requests(text: str) -> HttpError:
    return HttpError(429, text, headers={"Retry-After": str(RETRY_SECONDS)})

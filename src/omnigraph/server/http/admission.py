"""Per-actor admission control: limits on the writes in flight and on the bytes of their bodies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.engine.deadline import lift_deadline
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

"""How much one actor may have in flight at a time, in requests and in bytes of their bodies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.engine.deadline import lift_deadline
from omnigraph.server.http.error_responses import RETRY_SECONDS, Refused
from omnigraph.server.limits import Limits


class Admission:
    """Counts what each actor has in flight. Safe to share between threads.

    >>> admission = Admission(Limits(requests=1))
    >>> with admission.admit("ann", 10), admission.admit("bo", 10):
    ...     admission.in_flight
    2
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._held: dict[str | None, tuple[int, int]] = {}

    @property
    def in_flight(self) -> int:
        """How many requests are admitted now."""
        with self._lock:
            return sum(requests for requests, _ in self._held.values())

    @contextmanager
    def admit(self, actor: str | None, size: int) -> Iterator[None]:
        """Hold a place for as long as the context lasts, or refuse with 429.

        What is admitted writes, so the time that a read may take does not end it.
        """
        with self._lock:
            requests, held = self._held.get(actor, (0, 0))
            if requests + 1 > self._limits.requests:
                raise _busy(f"actor in-flight count cap {self._limits.requests} exceeded")
            if held + size > self._limits.bytes:
                raise _busy(f"actor in-flight byte budget {self._limits.bytes} exceeded")
            self._held[actor] = (requests + 1, held + size)
        try:
            lift_deadline()
            yield
        finally:
            with self._lock:
                requests, held = self._held[actor]
                if requests == 1:
                    del self._held[actor]
                else:
                    self._held[actor] = (requests - 1, held - size)


def _busy(text: str) -> Refused:
    return Refused(429, text, headers={"Retry-After": str(RETRY_SECONDS)})

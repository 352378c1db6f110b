"""A limit of the requests that a process sends to a provider."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


class RequestRate:
    """Spaces requests evenly. Thread-safe. A pickled copy counts its own requests."""

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._next = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return RequestRate, (self._per_minute,)

    def reserve(self) -> float:
        """Reserve the next request; return the seconds to wait before it is sent.

        >>> rate = RequestRate(120, clock=lambda: 5.0)
        >>> rate.reserve(), rate.reserve(), rate.reserve()
        (0.0, 0.5, 1.0)
        """
        if not self._per_minute:
            return 0.0
        with self._lock:
            now = self._clock()
            at = max(now, self._next)
            self._next = at + 60 / self._per_minute
        return at - now

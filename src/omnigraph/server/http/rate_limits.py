"""Rate limits: how many requests an actor may send per second, over all processes of a server."""

from __future__ import annotations

import hashlib
import math
import mmap
import time
from collections.abc import Callable

from omnigraph.server.http.error_responses import HttpError

_SLOTS = 1 << 20
_BYTES = 8
# Sums of intervals are inexact.
_ROUNDING = 1e-6


class RateLimiter:
    """A leaky bucket for each actor, in memory that forked processes share.

    An actor may send `burst` requests at once and `rate` requests per second in the long run. Each bucket is one
    number, the time at which it is empty again (generic cell rate algorithm). Processes write it without a lock: a
    lost update allows one request too many. Actors are assigned to buckets by a digest of their names.

    >>> limiter = RateLimiter(1.0, 2, clock=lambda: 100.0)
    >>> [limiter.wait("ann") for _ in range(3)], limiter.wait("bo")
    ([0.0, 0.0, 1.0], 0.0)
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._interval = 1 / rate
        self._tolerance = (max(1, burst) - 1) * self._interval
        self._clock = clock
        # Anonymous and shared. The operating system provides a page when it is first written.
        self._times = memoryview(mmap.mmap(-1, _SLOTS * _BYTES)).cast("d")

    def wait(self, actor: str | None) -> float:
        """Count a request. Return 0, or the seconds until the actor may send the next one, uncounted."""
        digest = hashlib.blake2b(f"{actor or ''}".encode("utf-8", "surrogateescape"), digest_size=_BYTES)
        slot = int.from_bytes(digest.digest(), "big") % _SLOTS
        now = self._clock()
        # A bucket is never fuller than after a burst.
        empty_at = min(max(self._times[slot], now), now + self._tolerance + self._interval)
        wait = empty_at - now - self._tolerance
        if wait > _ROUNDING:
            return wait
        self._times[slot] = empty_at + self._interval
        return 0.0

    def check(self, actor: str | None) -> None:
        """Count a request; `HttpError` with 429 if the actor has sent too many."""
        wait = self.wait(actor)
        if wait > 0:
            raise HttpError(
                429,
                f"actor request rate limit of {self._rate:g} per second exceeded",
                headers={"Retry-After": str(math.ceil(wait))},
            )

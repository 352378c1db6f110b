"""A clock that measures durations across the suspension of a machine."""

from __future__ import annotations

import time

# This clock continues while the machine is suspended.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_clock() -> float:
    """Return the seconds since the machine started, including the time in which it was suspended."""
    return time.clock_gettime(_CLOCK)

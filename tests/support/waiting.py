"""Waiting for events in tests.

A test waits for an event, never for a length of time. `HANG` bounds each wait. It only ends a test that would
otherwise never end, so it is far longer than any wait on a busy machine. Runs in which hangs are expected, as with
planted defects, shorten it with `OMNIGRAPH_HANG_SECONDS`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

HANG: Final = float(os.environ.get("OMNIGRAPH_HANG_SECONDS", "300"))
_INTERVAL: Final = 0.01
T = TypeVar("T")


def wait_until(condition: Callable[[], T | None], what: str = "the condition", seconds: float = HANG) -> T:
    """Return the first true result of `condition`. Raises `TimeoutError` when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(_INTERVAL)

"""Settings of all test processes: upkeep, servers, signals and the garbage collection of Python."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator

import pytest

# Tests count requests and cut processes off at exact steps, so work in the background is off in them and in the
# processes that they start. Tests of upkeep turn it on.
os.environ.setdefault("OMNIGRAPH_UPKEEP", "off")
# One process starts faster, and a process with threads must not fork. `tests/server/workers` tests several.
os.environ.setdefault("OMNIGRAPH_WORKERS", "1")
# A shell starts a command in the background with SIGINT ignored, and every process that a test starts would inherit
# that. A test that interrupts such a process would wait until its deadline.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collection, and exempt what they consist of from later collections.

    Thousands of test items live as long as the process. Garbage collection scanned them again and again while they
    were made, and every full collection during a test would scan them once more.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()

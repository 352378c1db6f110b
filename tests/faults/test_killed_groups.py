"""Processes whose threads write groups of commits are killed: one chain, and every commit can be read."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import omnigraph as og
from tests.support.forked import start_worker
from tests.support.group_history import SCHEMA, check_history
from tests.support.waiting import HANG

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(1800)]

SEED_VARIABLE = "OMNIGRAPH_SEED"
THREADS = 4


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return a new seed, which is printed after a failure; `OMNIGRAPH_SEED` sets one."""
    found = int(os.environ.get(SEED_VARIABLE, random.SystemRandom().randrange(10**6)))
    sys.stdout.write(f'repeat: {SEED_VARIABLE}={found} .venv/bin/python -m pytest "{request.node.nodeid}"\n')
    return found


def live(uri: str, worker: str, seed: int, commits: int, delay: float) -> dict[str, str]:
    """Run a process until it has reported some commits, then kill it after a delay; return the reported commits."""
    process = start_worker(
        "tests.support.group_history",
        f'{{"uri": "{uri}", "worker": "{worker}", "threads": {THREADS}, "seed": {seed}}}',
    )
    watchdog = threading.Timer(HANG, process.kill)
    watchdog.start()
    told: dict[str, str] = {}
    try:
        for line in process.stdout:
            if not line.endswith("\n"):
                continue
            _, commit, message = line.rstrip("\n").split(" ", 2)
            told[commit] = message
            if len(told) == commits:
                time.sleep(delay)
                process.kill()
    finally:
        process.close()
        watchdog.cancel()
    assert len(told) >= commits, f"worker {worker} ended by itself"
    return told


def test_processes_with_threads_that_are_killed_leave_one_chain_of_readable_commits(
    tmp_path: Path, seed: int, every_cut: bool, record_property: Callable[[str, object], None]
) -> None:
    uri = str(tmp_path / "graph")
    og.init(uri, schema=SCHEMA).close()
    processes, lives = (4, 12) if every_cut else (3, 2)
    chance = random.Random(seed)

    def run(worker: int) -> dict[str, str]:
        told: dict[str, str] = {}
        for life in range(lives):
            told |= live(uri, f"{worker}.{life}", seed, chance.randrange(1, 12), chance.uniform(0, 0.08))
        return told

    with ThreadPoolExecutor(processes) as pool:
        acknowledged = {id_: text for told in pool.map(run, range(processes)) for id_, text in told.items()}
    # Every thread had at most one write in progress when its process was killed.
    length = check_history(uri, acknowledged, unreported=processes * lives * THREADS)
    record_property("kills", processes * lives)
    assert length >= len(acknowledged) >= processes * lives

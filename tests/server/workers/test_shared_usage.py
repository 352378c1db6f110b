"""Counters that several processes share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from omnigraph.server.workers.shared_usage import SharedUsage
from tests.support.waiting import HANG

LIMITS = (2, 100)


# Run in a process of its own: a process with as much memory as a test run cannot always be forked.
OVER_PROCESSES = """
import os, sys
from pathlib import Path
from omnigraph.server.workers.shared_usage import SharedUsage

usage = SharedUsage(Path(sys.argv[1]), 2)
pid = os.fork()
if pid == 0:
    usage.attach(1)
    os._exit(usage.add("writes", "ann", 1, 60, (2, 100)) or 0)
assert os.waitpid(pid, 0)[1] == 0
usage.attach(0)


def add(actor, requests, size):
    return usage.add("writes", actor, requests, size, (2, 100))


print(add("ann", 1, 41), add("ann", 1, 40), add("ann", 1, 0))
print(add("bob", 2, 100), add(None, 1, 0))
usage.clear(1)
print(add("ann", 1, 60), add("ann", -2, -100), add("ann", 2, 100))
"""


def test_limits_hold_over_all_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OVER_PROCESSES, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert run.stderr == ""
    of_one_actor, of_other_actors, after_the_end_of_a_process = run.stdout.splitlines()
    assert of_one_actor == "1 None 0"
    assert of_other_actors == "None None"
    assert after_the_end_of_a_process == "None None None"


def test_rows_of_idle_actors_are_reused(tmp_path: Path) -> None:
    usage = SharedUsage(tmp_path, 1)
    usage.attach(0)
    assert usage.add("writes", "first", 1, 0, LIMITS) is None
    for number in range(5_000):
        assert usage.add("writes", f"actor-{number}", 1, 1, LIMITS) is None
        assert usage.add("writes", f"actor-{number}", -1, -1, LIMITS) is None
    assert usage.add("writes", "first", 2, 0, LIMITS) == 0
    assert usage.add("writes", "first", 1, 0, LIMITS) is None


def test_server_wide_counts_are_independent_of_actors(tmp_path: Path) -> None:
    usage = SharedUsage(tmp_path, 1)
    usage.attach(0)
    assert usage.add_to_all(2, 0, LIMITS) is None
    assert usage.add_to_all(1, 0, LIMITS) == 0
    assert usage.add("writes", "ann", 1, 0, LIMITS) is None
    assert usage.total() == (2, 0)

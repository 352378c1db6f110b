"""Counters that several processes share."""

from __future__ import annotations

import os
from pathlib import Path

from omnigraph.server.workers.shared_usage import SharedUsage

LIMITS = (2, 100)


def test_limits_hold_over_all_processes(tmp_path: Path) -> None:
    usage = SharedUsage(tmp_path, 2)
    pid = os.fork()
    if pid == 0:
        usage.attach(1)
        os._exit(usage.add("writes", "ann", 1, 60, LIMITS) or 0)
    assert os.waitpid(pid, 0)[1] == 0
    usage.attach(0)
    assert usage.add("writes", "ann", 1, 41, LIMITS) == 1
    assert usage.add("writes", "ann", 1, 40, LIMITS) is None
    assert usage.add("writes", "ann", 1, 0, LIMITS) == 0
    # Actors are counted apart.
    assert usage.add("writes", "bob", 2, 100, LIMITS) is None
    assert usage.add("writes", None, 1, 0, LIMITS) is None
    # The parent removes the share of a process that has ended.
    usage.clear(1)
    assert usage.add("writes", "ann", 1, 60, LIMITS) is None
    assert usage.add("writes", "ann", -2, -100, LIMITS) is None
    assert usage.add("writes", "ann", 2, 100, LIMITS) is None


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

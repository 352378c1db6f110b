"""Garbage collection concurrent with writers, readers and other garbage collections, in several processes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from omnigraph.graph.repository import Repository
from omnigraph.maintain.cleanup import cleanup
from omnigraph.maintain.settings import change_settings
from tests.maintain.graphs import PERSON, RECLAIMED, new_graph, reopened, rows_at
from tests.support.waiting import wait_until
from tests.support.workers import release, results, started

WORKER = "tests.maintain.writer_worker"
# Longer than any write takes. A round with a slower write proves nothing, and a longer grace is tried.
GRACES = [timedelta(seconds=seconds) for seconds in (4, 20, 100)]


def clean_until_it_takes(uri: str, grace: timedelta) -> int:
    """Run garbage collection repeatedly with the smallest retention; return the number of removed files."""
    graph = Repository.open(uri, durability="os")

    def clean() -> int:
        report = cleanup(graph, keep=1, confirm=True, grace=grace)
        assert [item.error for item in report.datasets if item.error] == []
        return report.files_removed

    return wait_until(clean, "files that cleanup may remove")


def read_until(uri: str, end: Path) -> int:
    """Read the current state repeatedly; return the number of reads."""
    graph = Repository.open(uri, mode="r", durability="os")
    reads = 0
    while not end.exists() or reads < 2:
        snapshot = graph.snapshot()
        for key, pin in snapshot.types.items():
            assert snapshot.scan(key).num_rows == pin.rows
        reads += 1
        time.sleep(0.05)
    return reads


def one_round(graph: Repository, end: Path, grace: timedelta) -> bool:
    """Run garbage collection beside writers and readers until files are removed; return whether every write
    took less than the grace period."""
    uri = graph.location.uri
    tasks = [
        {"work": work, "name": name, "uri": uri, "until": str(end)}
        for work, name in (("write", "first"), ("branch", "side"), ("write", "second"))
    ]
    with started(WORKER, tasks) as processes, ThreadPoolExecutor() as pool:
        release(processes)
        cleaners = [pool.submit(clean_until_it_takes, uri, grace) for _ in range(2)]
        reads = pool.submit(read_until, uri, end)
        try:
            removed = [cleaner.result() for cleaner in cleaners]
        finally:
            end.touch()
        first, sides, second = results(processes)

    if max(first["slowest"], second["slowest"]) >= grace.total_seconds():
        return False
    assert min(first["commits"], second["commits"], sides["rounds"], reads.result()) > 1
    assert sum(removed) > 0, "there was nothing to take"
    fresh = reopened(graph)
    found = {row["id"] for row in fresh.snapshot().scan(PERSON).to_pylist()}
    assert found == {*first["alive"], *second["alive"]}
    assert len(list(fresh.commits())) == first["commits"] + second["commits"] + 1
    assert rows_at(fresh, fresh.head().commit) != RECLAIMED
    return True


@pytest.mark.slow
def test_repeated_cleanup_takes_nothing_from_writers_readers_or_other_cleanups(tmp_path: Path) -> None:
    for number, grace in enumerate(GRACES):
        graph = new_graph(str(tmp_path / f"g{number}"))
        if one_round(graph, tmp_path / f"end{number}", grace):
            return
    pytest.fail("every write was slower than its grace")


@pytest.mark.long
@pytest.mark.slow
def test_writers_with_upkeep_remove_old_states_and_lose_nothing(tmp_path: Path) -> None:
    graph, end = new_graph(str(tmp_path / "g")), tmp_path / "end"
    change_settings(graph, retention={"keep": 2, "older_than": "5s", "thinned": "0s"})
    uri = graph.location.uri
    tasks = [
        {"work": work, "name": name, "uri": uri, "until": str(end), "upkeep": 8}
        for work, name in (("write", "first"), ("branch", "side"), ("write", "second"))
    ]
    with started(WORKER, tasks) as processes, ThreadPoolExecutor() as pool:
        release(processes)
        reads = pool.submit(read_until, uri, end)
        try:
            wait_until(lambda: _has_reclaimed(uri), "upkeep to remove a state")
        finally:
            end.touch()
        first, _, second = results(processes)
    assert reads.result() > 1
    fresh = reopened(graph)
    found = {row["id"] for row in fresh.snapshot().scan(PERSON).to_pylist()}
    assert found == {*first["alive"], *second["alive"]}
    assert len(list(fresh.commits())) == first["commits"] + second["commits"] + 1


def _has_reclaimed(uri: str) -> bool:
    """Return whether the second commit of the graph has lost its data."""
    graph = Repository.open(uri, mode="r", durability="os")
    commits = list(graph.commits())
    return len(commits) > 1 and rows_at(graph, commits[-2]) == RECLAIMED

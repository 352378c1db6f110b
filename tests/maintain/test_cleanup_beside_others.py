"""Cleanup beside writers, readers and other cleanups, most of them in other processes: nobody loses anything."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from omnigraph.graph.repository import Repository
from omnigraph.maintain.cleanup import cleanup
from tests.maintain.graphs import PERSON, RECLAIMED, new_graph, reopened, rows_at
from tests.support.workers import release, results, started

WORKER = "tests.maintain.writer_worker"
# Everybody goes on until cleanup has taken something from beside them, and no longer than this.
SECONDS = 60.0
# Longer than any write here takes, which the test makes sure of, and as short as that allows.
GRACE = timedelta(seconds=4)


def clean_until_it_takes(uri: str, deadline: float) -> int:
    """Clean up again and again, keeping as little as can be asked for; how many files that removed."""
    graph = Repository.open(uri, durability="os")
    removed = 0
    while not removed and time.monotonic() < deadline:
        report = cleanup(graph, keep=1, confirm=True, grace=GRACE)
        assert [item.error for item in report.datasets if item.error] == []
        removed += report.files_removed
        time.sleep(0.1)
    return removed


def read_until(uri: str, end: Path) -> int:
    """Read whatever is current, all of it; how often."""
    graph = Repository.open(uri, mode="r", durability="os")
    reads = 0
    while not end.exists():
        snapshot = graph.snapshot()
        for key, pin in snapshot.types.items():
            assert snapshot.scan(key).num_rows == pin.rows
        reads += 1
        time.sleep(0.05)
    return reads


@pytest.mark.slow
def test_repeated_cleanup_takes_nothing_from_writers_readers_or_other_cleanups(tmp_path: Path) -> None:
    graph = new_graph(str(tmp_path / "g"))
    uri, end = graph.location.uri, tmp_path / "end"
    tasks = [
        {"work": work, "name": name, "uri": uri, "seconds": SECONDS, "until": str(end)}
        for work, name in (("write", "first"), ("branch", "side"), ("write", "second"))
    ]
    with started(WORKER, tasks) as processes, ThreadPoolExecutor() as pool:
        release(processes)
        deadline = time.monotonic() + SECONDS
        cleaners = [pool.submit(clean_until_it_takes, uri, deadline) for _ in range(2)]
        reads = pool.submit(read_until, uri, end)
        try:
            removed = [cleaner.result() for cleaner in cleaners]
        finally:
            end.touch()
        first, sides, second = results(processes)

    assert max(first["slowest"], second["slowest"]) < GRACE.total_seconds(), "too slow for this test's grace"
    assert min(first["commits"], second["commits"], sides["rounds"], reads.result()) > 1
    assert sum(removed) > 0, "there was nothing to take"
    fresh = reopened(graph)
    found = {row["id"] for row in fresh.snapshot().scan(PERSON).to_pylist()}
    assert found == {*first["alive"], *second["alive"]}
    assert len(list(fresh.commits())) == first["commits"] + second["commits"] + 1
    assert rows_at(fresh, fresh.head().commit) != RECLAIMED

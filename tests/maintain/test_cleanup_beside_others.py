"""Garbage collection concurrent with writers, readers and other garbage collections, in several processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from omnigraph.errors import NotFound
from omnigraph.graph.repository import Repository
from omnigraph.maintain.cleanup import cleanup
from tests.maintain.graphs import NO_GRACE, PERSON, RECLAIMED, new_graph, reopened, rows_at
from tests.support.waiting import wait_until
from tests.support.workers import release, results, started

WORKER = "tests.maintain.writer_worker"
# The number of garbage collections that remove files.
FENCES = 5


def clean_until(uri: str, end: Path) -> int:
    """Run garbage collection repeatedly with the smallest retention and without grace; return the removed files."""
    graph = Repository.open(uri, durability="os")

    removed = 0
    while not end.exists():
        report = cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
        assert [item.error for item in report.datasets if item.error] == []
        removed += report.files_removed
    return removed


def read_until(uri: str, end: Path) -> int:
    """Read the current state repeatedly; return the number of reads.

    Without grace a state that was replaced may be gone. A read of it returns the right rows or says so.
    """
    graph = Repository.open(uri, mode="r", durability="os")
    reads = 0
    while not end.exists() or reads < 2:
        snapshot = graph.snapshot()
        for key, pin in snapshot.types.items():
            with suppress_reclaimed():
                assert snapshot.scan(key).num_rows == pin.rows
        reads += 1
        time.sleep(0.05)
    return reads


@contextmanager
def suppress_reclaimed() -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        if error.details.get("reason") != RECLAIMED:
            raise


@pytest.mark.slow
def test_cleanup_without_grace_beside_writers_readers_and_other_cleanups_loses_nothing(
    tmp_path: Path,
) -> None:
    graph, end = new_graph(str(tmp_path / "g")), tmp_path / "end"
    uri = graph.location.uri
    tasks = [
        {"work": work, "name": name, "uri": uri, "until": str(end)}
        for work, name in (("write", "first"), ("branch", "side"), ("write", "second"))
    ]
    with started(WORKER, tasks) as processes, ThreadPoolExecutor() as pool:
        release(processes)
        cleaners = [pool.submit(clean_until, uri, end) for _ in range(2)]
        reads = pool.submit(read_until, uri, end)
        try:
            wait_until(lambda: fence_of(graph) >= FENCES, "garbage collections")
        finally:
            end.touch()
        removed = [cleaner.result() for cleaner in cleaners]
        first, sides, second = results(processes)

    assert min(first["commits"], second["commits"], sides["rounds"], reads.result()) > 1
    assert sum(removed) > 0, "there was nothing to take"
    fresh = reopened(graph)
    found = {row["id"] for row in fresh.snapshot().scan(PERSON).to_pylist()}
    assert found == {*first["alive"], *second["alive"]}
    assert len(list(fresh.commits())) == first["commits"] + second["commits"] + 1
    assert rows_at(fresh, fresh.head().commit) != RECLAIMED


def fence_of(graph: Repository) -> int:
    return graph.manifest.registry(graph.manifest.refresh()).fence

"""Cleanup beside writers, readers and other cleanups in other processes: nobody loses anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.maintain.graphs import PERSON, RECLAIMED, new_graph, reopened, rows_at
from tests.support.workers import run_together

WORKER = "tests.maintain.writer_worker"
SECONDS = 7.0
# Longer than any write here takes, which the test makes sure of, and as short as that allows.
GRACE = 2.5


@pytest.mark.slow
def test_repeated_cleanup_takes_nothing_from_writers_readers_or_other_cleanups(tmp_path: Path) -> None:
    graph = new_graph(str(tmp_path / "g"))
    common = {"uri": graph.location.uri, "seconds": SECONDS}
    tasks = [
        {"work": "write", "name": "a", **common},
        {"work": "write", "name": "b", **common},
        {"work": "branch", "name": "side", **common},
        {"work": "read", **common},
        {"work": "clean", "grace": GRACE, **common},
        {"work": "clean", "grace": GRACE, **common},
    ]
    first, second, sides, reader, *cleaners = run_together(WORKER, tasks)

    assert max(first["slowest"], second["slowest"]) < GRACE, "the machine was too slow for this test's grace"
    assert min(first["commits"], second["commits"], sides["rounds"], reader["reads"]) > 1
    assert sum(item["removed"] for item in cleaners) > 0, "there was nothing to take"
    fresh = reopened(graph)
    found = {row["id"] for row in fresh.snapshot().scan(PERSON).to_pylist()}
    assert found == {*first["alive"], *second["alive"]}
    assert len(list(fresh.commits())) == first["commits"] + second["commits"] + 1
    assert rows_at(fresh, fresh.head().commit) != RECLAIMED

"""Garbage collection that is killed: it has removed only unneeded files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.graph.repository import Repository
from omnigraph.maintain.cleanup import cleanup
from tests.maintain.graphs import (
    CITY,
    NO_GRACE,
    RECLAIMED,
    Rows,
    change,
    history,
    new_graph,
    overwrite,
    reopened,
    rows_at,
    table_files,
)
from tests.support.waiting import HANG
from tests.support.workers import ROOT

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    graph = new_graph(str(tmp_path_factory.mktemp("crash") / "g"))
    for number in range(3):
        overwrite(graph, f"p{number}")
        change(graph, f"q{number}", delete=[f"p{number}"])
        change(graph, f"c{number}", key=CITY)
    return graph


@pytest.fixture(scope="module")
def doomed(original: Repository) -> int:
    return cleanup(original, keep=1, grace=NO_GRACE).files_removed


@pytest.fixture(scope="module")
def rows(original: Repository) -> dict[str, Rows | str]:
    return {item.id: rows_at(original, item) for item in history(original).values()}


def kill_cleanup_at(graph_uri: str, unlink: int, trace: str = "/dev/null") -> int:
    """Run garbage collection in a process that is killed at its n-th unlink; return its exit code."""
    calls = "unlink,unlinkat"
    command = ["strace", "-f", "-qq", "-o", trace, "-e", f"trace={calls}"]
    command += ["-e", f"inject={calls}:signal=SIGKILL:when={unlink}"]
    task = {"uri": graph_uri, "work": "once"}
    command += [sys.executable, "-B", "-m", "tests.maintain.writer_worker", json.dumps(task)]
    done = subprocess.run(
        command, cwd=ROOT, input="go\n", capture_output=True, text=True, timeout=HANG, check=False
    )
    return done.returncode


@pytest.fixture(scope="module")
def unlinks_before(original: Repository, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The number of unlinks of the thread that removes files of tables, before the first of them."""
    folder = tmp_path_factory.mktemp("traced")
    shutil.copytree(original.location.path, folder / "g")
    assert kill_cleanup_at(str(folder / "g"), 10_000, str(folder / "trace")) == 0
    lines = [line.split(maxsplit=1) for line in (folder / "trace").read_text().splitlines()]
    remover = next(thread for thread, call in lines if "/nodes/" in call or "/edges/" in call)
    calls = [call for thread, call in lines if thread == remover]
    return next(number for number, call in enumerate(calls) if "/nodes/" in call or "/edges/" in call)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0], ids=["first", "middle", "last"])
def test_killed_at_an_unlink_everything_retained_still_reads(
    original: Repository,
    doomed: int,
    rows: dict[str, Rows | str],
    unlinks_before: int,
    share: float,
    tmp_path: Path,
) -> None:
    shutil.copytree(original.location.path, tmp_path / "g")
    uri = str(tmp_path / "g")
    cut = 1 + round((doomed - 1) * share)
    assert kill_cleanup_at(uri, unlinks_before + cut) != 0

    graph = Repository.open(uri, durability="os")
    left = doomed - (len(table_files(original)) - len(table_files(graph)))
    assert left == doomed - cut + 1, "the process was not killed at the file it was meant to be killed at"
    for item in history(graph).values():
        after = rows_at(reopened(graph), item)
        assert after == rows[item.id] or (after == RECLAIMED and item.id != graph.head().commit.id)
    change(graph, "after", delete=["q2"])
    assert cleanup(graph, keep=1, confirm=True, grace=NO_GRACE).files_removed >= left
    assert cleanup(graph, keep=1, grace=NO_GRACE).files_removed == 0
    assert rows_at(reopened(graph), graph.head().commit) != RECLAIMED

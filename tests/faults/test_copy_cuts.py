"""Crash cuts of backup, restore and clone: the target is the earlier or the new copy; the next run completes it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.graph.recovery.leases import find_leases
from omnigraph.graph.repository import Repository
from omnigraph.maintain.backup.backup import backup
from omnigraph.maintain.backup.copy_options import CopyOptions
from omnigraph.maintain.cleanup import cleanup
from tests.faults.conftest import Cuts
from tests.support.copies import COPIES, open_copy
from tests.support.crash import copy_graph, run_traced
from tests.support.s3 import Bucket
from tests.support.s3_cuts import run_cut, run_recorded
from tests.support.s3_fixtures import s3, s3_server
from tests.support.s3_graphs import download_graph, upload_graph
from tests.support.workload import SIDE, Setting, State, Task, change, observe, pairs, write

__all__ = ["s3", "s3_server"]

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(3_600)]

# They share all steps with a restore, except the rows of the manifest.
LONG = {"clone": pytest.mark.long}


@pytest.fixture(scope="session")
def folder(settings: Callable[[Setting], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph, and a backup of it that lacks two commits."""
    place = tmp_path_factory.mktemp("copies")
    copy_graph(settings("small"), place / "graph")
    graph = Repository.open(str(place / "graph"), durability="os")
    backup(graph, place / "backup", CopyOptions(durability="os"))
    write(graph, change(insert=pairs(20)))
    write(graph, change(pairs(0), pairs(21), strict=True), branch=SIDE)
    graph.close()
    return place


def seen(copy: Repository | None) -> State | None:
    return None if copy is None else observe(copy)


def check(folder: str, kind: str, before: State | None, after: State) -> None:
    """Check the target after a cut, the next run, and garbage collection with the leases that are left."""
    found = seen(open_copy(folder, kind))
    assert found in (before, after), f"{found} is neither {before} nor {after}"
    copy = COPIES[kind]
    copy.run(folder, {})
    assert seen(open_copy(folder, kind)) == after
    source = Repository.open(f"{folder}/{copy.source}")
    cleanup(source, keep=100, confirm=True)
    left = find_leases(source.objects)
    assert not left.live, f"{left} is live after its process has died"
    assert not left.dead_keys, f"{left} is left by garbage collection"
    assert observe(source) == observe(Repository.open(f"{folder}/{copy.source}", mode="r"))


@pytest.mark.parametrize("kind", [pytest.param(name, marks=LONG.get(name, ())) for name in COPIES])
def test_copy_killed_before_any_change_on_disk_leaves_the_earlier_or_the_new_copy(
    kind: str, folder: Path, tmp_path: Path, cuts: Cuts
) -> None:
    place = copy_graph(folder, tmp_path / "folder")
    before = seen(open_copy(place, kind))
    whole = run_traced(Task(kind, place))
    assert whole.acknowledged is not None, whole.lines
    after = seen(open_copy(place, kind))
    assert after is not None
    for at in cuts.chosen(whole.changes):
        place = copy_graph(folder, tmp_path / "folder")
        run = run_traced(Task(kind, place), at)
        with cuts.watching(at, run.cut):
            if run.acknowledged is None:
                check(place, kind, before, after)
            else:
                # The number of changes varies by a few directories, so the last cut may come too late.
                assert seen(open_copy(place, kind)) == after
    cuts.report()
    shutil.rmtree(tmp_path / "folder")


@pytest.mark.parametrize("kind", [pytest.param("backup", marks=pytest.mark.long), "incremental-backup"])
def test_copy_killed_at_any_request_leaves_the_earlier_or_the_new_copy(
    kind: str, folder: Path, s3: Bucket, tmp_path: Path, cuts: Cuts
) -> None:
    place = upload_graph(folder, s3, "whole")
    before = seen(open_copy(place, kind, s3.options))
    log = run_recorded(Task(kind, place, options=s3.options), s3)
    after = seen(open_copy(place, kind, s3.options))
    assert after is not None
    for at in cuts.chosen_requests(log, 1):
        applied = at % 2 == 0
        cut = f"{log.requests[at - 1]} (applied: {applied})"
        with s3.server.bucket() as bucket, cuts.watching(at, cut):
            place = upload_graph(folder, bucket, "copies")
            run_cut(Task(kind, place, options=bucket.options), bucket, at, applied=applied)
            check(download_graph(bucket, "copies", tmp_path / "cut"), kind, before, after)
    cuts.report()

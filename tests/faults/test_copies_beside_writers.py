"""Backups, and plain file copies, of a graph that is written, optimized and collected at the same time.

`OMNIGRAPH_BACKUPS` is the number of backups, by default 2, and 100 with all cuts (`make faults`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from omnigraph.graph.repository import Repository
from omnigraph.maintain.backup.backup import backup
from omnigraph.maintain.backup.copy_options import CopyOptions
from tests.faults.conftest import wanted_cuts
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server
from tests.support.waiting import wait_until
from tests.support.workers import release, results, started
from tests.support.workload import BOTH, PAIR, SIDE, prepare_setting

__all__ = ["s3", "s3_server"]

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(10_800)]

WORKER = "tests.faults.copy_worker"
BACKUPS = int(os.environ.get("OMNIGRAPH_BACKUPS", "100" if wanted_cuts() == "all" else "2"))
# Of many backups, this many processes write. Few backups are made beside two.
WRITERS = 8 if BACKUPS > 10 else 2
# Seconds between the commits of one writer. A backup that takes longer than the commits of its duration never
# catches up, and a history of many thousand commits makes the next backups slower.
PAUSE_SECONDS = {"disk": 2.0, "s3": 6.0} if BACKUPS > 10 else {"disk": 0.02, "s3": 0.02}
# Between two runs of the optimizer, and of the collector.
MAINTENANCE_PAUSE_SECONDS = {"disk": 1.0, "s3": 5.0} if BACKUPS > 10 else {"disk": 1.0, "s3": 1.0}
# One server process answers the requests of all processes, so that a reply takes long on a loaded machine.
PATIENT = {"timeout": "120s", "retry_timeout": "300s", "max_retries": "10"}
# Longer than any write takes on a loaded machine.
GRACE_SECONDS = 60.0 if BACKUPS > 10 else 20.0
# Every so often a backup starts in an empty place and is read back completely. The others are incremental, and
# their files are compared by size. What is copied is compared with its digest in any case.
FRESH_EVERY = 10


class Others:
    """The processes that work beside the copies, and the commits that were acknowledged to them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.reports: list[Any] = []

    def acknowledged(self) -> set[str]:
        """Return the commits that are acknowledged now."""
        return {id_ for log in self._folder.glob("*.log") for id_ in log.read_text("utf-8").split()}


@contextmanager
def others_at_work(uri: str, options: dict[str, str], folder: Path) -> Iterator[Others]:
    """Run writers on two branches, an optimizer and a garbage collector until the block ends."""
    end = folder / "end"
    common = {"uri": uri, "options": options, "until": str(end)}
    storage = "s3" if options else "disk"
    maintenance = common | {"pause": MAINTENANCE_PAUSE_SECONDS[storage]}
    tasks: list[dict[str, Any]] = [
        common
        | {
            "work": "write",
            "pause": PAUSE_SECONDS[storage],
            "number": number,
            "branch": SIDE if number % 4 == 3 else "main",
            "log": str(folder / f"{number}.log"),
        }
        for number in range(WRITERS)
    ]
    tasks.append(maintenance | {"work": "optimize"})
    tasks.append(maintenance | {"work": "collect", "grace": GRACE_SECONDS})
    others = Others(folder)
    with started(WORKER, tasks) as processes:
        release(processes)
        try:
            wait_until(lambda: len(others.acknowledged()) > WRITERS, "commits of all writers")
            yield others
        finally:
            end.touch()
        others.reports = results(processes)


def check_copy(copy: Repository, acknowledged: set[str]) -> None:
    """Check that a copy has all acknowledged commits and that every table of every head is complete."""
    view = copy.manifest.refresh()
    commits = {commit.id for commit in copy.manifest.all_commits(view)}
    assert acknowledged <= commits, f"{len(acknowledged - commits)} acknowledged commits are missing"
    for name in copy.branches():
        snapshot = copy.snapshot(name)
        ids = {}
        for key in BOTH:
            rows = snapshot.scan(key)
            assert rows.num_rows == snapshot.pin(key).rows, f"{key} of {name}"
            ids[key] = {id_ for id_ in rows["id"].to_pylist() if id_.startswith(PAIR)}
        assert ids[BOTH[0]] == ids[BOTH[1]], f"{name} shows one half of a commit"


def run_backups(
    uri: str, options: dict[str, str], place: Callable[[int], str], folder: Path
) -> tuple[int, list[Any]]:
    """Make the backups beside the others; return the number of complete ones and the reports of the others."""
    prepare_setting("small", uri, options or None)
    source = Repository.open(uri, mode="r", options=options or None)
    made = 0
    with others_at_work(uri, options, folder) as others:
        for number in range(BACKUPS):
            before = others.acknowledged()
            target = place(number // FRESH_EVERY)
            how = CopyOptions(options or None, "os", verify="quick" if number % FRESH_EVERY else "full")
            report = backup(source, target, how)
            assert report.warnings == ()
            check_copy(Repository.open(target, options=options or None), before)
            made += 1
    return made, others.reports


def check_reports(reports: list[Any], record_property: Callable[[str, object], None]) -> None:
    """Check that there were more commits than backups, and record what the processes did."""
    *writers, optimizer, collector = reports
    commits = sum(item["commits"] for item in writers)
    record_property("backups", BACKUPS)
    record_property("commits", commits)
    record_property("optimizations", optimizer["commits"])
    record_property("files collected", collector["removed"])
    assert commits > BACKUPS


def test_every_backup_beside_writers_optimizer_and_collector_is_complete_on_disk(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    (tmp_path / "logs").mkdir()
    made, reports = run_backups(
        str(tmp_path / "graph"), {}, lambda number: str(tmp_path / f"backup-{number}"), tmp_path / "logs"
    )
    assert made == BACKUPS
    check_reports(reports, record_property)


@pytest.mark.long
def test_every_backup_beside_writers_optimizer_and_collector_is_complete_on_s3(
    s3: Bucket, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    made, reports = run_backups(
        f"{s3.uri}/graph", s3.options | PATIENT, lambda number: f"{s3.uri}/backup-{number}", tmp_path
    )
    assert made == BACKUPS
    check_reports(reports, record_property)


def plain_copy(source: Path, target: Path) -> None:
    """Copy a graph in the documented order: versions of `__manifest`, its other files, then the tables."""
    for part in ("__manifest/_versions", "__manifest/data", "nodes", "edges"):
        shutil.copytree(source / part, target / part, copy_function=_copy_if_present)


def _copy_if_present(source: str, target: str) -> None:
    """Copy a file; a temporary file may be gone by now, which `cp` and `rsync` report and pass."""
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        assert not source.endswith(".lance"), f"{source} vanished"


def test_plain_copy_in_the_documented_order_beside_writers_is_complete(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    uri = str(tmp_path / "graph")
    prepare_setting("small", uri)
    with others_at_work(uri, {}, tmp_path / "logs") as others:
        for number in range(BACKUPS):
            before = others.acknowledged()
            target = tmp_path / f"copy-{number}"
            plain_copy(Path(uri), target)
            check_copy(Repository.open(str(target), mode="r"), before)
            check_copy(Repository.open(str(target)), before)

"""Backup and restore between object stores and local disks, and their cost in requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import NotFound, StorageError
from omnigraph.graph.repository import Repository
from omnigraph.maintain.backup.backup import backup, restore
from omnigraph.maintain.backup.copy_options import CopyOptions
from tests.maintain.graphs import CITY, PERSON, change, history, new_graph, rows_at
from tests.support.s3 import Bucket

pytest_plugins = ["tests.support.s3_fixtures"]


def equal(left: Repository, right: Repository) -> bool:
    commits = history(left)
    return set(commits) == set(history(right)) and all(
        rows_at(left, commit) == rows_at(right, commit) for commit in commits.values()
    )


@pytest.mark.parametrize(("source", "target"), [("disk", "s3"), ("s3", "disk"), ("s3", "s3")])
def test_backup_between_storages_restores_to_the_same_graph(
    source: str, target: str, tmp_path: Path, s3: Bucket
) -> None:
    def place(kind: str, name: str) -> tuple[str, dict[str, str] | None]:
        return (str(tmp_path / name), None) if kind == "disk" else (f"{s3.uri}/{name}", s3.options)

    uri, options = place(source, "graph")
    graph = new_graph(uri, options)
    for number in range(2):
        change(graph, f"p{number}")
    graph.create_branch("side")
    change(graph, "s", branch="side")
    copy_uri, copy_options = place(target, "backup")
    backup(graph, copy_uri, CopyOptions(storage=copy_options))
    change(graph, "later", key=CITY)
    report = backup(graph, copy_uri, CopyOptions(storage=copy_options, verify="full"))
    assert report.commits_added == 1
    copy = Repository.open(copy_uri, options=copy_options)
    assert equal(graph, copy)
    back_uri, back_options = place(source, "restored")
    restore(copy, back_uri, CopyOptions(storage=back_options))
    restored = Repository.open(back_uri, options=back_options)
    assert equal(graph, restored)
    change(restored, "written")


def test_incremental_backup_takes_requests_for_the_changed_table_only(s3: Bucket) -> None:
    graph = new_graph(f"{s3.uri}/graph", s3.options)
    for number in range(12):
        change(graph, f"p{number}", key=PERSON)
    with s3.seam.recording() as full:
        backup(graph, f"{s3.uri}/backup", CopyOptions(storage=s3.options))
    change(graph, "c", key=CITY)
    with s3.seam.recording() as log:
        report = backup(graph, f"{s3.uri}/backup", CopyOptions(storage=s3.options))
    assert report.commits_added == 1
    people = graph.snapshot().pin(PERSON).path
    assert not [item for item in log.requests if people in item.key]
    # Each file is one get and one put. The rest does not depend on the length of the history.
    assert len(log.requests) < len(full.requests) / 3
    puts = [item.key for item in log.requests if item.method == "PUT" and "/data/" in item.key]
    assert len(puts) == 4, puts


def test_backup_without_changes_writes_nothing_but_its_locks(s3: Bucket) -> None:
    graph = new_graph(f"{s3.uri}/graph", s3.options)
    change(graph, "p")
    backup(graph, f"{s3.uri}/backup", CopyOptions(storage=s3.options))
    before = [key for key in s3.keys if key.startswith("backup/")]
    with s3.seam.recording() as log:
        report = backup(graph, f"{s3.uri}/backup", CopyOptions(storage=s3.options))
    assert not report.published
    assert [key for key in s3.keys if key.startswith("backup/")] == before
    assert not [item for item in log.requests if item.method == "PUT" and "/__leases/" not in item.key]


def test_backup_whose_upload_fails_is_not_published_and_is_completed_by_the_next(
    s3: Bucket, tmp_path: Path
) -> None:
    graph = new_graph(str(tmp_path / "graph"))
    change(graph, "p")
    with (
        s3.seam.fail(403, method="PUT", nth=12),
        pytest.raises(StorageError),
    ):
        backup(graph, f"{s3.uri}/backup", CopyOptions(storage=s3.options))
    with pytest.raises(NotFound):
        Repository.open(f"{s3.uri}/backup", options=s3.options)
    report = backup(graph, f"{s3.uri}/backup", CopyOptions(storage=s3.options))
    assert report.files_skipped > 0
    assert equal(graph, Repository.open(f"{s3.uri}/backup", options=s3.options))

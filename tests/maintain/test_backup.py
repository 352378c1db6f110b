"""Backup, restore and clone on a local disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.errors import Conflict, InvalidInput, NotFound, PermissionDenied, StorageError
from omnigraph.graph.progress import Progress
from omnigraph.graph.recovery import intents, leases
from omnigraph.graph.recovery.process_identity import process_start, this_machine
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.maintain.backup.backup import backup, clone, restore
from omnigraph.maintain.backup.copy_options import CopyOptions
from omnigraph.maintain.cleanup import cleanup
from omnigraph.store.file_digests import FileDigest, digest_file
from omnigraph.store.lance.lance_files import version_file
from tests.maintain.graphs import (
    CITY,
    NO_GRACE,
    PERSON,
    RECLAIMED,
    Rows,
    change,
    history,
    maintain,
    merge,
    new_graph,
    overwrite,
    rows_at,
    rows_of,
    table_files,
)
from tests.support.full_disk import largest_file


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with two branches, deleted rows, an index, a compaction and a merge. It is shared."""
    folder = tmp_path_factory.mktemp("template") / "graph"
    made = new_graph(str(folder))
    for number in range(3):
        change(made, f"p{number}", f"q{number}")
    made.create_branch("side")
    change(made, "s1", branch="side", delete=["q1"])
    change(made, key=PERSON, delete=["q0"])
    maintain(made, index=True)
    maintain(made, index=False)
    merge(made, "side")
    change(made, "c", key=CITY)
    made.close()
    return folder


@pytest.fixture
def graph(template: Path, tmp_path: Path) -> Repository:
    """A copy of the template."""
    shutil.copytree(template, tmp_path / "graph")
    return Repository.open(str(tmp_path / "graph"), durability="os")


def states(graph: Repository) -> dict[str, Rows | str]:
    """Return the rows of every commit of a graph, read through a new handle."""
    fresh = Repository.open(graph.location.uri, mode="r")
    return {id_: rows_at(fresh, commit) for id_, commit in history(fresh).items()}


def heads(graph: Repository) -> dict[str, str]:
    return {name: graph.head(name).commit.id for name in graph.branches()}


def opened(place: Path) -> Repository:
    return Repository.open(str(place), mode="rw")


def target_leases(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "__leases").glob("*"))


# --- backup -----------------------------------------------------------------------------------------------


def test_backup_of_a_graph_has_every_commit_of_every_branch(graph: Repository, tmp_path: Path) -> None:
    report = backup(graph, tmp_path / "backup")
    copy = opened(tmp_path / "backup")
    assert states(copy) == states(graph)
    assert heads(copy) == heads(graph) == report.heads
    assert report.commits == report.commits_added == len(history(graph))
    assert copy.manifest.registry(copy.manifest.view).graph_id == report.graph_id
    assert report.files_copied > 0
    assert report.files_skipped == 0
    assert target_leases(tmp_path / "backup") == target_leases(tmp_path / "graph") == []


def test_backup_copies_no_file_that_no_commit_needs(graph: Repository, tmp_path: Path) -> None:
    graph.tables.stage(graph.snapshot().pin(PERSON), insert=rows_of(graph.snapshot().catalog, PERSON, ["x"]))
    backup(graph, tmp_path / "backup")
    copied = table_files(opened(tmp_path / "backup"))
    assert copied.items() < table_files(graph).items()


def test_second_backup_without_changes_copies_nothing_and_publishes_nothing(
    graph: Repository, tmp_path: Path
) -> None:
    backup(graph, tmp_path / "backup")
    version = opened(tmp_path / "backup").manifest.view.version
    report = backup(graph, tmp_path / "backup")
    assert (report.files_copied, report.commits_added, report.published) == (0, 0, False)
    assert opened(tmp_path / "backup").manifest.view.version == version


def test_incremental_backup_copies_only_new_files_and_new_commits(graph: Repository, tmp_path: Path) -> None:
    first = backup(graph, tmp_path / "backup")
    before = table_files(graph)
    change(graph, "new", key=CITY)
    graph.create_branch("later")
    report = backup(graph, tmp_path / "backup")
    new = table_files(graph).keys() - before.keys()
    # The new files of the table, the head of each moved or new branch, and the commit.
    assert report.files_copied == len(new) + 3
    assert report.commits_added == 1
    assert report.bytes_copied < first.bytes_copied / 3
    copy = opened(tmp_path / "backup")
    assert states(copy) == states(graph)
    assert heads(copy) == heads(graph)


def test_incremental_backup_after_a_deleted_branch_deletes_the_branch(
    graph: Repository, tmp_path: Path
) -> None:
    backup(graph, tmp_path / "backup")
    graph.delete_branch("side")
    report = backup(graph, tmp_path / "backup")
    assert report.published
    assert set(opened(tmp_path / "backup").branches()) == {"main"}


def test_backup_after_log_compaction_has_each_commit_once(tmp_path: Path) -> None:
    graph = new_graph(str(tmp_path / "graph"))
    backup(graph, tmp_path / "backup")
    for number in range(40):
        change(graph, f"p{number}")
    backup(graph, tmp_path / "backup")
    copy = opened(tmp_path / "backup")
    logged = [commit.id for commit in copy.manifest.all_commits(copy.manifest.view)]
    assert sorted(logged) == sorted(history(graph))


def test_backup_keeps_data_that_garbage_collection_removed_from_the_graph(
    graph: Repository, tmp_path: Path
) -> None:
    backup(graph, tmp_path / "backup")
    before = states(graph)
    cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    overwrite(graph, "new", key=CITY)
    backup(graph, tmp_path / "backup")
    assert before.items() <= states(opened(tmp_path / "backup")).items()


def test_first_backup_of_a_collected_graph_has_what_the_graph_still_has(
    graph: Repository, tmp_path: Path
) -> None:
    cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    backup(graph, tmp_path / "backup")
    found = states(opened(tmp_path / "backup"))
    assert found == states(graph)
    assert RECLAIMED in found.values()


def test_backup_since_a_commit_leaves_out_the_data_of_its_ancestors(tmp_path: Path) -> None:
    graph = new_graph(str(tmp_path / "graph"))
    commits = [overwrite(graph, f"p{number}") for number in range(4)]
    report = backup(graph, tmp_path / "backup", since=commits[2].id)
    copy = opened(tmp_path / "backup")
    assert [rows_at(copy, commit) == RECLAIMED for commit in commits] == [True, True, False, False]
    assert report.since == commits[2].id
    assert set(history(copy)) == set(history(graph))


def test_backup_since_a_commit_has_the_merge_base_of_an_older_branch(tmp_path: Path) -> None:
    graph = new_graph(str(tmp_path / "graph"))
    base = overwrite(graph, "base")
    graph.create_branch("side")
    overwrite(graph, "s", branch="side")
    newest = [overwrite(graph, f"p{number}") for number in range(3)][-1]
    backup(graph, tmp_path / "backup", since=newest.id)
    copy = opened(tmp_path / "backup")
    assert rows_at(copy, base) == rows_at(graph, base)


def test_full_backup_after_one_since_a_commit_adds_the_older_data(tmp_path: Path) -> None:
    graph = new_graph(str(tmp_path / "graph"))
    commits = [overwrite(graph, f"p{number}") for number in range(4)]
    backup(graph, tmp_path / "backup", since=commits[2].id)
    report = backup(graph, tmp_path / "backup")
    assert report.since is None
    assert states(opened(tmp_path / "backup")) == states(graph)


def test_backup_since_an_unknown_commit_is_refused(graph: Repository, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="commit 'nowhere' not found"):
        backup(graph, tmp_path / "backup", since="nowhere")
    assert not (tmp_path / "backup").exists()


def test_backup_since_a_gap_is_recorded_and_filled_by_a_full_backup(tmp_path: Path) -> None:
    graph = new_graph(str(tmp_path / "graph"))
    overwrite(graph, "first")
    backup(graph, tmp_path / "backup")
    commits = [overwrite(graph, f"p{number}") for number in range(3)]
    assert backup(graph, tmp_path / "backup", since=commits[2].id).since == commits[2].id
    assert rows_at(opened(tmp_path / "backup"), commits[0]) == RECLAIMED
    assert backup(graph, tmp_path / "backup").since is None
    assert states(opened(tmp_path / "backup")) == states(graph)


def test_write_to_a_backup_is_refused_and_names_restore(graph: Repository, tmp_path: Path) -> None:
    backup(graph, tmp_path / "backup")
    copy = opened(tmp_path / "backup")
    with pytest.raises(PermissionDenied, match="is a backup") as failure:
        change(copy, "x")
    assert "restore" in (failure.value.hint or "")
    with pytest.raises(PermissionDenied):
        copy.create_branch("x")


def test_backup_does_not_copy_an_intent_of_a_running_write(graph: Repository, tmp_path: Path) -> None:
    def prepare(_transaction: Transaction) -> Prepared[None]:
        backup(graph, tmp_path / "backup")
        return Prepared(None, None)

    graph.write("main", WriteRequest("load", bulk=True), prepare)
    assert not (tmp_path / "backup" / intents.PREFIX).exists()


def test_backup_copies_idempotency_keys_so_that_a_repeated_request_has_no_effect(
    graph: Repository, tmp_path: Path
) -> None:
    def add(place: Repository) -> str:
        def prepare(transaction: Transaction) -> Prepared[None]:
            transaction.stage(PERSON, insert=rows_of(transaction.base.catalog, PERSON, ["k"]))
            return Prepared("insert", None)

        receipt = place.write("main", WriteRequest("add", idempotency_key="key"), prepare).receipt
        assert receipt is not None
        return receipt.commit.id

    made = add(graph)
    backup(graph, tmp_path / "backup")
    restore(opened(tmp_path / "backup"), tmp_path / "restored")
    assert add(opened(tmp_path / "restored")) == made


# --- refusals ---------------------------------------------------------------------------------------------


def test_backup_into_a_place_with_other_files_is_refused(graph: Repository, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("x")
    for copy in (backup, restore, clone):
        with pytest.raises(InvalidInput, match="is not empty"):
            copy(graph, tmp_path / "home")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter.txt"]


def test_backup_into_a_graph_or_another_backup_is_refused(graph: Repository, tmp_path: Path) -> None:
    other = new_graph(str(tmp_path / "other"))
    with pytest.raises(Conflict, match="it is not a backup"):
        backup(graph, tmp_path / "other")
    backup(other, tmp_path / "backup")
    with pytest.raises(Conflict, match="it is a backup of another graph"):
        backup(graph, tmp_path / "backup")
    with pytest.raises(Conflict, match="restore does not replace it"):
        restore(graph, tmp_path / "backup")


def test_backup_of_an_older_copy_into_a_newer_backup_is_refused(graph: Repository, tmp_path: Path) -> None:
    backup(graph, tmp_path / "old")
    change(graph, "newer")
    backup(graph, tmp_path / "backup")
    restore(opened(tmp_path / "old"), tmp_path / "restored")
    restored = opened(tmp_path / "restored")
    change(restored, "other")
    with pytest.raises(Conflict, match="does not have"):
        backup(restored, tmp_path / "backup")


def test_backup_of_the_restored_graph_continues_the_backup(graph: Repository, tmp_path: Path) -> None:
    backup(graph, tmp_path / "backup")
    restore(opened(tmp_path / "backup"), tmp_path / "restored")
    restored = opened(tmp_path / "restored")
    change(restored, "more")
    assert backup(restored, tmp_path / "backup").commits_added == 1
    assert states(opened(tmp_path / "backup")) == states(restored)


@pytest.mark.parametrize("inside", ["", "nodes", "deep/er"])
def test_backup_into_its_source_is_refused(graph: Repository, tmp_path: Path, inside: str) -> None:
    with pytest.raises(InvalidInput, match="not separate"):
        backup(graph, tmp_path / "graph" / inside)


def test_backup_of_a_graph_in_memory_is_refused(tmp_path: Path) -> None:
    graph = new_graph("memory://backup-in-memory")
    with pytest.raises(InvalidInput, match="memory"):
        backup(graph, tmp_path / "backup")


# --- leases -----------------------------------------------------------------------------------------------


def test_cleanup_keeps_the_commits_that_a_running_backup_holds(graph: Repository, tmp_path: Path) -> None:
    before = states(graph)

    def collect(_stage: str, _copied: int) -> None:
        cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)

    backup(graph, tmp_path / "backup", CopyOptions(progress=collect))
    assert states(opened(tmp_path / "backup")) == before
    assert cleanup(graph, keep=1, confirm=True, grace=NO_GRACE).old_versions_removed > 0


def test_incremental_backup_does_not_hold_the_commits_that_it_has(graph: Repository, tmp_path: Path) -> None:
    removed = []

    def collect(_stage: str, _copied: int) -> None:
        removed.append(cleanup(graph, keep=1, confirm=True, grace=NO_GRACE).old_versions_removed)

    backup(graph, tmp_path / "backup")
    overwrite(graph, "new")
    backup(graph, tmp_path / "backup", CopyOptions(progress=collect))
    assert sum(removed) > 0


def test_lease_of_a_dead_process_is_ignored_and_removed(graph: Repository) -> None:
    dead = replace(leases.Lease.new("backup", "g"), owner=replace(intents.this_process(), pid=1, started="0"))
    graph.objects.put(dead.key, dead.to_bytes())
    report = cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    assert report.old_versions_removed > 0
    assert report.objects_removed == 1
    assert leases.find_leases(graph.objects) == leases.FoundLeases()


def test_lease_of_another_machine_holds_until_it_expires(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = leases.Lease.new("backup", "g")
    other = replace(lease, owner=replace(intents.this_process(), machine="elsewhere"))
    graph.objects.put(other.key, other.to_bytes())
    assert cleanup(graph, keep=1, confirm=True, grace=NO_GRACE).old_versions_removed == 0
    monkeypatch.setattr(leases, "EXPIRY_SECONDS", 0.0)
    assert cleanup(graph, keep=1, confirm=True, grace=NO_GRACE).old_versions_removed > 0


def test_unreadable_lease_holds_all_commits(graph: Repository) -> None:
    graph.objects.put(f"{leases.PREFIX}strange.json", b"{")
    assert cleanup(graph, keep=1, confirm=True, grace=NO_GRACE).old_versions_removed == 0


def test_writer_and_recovery_ignore_the_lease_of_a_backup(graph: Repository) -> None:
    lease = leases.Lease.new("backup", "g")
    graph.objects.put(lease.key, lease.to_bytes())
    change(graph, "after")
    assert graph.recover() == []
    assert leases.find_leases(graph.objects).live == (lease,)


def test_backup_from_storage_that_cannot_be_written_succeeds_with_a_warning(
    graph: Repository, tmp_path: Path
) -> None:
    (tmp_path / "graph" / "__leases").write_text("a file where the directory would be")
    report = backup(graph, tmp_path / "backup")
    assert len(report.warnings) == 1
    assert "no lease" in report.warnings[0]
    assert states(opened(tmp_path / "backup")) == states(graph)


def test_second_backup_into_a_locked_target_is_refused(graph: Repository, tmp_path: Path) -> None:
    refused = []

    def again(stage: str, _copied: int) -> None:
        with pytest.raises(Conflict, match="is writing a copy"):
            backup(graph, tmp_path / "backup")
        refused.append(stage)

    backup(graph, tmp_path / "backup", CopyOptions(progress=again))
    assert refused


def test_backup_on_a_full_disk_raises_storage_error_and_the_same_process_can_repeat_it(
    graph: Repository, tmp_path: Path
) -> None:
    with ExitStack() as full:
        # Not even the mark of an unfinished copy can be written then.
        fill = CopyOptions(progress=lambda *_: full.enter_context(largest_file(10)))
        with pytest.raises(StorageError, match="cannot write object"):
            backup(graph, tmp_path / "backup", fill)
    backup(graph, tmp_path / "backup")
    assert states(opened(tmp_path / "backup")) == states(graph)


@pytest.mark.parametrize("seconds", [0, 400])
def test_target_of_a_failed_run_is_taken_over_when_its_process_does_not_renew_the_lock(
    graph: Repository, tmp_path: Path, seconds: int
) -> None:
    """The process lives on, and could not say that its run had failed."""
    parent = os.getppid()
    owner = intents.IntentOwner(this_machine(), parent, process_start(parent))
    graph_id = graph.manifest.registry(graph.manifest.view).graph_id
    lease = replace(leases.Lease.new("backup", graph_id), owner=owner)
    past = lease.created_at // 1_000_000 - seconds
    (tmp_path / "backup" / "__leases").mkdir(parents=True)
    target = tmp_path / "backup" / leases.TARGET
    target.write_bytes(replace(lease, renewed_at=past * 1_000_000).to_bytes())
    os.utime(target, (past, past))
    if seconds:
        backup(graph, tmp_path / "backup")
        assert states(opened(tmp_path / "backup")) == states(graph)
    else:
        with pytest.raises(Conflict, match=f"process {parent} is writing a copy"):
            backup(graph, tmp_path / "backup")


def test_cleanup_of_a_backup_removes_old_data_from_it(graph: Repository, tmp_path: Path) -> None:
    backup(graph, tmp_path / "backup")
    copy = opened(tmp_path / "backup")
    assert cleanup(copy, keep=1, confirm=True, grace=NO_GRACE).old_versions_removed > 0
    assert {
        name: rows_at(copy, copy.head(name).commit) == rows_at(graph, graph.head(name).commit)
        for name in heads(graph)
    } == dict.fromkeys(heads(graph), True)
    change(graph, "more")
    backup(graph, tmp_path / "backup")
    assert rows_at(opened(tmp_path / "backup"), graph.head().commit) == rows_at(graph, graph.head().commit)


# --- damage -----------------------------------------------------------------------------------------------


def record_digests(graph: Repository) -> None:
    """Record the digests of all table files, as `verify --record` does."""
    by_path: dict[str, list[FileDigest]] = {}
    for name in table_files(graph):
        folder, table, rest = name.split("/", 2)
        digest = digest_file(Path(graph.location.path, name), rest)
        by_path.setdefault(f"{folder}/{table}", []).append(digest)
    graph.manifest.record_files(by_path, 0)


def a_data_file(place: Path) -> Path:
    return min((place / "nodes").rglob("data/*.lance"))


def test_backup_copies_a_left_over_file_of_another_size_again(graph: Repository, tmp_path: Path) -> None:
    unfinished(graph, tmp_path)
    truncated = a_data_file(tmp_path / "backup")
    truncated.write_bytes(truncated.read_bytes()[:-10])
    backup(graph, tmp_path / "backup")
    assert states(opened(tmp_path / "backup")) == states(graph)


def test_backup_copies_a_left_over_file_of_another_content_again(graph: Repository, tmp_path: Path) -> None:
    record_digests(graph)
    unfinished(graph, tmp_path)
    altered = a_data_file(tmp_path / "backup")
    altered.write_bytes(bytes(altered.stat().st_size))
    backup(graph, tmp_path / "backup")
    assert states(opened(tmp_path / "backup")) == states(graph)


def test_incremental_backup_replaces_a_truncated_file_of_the_earlier_backup(
    graph: Repository, tmp_path: Path
) -> None:
    backup(graph, tmp_path / "backup")
    truncated = min((tmp_path / "backup" / graph.snapshot().pin(CITY).path / "data").glob("*.lance"))
    times = truncated.stat()
    truncated.write_bytes(truncated.read_bytes()[:-10])
    os.utime(truncated, ns=(times.st_atime_ns, times.st_mtime_ns))
    change(graph, "more", key=CITY)
    backup(graph, tmp_path / "backup")
    copied = opened(tmp_path / "backup")
    assert rows_at(copied, graph.head().commit) == rows_at(graph, graph.head().commit)


def unfinished(graph: Repository, tmp_path: Path) -> None:
    """Leave a first backup that stopped before it was published."""
    with pytest.raises(StorageError, match="planted"):
        backup(graph, tmp_path / "backup", CopyOptions(progress=stop_after_data(tmp_path / "backup")))


def stop_after_data(place: Path) -> Progress:
    def stop(_stage: str, _copied: int) -> None:
        if any((place / "nodes").rglob("data/*.lance")):
            raise StorageError("planted")

    return stop


def test_backup_of_a_damaged_file_is_refused_and_names_the_file(graph: Repository, tmp_path: Path) -> None:
    record_digests(graph)
    damaged = a_data_file(tmp_path / "graph")
    damaged.write_bytes(bytes(damaged.stat().st_size))
    with pytest.raises(StorageError, match=damaged.name):
        backup(graph, tmp_path / "backup")
    with pytest.raises(NotFound):
        opened(tmp_path / "backup")


def test_backup_of_a_graph_with_a_missing_file_is_refused_and_names_the_file(
    graph: Repository, tmp_path: Path
) -> None:
    missing = a_data_file(tmp_path / "graph")
    missing.unlink()
    with pytest.raises(StorageError, match=missing.name):
        backup(graph, tmp_path / "backup")


def test_backup_of_a_graph_with_a_missing_index_file_is_refused_and_names_the_file(
    graph: Repository, tmp_path: Path
) -> None:
    """A version names the directory of an index, and not the files in it."""
    indexes = tmp_path / "graph" / graph.snapshot().pin(PERSON).path / "_indices"
    missing = min(indexes.rglob("*.lance"))
    missing.unlink()
    with pytest.raises(StorageError, match=f"{missing.parent.name}/{missing.name} does not exist"):
        backup(graph, tmp_path / "backup")
    with pytest.raises(NotFound):
        opened(tmp_path / "backup")


def head_version_file(graph: Repository, key: str) -> Path:
    """Return the version file of a table at the head of main."""
    pin = graph.snapshot().pin(key)
    return Path(graph.location.path, pin.path, version_file(pin.version))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "altered": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-7]),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["data", "index", "version"])
def test_backup_that_skips_damaged_files_copies_everything_else_and_lists_them(
    graph: Repository, tmp_path: Path, kind: str, damage: str
) -> None:
    record_digests(graph)
    expected = set(backup(graph, tmp_path / "complete").heads.values())
    damaged = head_version_file(graph, PERSON)
    if kind == "data":
        damaged = min((tmp_path / "graph" / graph.snapshot().pin(PERSON).path / "data").glob("*.lance"))
    elif kind == "index":
        damaged = min((tmp_path / "graph" / graph.snapshot().pin(PERSON).path / "_indices").rglob("*.lance"))
    content = damaged.read_bytes()
    DAMAGES[damage](damaged)
    name = damaged.relative_to(tmp_path / "graph").as_posix()
    source = Repository.open(str(tmp_path / "graph"), mode="r")
    report = backup(source, tmp_path / "backup", CopyOptions(skip_damaged=True))
    assert ([item.file for item in report.damaged], report.ok) == ([name], False)
    assert set(report.heads.values()) == expected
    copied, complete = (
        {path.relative_to(place).as_posix() for path in place.rglob("*.*") if path.parts[-3] != "__manifest"}
        for place in (tmp_path / "backup" / "nodes", tmp_path / "complete" / "nodes")
    )
    lost = complete - copied
    assert name.removeprefix("nodes/") in lost
    # A version that cannot be read does not name its files.
    assert kind == "version" or len(lost) == 1
    copy = opened(tmp_path / "backup")
    assert copy.snapshot().scan(CITY).num_rows == graph.snapshot().scan(CITY).num_rows
    # A backup without the option is refused as before, and one after a repair completes the backup.
    with pytest.raises(StorageError):
        backup(source, tmp_path / "backup")
    again = backup(source, tmp_path / "backup", CopyOptions(skip_damaged=True))
    assert ([item.file for item in again.damaged], again.published) == ([name], False)
    damaged.write_bytes(content)
    healed = backup(Repository.open(str(tmp_path / "graph"), mode="r"), tmp_path / "backup")
    assert (healed.ok, healed.published) == (True, True)
    assert states(opened(tmp_path / "backup")) == states(graph)


def test_restore_that_skips_damaged_files_gives_a_graph_with_all_intact_types(
    graph: Repository, tmp_path: Path
) -> None:
    backup(graph, tmp_path / "backup")
    head_version_file(opened(tmp_path / "backup"), PERSON).unlink()
    with pytest.raises(StorageError):
        restore(opened(tmp_path / "backup"), tmp_path / "refused")
    report = restore(opened(tmp_path / "backup"), tmp_path / "restored", CopyOptions(skip_damaged=True))
    assert len(report.damaged) == 1
    restored = opened(tmp_path / "restored")
    assert restored.snapshot().scan(CITY).num_rows == graph.snapshot().scan(CITY).num_rows
    change(restored, "more", key=CITY)


def test_backup_of_a_damaged_manifest_is_refused_also_if_damaged_files_are_skipped(
    graph: Repository, tmp_path: Path
) -> None:
    files = sorted((tmp_path / "graph" / "__manifest" / "data").glob("*.lance"))
    for path in files:
        path.unlink()
    with pytest.raises((StorageError, NotFound)):
        backup(graph, tmp_path / "backup", CopyOptions(skip_damaged=True))
    with pytest.raises(NotFound):
        opened(tmp_path / "backup")


def test_backup_whose_target_lost_a_file_is_not_published(graph: Repository, tmp_path: Path) -> None:
    def lose(_stage: str, _copied: int) -> None:
        files = list((tmp_path / "backup" / "nodes").rglob("data/*.lance"))
        if len(files) > 1:
            files[0].write_bytes(b"")

    with pytest.raises(StorageError, match=r"the copy of .* is wrong"):
        backup(graph, tmp_path / "backup", CopyOptions(progress=lose))
    with pytest.raises(NotFound):
        opened(tmp_path / "backup")


def test_full_verification_finds_altered_content_in_the_target(graph: Repository, tmp_path: Path) -> None:
    record_digests(graph)

    def alter(_stage: str, _copied: int) -> None:
        for path in (tmp_path / "backup" / "nodes").rglob("data/*.lance"):
            with path.open("r+b") as file:
                file.write(bytes(10))

    with pytest.raises(StorageError, match="not the recorded one"):
        backup(graph, tmp_path / "backup", CopyOptions(verify="full", progress=alter))
    with pytest.raises(NotFound):
        opened(tmp_path / "backup")
    assert backup(graph, tmp_path / "backup", CopyOptions(verify="full")).verified == "digests"
    assert states(opened(tmp_path / "backup")) == states(graph)


def test_full_verification_finds_an_altered_file_of_an_earlier_backup(
    graph: Repository, tmp_path: Path
) -> None:
    backup(graph, tmp_path / "backup")
    altered = a_data_file(tmp_path / "backup")
    with altered.open("r+b") as file:
        file.write(bytes(10))
    assert not backup(graph, tmp_path / "backup").published
    with pytest.raises(StorageError, match=altered.name):
        backup(graph, tmp_path / "backup", CopyOptions(verify="full"))


# --- restore and clone ------------------------------------------------------------------------------------


def test_restored_graph_has_the_same_id_and_states_and_can_be_written(
    graph: Repository, tmp_path: Path
) -> None:
    backup(graph, tmp_path / "backup")
    report = restore(opened(tmp_path / "backup"), tmp_path / "restored", CopyOptions(verify="full"))
    restored = opened(tmp_path / "restored")
    assert states(restored) == states(graph)
    assert heads(restored) == heads(graph) == report.heads
    assert report.graph_id == graph.manifest.registry(graph.manifest.view).graph_id
    change(restored, "written")
    merge(restored, "side")
    assert target_leases(tmp_path / "restored") == []


def test_restore_of_a_backup_since_a_commit_has_the_data_of_the_backup(tmp_path: Path) -> None:
    graph = new_graph(str(tmp_path / "graph"))
    commits = [overwrite(graph, f"p{number}") for number in range(4)]
    backup(graph, tmp_path / "backup", since=commits[2].id)
    restore(opened(tmp_path / "backup"), tmp_path / "restored")
    assert states(opened(tmp_path / "restored")) == states(opened(tmp_path / "backup"))


def test_clone_of_a_branch_has_its_state_and_history_and_an_id_of_its_own(
    graph: Repository, tmp_path: Path
) -> None:
    report = clone(graph, tmp_path / "clone", branch="side")
    copy = opened(tmp_path / "clone")
    side = [commit.id for commit in graph.commits("side")]
    assert list(copy.branches()) == ["main"]
    assert [commit.id for commit in copy.commits()] == side
    assert set(history(copy)) == set(side)
    assert {id_: rows for id_, rows in states(graph).items() if id_ in side} == states(copy)
    assert report.graph_id != graph.manifest.registry(graph.manifest.view).graph_id
    change(copy, "written")
    copy.create_branch("x")
    change(copy, "there", branch="x")


def test_clone_without_history_has_the_data_of_the_head_only(tmp_path: Path) -> None:
    graph = new_graph(str(tmp_path / "graph"))
    commits = [overwrite(graph, f"p{number}") for number in range(3)]
    clone(graph, tmp_path / "clone", history=False)
    copy = opened(tmp_path / "clone")
    assert [rows_at(copy, commit) == RECLAIMED for commit in commits] == [True, True, False]
    assert len(list(copy.commits())) == len(list(graph.commits()))


def test_clone_of_an_unknown_branch_is_refused(graph: Repository, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        clone(graph, tmp_path / "clone", branch="nowhere")


def test_restore_that_failed_is_completed_by_the_next_and_by_no_other(
    graph: Repository, tmp_path: Path
) -> None:
    backup(graph, tmp_path / "backup")
    source = opened(tmp_path / "backup")
    with pytest.raises(StorageError, match="planted"):
        restore(source, tmp_path / "restored", CopyOptions(progress=stop_after_data(tmp_path / "restored")))
    other = new_graph(str(tmp_path / "other"))
    with pytest.raises(Conflict, match="unfinished restore of another graph"):
        restore(other, tmp_path / "restored")
    report = restore(source, tmp_path / "restored")
    assert report.files_skipped > 0
    assert states(opened(tmp_path / "restored")) == states(graph)


def test_restore_interrupted_after_its_publish_is_reported_as_done(graph: Repository, tmp_path: Path) -> None:
    restore(graph, tmp_path / "restored")
    dead = replace(
        leases.Lease.new("restore", graph.manifest.registry(graph.manifest.view).graph_id), owner=None
    )
    opened(tmp_path / "restored").objects.put(leases.TARGET, dead.to_bytes())
    report = restore(graph, tmp_path / "restored")
    assert (report.published, report.files_copied, report.heads) == (False, 0, heads(graph))
    with pytest.raises(Conflict, match="restore does not replace it"):
        restore(graph, tmp_path / "restored")


def test_plain_copy_opens_as_a_graph_that_can_be_written(graph: Repository, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "graph", tmp_path / "copy")
    copy = opened(tmp_path / "copy")
    assert states(copy) == states(graph)
    change(copy, "written")

"""Garbage collection: removes unneeded files, reports them, and keeps all others."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.migration.evolve import evolve
from omnigraph.catalog.migration.planner import plan_migration
from omnigraph.errors import InvalidInput, NotFound, PermissionDenied, RecoveryRequired
from omnigraph.graph.publish import now_micros, publish
from omnigraph.graph.recovery.intents import Intent, IntentOwner
from omnigraph.graph.recovery.process_identity import process_start, this_machine
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared, WritePlan
from omnigraph.graph.write_request import WriteRequest
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.maintain.cleanup import CleanupReport, TypeCleanup, cleanup
from tests.maintain.graphs import (
    CITY,
    KNOWS,
    NO_GRACE,
    PERSON,
    RECLAIMED,
    change,
    history,
    new_graph,
    overwrite,
    reopened,
    rows_at,
    rows_of,
    table_files,
)


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    return new_graph(str(tmp_path / "g"))


def sweep(graph: Repository, *, keep: int | None = 1, confirm: bool = True) -> CleanupReport:
    return cleanup(graph, keep=keep, confirm=confirm, grace=NO_GRACE)


def of_type(report: CleanupReport, key: str) -> TypeCleanup:
    return next(item for item in report.datasets if item.type_key == key)


def make_old(graph: Repository, hours: float = 2) -> None:
    """Set the modification time of every table file to hours ago."""
    then = time.time() - hours * 3600
    for name in table_files(graph):
        os.utime(Path(graph.location.path) / name, (then, then))


def pending_intent(
    graph: Repository, transaction: Transaction, *, confirmed: bool, created_at: int | None = None
) -> Intent:
    """Write the intent of a bulk write of another process. The next write through `graph` would recover it."""
    head = transaction.head
    # The intent of a bulk write is older than its files.
    transaction.fence = None
    intent = Intent(
        id=transaction.commit_id,
        operation="load",
        actor=None,
        branch=head.branch,
        incarnation=head.incarnation,
        base=head.commit.id,
        owner=IntentOwner(this_machine(), os.getpid(), process_start(os.getpid())),
        created_at=created_at or now_micros(),
        plan=transaction.plan("load", "strict") if confirmed else None,
    )
    graph.intents.write(intent)
    return intent


def drop_plan(transaction: Transaction, key: str, catalog: Catalog) -> WritePlan:
    """Commit a schema without one of the types."""
    return replace(
        transaction.plan("schema apply", "strict"),
        drops=frozenset({str(transaction.base.table(key).id)}),
        schema=catalog.fingerprint.removeprefix("sha256:"),
        schema_payload=json.dumps(catalog.to_json()),
    )


# --- what goes and what stays ------------------------------------------------------------------------------


def test_cleanup_removes_old_versions_and_their_commits_report_it(graph: Repository) -> None:
    old = [overwrite(graph, f"p{number}") for number in range(3)]
    head = overwrite(graph, "last")
    before = rows_at(graph, head)
    report = sweep(graph)
    assert of_type(report, PERSON).old_versions_removed == 3
    fresh = reopened(graph)
    assert rows_at(fresh, head) == before
    assert [rows_at(fresh, commit) for commit in old] == [RECLAIMED] * 3
    assert {commit.id for commit in old} <= {commit.id for commit in fresh.commits()}


def test_scan_of_reclaimed_commit_is_refused(graph: Repository) -> None:
    old = overwrite(graph, "a")
    overwrite(graph, "b")
    sweep(graph)
    with pytest.raises(Exception, match="was reclaimed by cleanup"):
        list(reopened(graph).snapshot(at=old.id).scan_batches(PERSON))


def test_create_branch_at_reclaimed_commit_is_refused(graph: Repository) -> None:
    old = overwrite(graph, "a")
    overwrite(graph, "b")
    sweep(graph)
    with pytest.raises(NotFound, match="was reclaimed by cleanup"):
        graph.create_branch("archaeology", at=old.id)
    assert list(graph.branches()) == ["main"]


def test_cleanup_keeps_exactly_the_files_of_the_head(graph: Repository) -> None:
    for number in range(3):
        overwrite(graph, f"p{number}")
    sweep(graph)
    person = graph.snapshot().pin(PERSON)
    left = {
        name.removeprefix(person.path + "/") for name in table_files(graph) if name.startswith(person.path)
    }
    kinds = sorted(name.split("/")[0] for name in left)
    # The HEAD lineage with its transaction, and the head version with its transaction and one data file.
    assert kinds == ["_transactions", "_transactions", "_versions", "_versions", "_versions", "data"]


def test_cleanup_keeps_unchanged_types_of_old_commits_readable(graph: Repository) -> None:
    change(graph, "here", key=CITY)
    old = overwrite(graph, "a")
    overwrite(graph, "b")
    sweep(graph)
    snapshot = reopened(graph).snapshot(at=old.id)
    assert snapshot.scan(CITY).num_rows == 1
    with pytest.raises(Exception, match="reclaimed"):
        snapshot.scan(PERSON)


def test_cleanup_run_twice_removes_nothing_the_second_time(graph: Repository) -> None:
    for number in range(5):
        change(graph, f"p{number}", delete=[f"p{number - 1}"])
    assert sweep(graph).files_removed > 0
    left = table_files(graph)
    again = sweep(graph)
    assert (again.files_removed, again.bytes_removed, again.old_versions_removed) == (0, 0, 0)
    assert table_files(graph) == left


def test_cleanup_preview_removes_nothing_and_predicts_the_counts(graph: Repository) -> None:
    for number in range(4):
        overwrite(graph, f"p{number}")
        change(graph, f"c{number}", key=CITY)
    before = table_files(graph)
    predicted = sweep(graph, confirm=False)
    assert table_files(graph) == before
    assert not predicted.confirmed
    assert sweep(graph) == replace(predicted, confirmed=True)


def test_cleanup_counts_equal_the_removed_files(graph: Repository) -> None:
    for number in range(4):
        overwrite(graph, f"p{number}")
        change(graph, f"c{number}", key=CITY)
    before = table_files(graph)
    report = sweep(graph)
    gone = {name: size for name, size in before.items() if name not in table_files(graph)}
    paths = {PERSON: graph.snapshot().pin(PERSON).path, CITY: graph.snapshot().pin(CITY).path}
    assert report.files_removed == len(gone)
    assert report.bytes_removed == sum(gone.values())
    for key, path in paths.items():
        mine = {name: size for name, size in gone.items() if name.startswith(path + "/")}
        assert of_type(report, key).files_removed == len(mine)
        assert of_type(report, key).bytes_removed == sum(mine.values())
        assert of_type(report, key).old_versions_removed == sum("/_versions/" in name for name in mine)
    assert of_type(report, KNOWS) == TypeCleanup(KNOWS)


def test_cleanup_report_has_a_row_for_every_type(graph: Repository) -> None:
    assert [item.type_key for item in sweep(graph).datasets] == [CITY, PERSON, KNOWS]


def test_cleanup_keeps_the_heads_and_history_of_other_branches(graph: Repository) -> None:
    first = overwrite(graph, "a")
    graph.create_branch("side")
    on_side = [overwrite(graph, f"s{number}", branch="side") for number in range(2)]
    graph.create_branch("still", at=first.id)
    for number in range(3):
        overwrite(graph, f"m{number}")
    before = {commit.id: rows_at(graph, commit) for commit in (first, *on_side)}
    sweep(graph)
    fresh = reopened(graph)
    assert rows_at(fresh, first) == before[first.id]
    assert rows_at(fresh, on_side[1]) == before[on_side[1].id]
    assert rows_at(fresh, on_side[0]) == RECLAIMED
    graph.delete_branch("side")
    graph.delete_branch("still")
    sweep(graph)
    fresh = reopened(graph)
    assert rows_at(fresh, first) == rows_at(fresh, on_side[1]) == RECLAIMED


def test_cleanup_with_both_limits_removes_commits_beyond_both(graph: Repository) -> None:
    commits = [overwrite(graph, f"p{number}") for number in range(4)]
    cleanup(graph, keep=1, older_than="1h", confirm=True, grace=NO_GRACE)
    assert all(rows_at(reopened(graph), commit) != RECLAIMED for commit in commits)
    cleanup(graph, keep=3, older_than="0s", confirm=True, grace=NO_GRACE)
    assert [rows_at(reopened(graph), item) == RECLAIMED for item in commits] == [True, False, False, False]
    cleanup(graph, older_than="0s", confirm=True, grace=NO_GRACE)
    assert [rows_at(reopened(graph), item) == RECLAIMED for item in commits] == [True, True, True, False]


def test_cleanup_keep_more_than_remain_succeeds(graph: Repository) -> None:
    for number in range(4):
        overwrite(graph, f"p{number}")
    sweep(graph)
    head = overwrite(graph, "new")
    report = sweep(graph, keep=100)
    assert (report.files_removed, [item.error for item in report.datasets]) == (0, [None] * 3)
    assert rows_at(reopened(graph), head) != RECLAIMED


def test_write_after_cleanup_succeeds(graph: Repository) -> None:
    for number in range(3):
        change(graph, f"p{number}")
    sweep(graph)
    change(graph, "more", delete=["p0"])
    writer = Repository.open(graph.location.uri, durability="os")
    change(writer, "again")
    assert {row["id"] for row in writer.snapshot().scan(PERSON).to_pylist()} == {"p1", "p2", "more", "again"}


# --- what is not pinned by any commit ------------------------------------------------------------------------


def test_cleanup_removes_unpublished_files_after_the_grace(graph: Repository) -> None:
    before = set(table_files(graph))
    transaction = graph.begin()
    transaction.stage(PERSON, insert=rows_of(transaction.base.catalog, PERSON, ["a"]))
    assert set(table_files(graph)) > before
    assert cleanup(graph, keep=1, confirm=True).files_removed == 0
    assert sweep(graph).files_removed == 3
    assert set(table_files(graph)) == before


def test_cleanup_with_grace_keeps_the_files_of_a_running_write(graph: Repository) -> None:
    overwrite(graph, "a")
    transaction = graph.begin()
    transaction.stage(PERSON, insert=rows_of(transaction.base.catalog, PERSON, ["b"]))
    cleanup(reopened_for_writing(graph), keep=1, confirm=True)
    head = publish(graph.manifest, transaction.plan("insert", "insert")).commit
    assert rows_at(reopened(graph), head) != RECLAIMED


def reopened_for_writing(graph: Repository) -> Repository:
    return Repository.open(graph.location.uri, durability="os")


def test_cleanup_keeps_commit_that_was_current_within_the_grace(graph: Repository) -> None:
    """A reader or a writer may still use a commit that was a head recently."""
    old = overwrite(graph, "a")
    head = overwrite(graph, "b")
    make_old(graph)
    assert cleanup(graph, keep=1, confirm=True).files_removed == 0
    assert rows_at(reopened(graph), old) != RECLAIMED
    time.sleep(0.02)
    assert cleanup(graph, keep=1, confirm=True, grace=timedelta(milliseconds=10)).files_removed > 0
    assert rows_at(reopened(graph), old) == RECLAIMED
    assert rows_at(reopened(graph), head) != RECLAIMED


def test_cleanup_removes_the_folder_of_a_dropped_type(graph: Repository) -> None:
    change(graph, "here", key=CITY)
    dropped = graph.snapshot()
    path = dropped.pin(CITY).path
    text = "node Person { age: I32? }\nedge Knows: Person -> Person"
    desired = load_schema(text)
    catalog = evolve(
        dropped.catalog, desired, text, plan_migration(dropped.catalog, desired, allow_data_loss=True)
    )
    transaction = graph.begin()
    publish(graph.manifest, drop_plan(transaction, CITY, catalog))
    report = sweep(graph, keep=2)
    assert of_type(report, CITY).files_removed == 0
    report = sweep(graph, keep=1)
    assert of_type(report, CITY).old_versions_removed == 2
    assert not (Path(graph.location.path) / path).exists()
    assert rows_at(reopened(graph), dropped.commit) == RECLAIMED
    assert [item.type_key for item in sweep(graph).datasets] == [PERSON, KNOWS]


def test_cleanup_of_tables_of_a_lost_initialization_is_all_or_nothing(graph: Repository) -> None:
    path = "nodes/1-lost"
    graph.tables.create(path, rows_of(graph.snapshot().catalog, PERSON, []).schema)
    folder = Path(graph.location.path) / path
    version = next((folder / "_versions").glob("*.manifest"))
    make_old(graph)
    os.utime(version)
    assert cleanup(graph, keep=1, confirm=True).files_removed == 0
    make_old(graph)
    predicted = cleanup(graph, keep=1)
    assert of_type(predicted, path).files_removed == 3
    assert cleanup(graph, keep=1, confirm=True) == replace(predicted, confirmed=True)
    assert not folder.exists()


def test_cleanup_keeps_files_of_unknown_kind(graph: Repository) -> None:
    stranger = Path(graph.location.path) / graph.snapshot().pin(PERSON).path / "notes.txt"
    stranger.write_text("not ours")
    assert sweep(graph).files_removed == 0
    assert stranger.exists()


# --- intents -------------------------------------------------------------------------------------------------


def test_cleanup_keeps_base_and_staged_files_of_a_running_bulk_write(graph: Repository) -> None:
    overwrite(graph, "a")
    seen: list[int] = []

    def prepare(transaction: Transaction) -> Prepared[None]:
        other = reopened_for_writing(graph)
        transaction.stage(PERSON, insert=rows_of(transaction.base.catalog, PERSON, ["bulk"]))
        overwrite(other, "unrelated", key=CITY)
        seen.append(sweep(other).files_removed)
        transaction.stage(KNOWS, insert=rows_of(transaction.base.catalog, KNOWS, ["e"]))
        return Prepared("strict", None)

    receipt, _ = graph.write("main", WriteRequest("load", bulk=True), prepare)
    assert receipt is not None
    assert seen == [0]
    assert rows_at(reopened(graph), receipt.commit) != RECLAIMED


@pytest.fixture
def confirmed(graph: Repository) -> Iterator[tuple[Transaction, Intent]]:
    """Return a complete, unpublished plan with files older than the grace period."""
    overwrite(graph, "a")
    overwrite(graph, "b")
    transaction = graph.begin()
    transaction.stage(PERSON, insert=rows_of(transaction.base.catalog, PERSON, ["bulk"]))
    intent = pending_intent(graph, transaction, confirmed=True)
    make_old(graph)
    yield transaction, intent
    graph.intents.remove(intent.id)


def test_cleanup_keeps_the_files_of_a_confirmed_intent(
    graph: Repository, confirmed: tuple[Transaction, Intent]
) -> None:
    transaction, _ = confirmed
    sweep(graph)
    receipt = publish(graph.manifest, transaction.plan("load", "strict"))
    found = rows_at(reopened(graph), receipt.commit)
    assert isinstance(found, dict)
    assert [row[0] for row in found[PERSON]] == ["b", "bulk"]


def test_cleanup_removes_staged_files_without_an_intent(
    graph: Repository, confirmed: tuple[Transaction, Intent]
) -> None:
    graph.intents.remove(confirmed[1].id)
    sweep(graph)
    path = confirmed[0].pin(PERSON)
    assert not (Path(graph.location.path) / path.path / "_versions" / f"d{path.version}.manifest").exists()


def test_cleanup_keeps_the_base_commit_of_an_intent(graph: Repository) -> None:
    overwrite(graph, "a")
    transaction = graph.begin()
    overwrite(graph, "b")
    overwrite(graph, "c")
    intent = pending_intent(graph, transaction, confirmed=False)
    sweep(graph)
    assert rows_at(reopened(graph), transaction.base.commit) != RECLAIMED
    graph.intents.remove(intent.id)
    sweep(graph)
    assert rows_at(reopened(graph), transaction.base.commit) == RECLAIMED


@pytest.mark.parametrize("hours", [-2, 0, 2], ids=["behind", "equal", "ahead"])
def test_cleanup_keeps_files_younger_than_a_pending_intent_whatever_the_clock_of_its_owner(
    graph: Repository, hours: int
) -> None:
    began = time.time()
    time.sleep(0.02)
    overwrite(graph, "a")
    overwrite(graph, "b")
    stray = graph.begin()
    stray.stage(PERSON, insert=rows_of(stray.base.catalog, PERSON, ["x"]))
    created_at = now_micros() + hours * 3_600_000_000
    intent = pending_intent(graph, stray, confirmed=False, created_at=created_at)
    os.utime(Path(graph.location.path) / f"__recovery/{intent.id}.json", (began, began))
    assert sweep(graph).files_removed == 0
    graph.intents.remove(intent.id)
    assert sweep(graph).files_removed > 0


def test_cleanup_with_unreadable_intent_removes_nothing(graph: Repository) -> None:
    overwrite(graph, "a")
    overwrite(graph, "b")
    graph.objects.put("__recovery/01BROKEN.json", b"{")
    before = table_files(graph)
    with pytest.raises(RecoveryRequired):
        sweep(graph)
    assert table_files(graph) == before


# --- errors and limits ---------------------------------------------------------------------------------------


def test_cleanup_with_missing_head_version_reports_and_skips_the_type(graph: Repository) -> None:
    for key in (PERSON, CITY):
        overwrite(graph, "a", key=key)
        overwrite(graph, "b", key=key)
    pin = graph.snapshot().pin(CITY)
    (Path(graph.location.path) / pin.path / "_versions" / f"d{pin.version}.manifest").unlink()
    before = {name for name in table_files(graph) if name.startswith(pin.path)}
    report = sweep(reopened_for_writing(graph))
    assert "the head of branch 'main' needs version" in str(of_type(report, CITY).error)
    assert of_type(report, CITY).files_removed == 0
    assert {name for name in table_files(graph) if name.startswith(pin.path)} == before
    assert of_type(report, PERSON).error is None
    assert of_type(report, PERSON).old_versions_removed == 1


def test_cleanup_with_unlistable_table_continues_with_the_others(graph: Repository) -> None:
    for key in (PERSON, CITY, KNOWS):
        overwrite(graph, "a", key=key)
        overwrite(graph, "b", key=key)
    loop = Path(graph.location.path) / graph.snapshot().pin(CITY).path / "data" / "loop"
    loop.symlink_to(loop)
    report = sweep(graph)
    assert "cannot list" in str(of_type(report, CITY).error)
    assert of_type(report, CITY).files_removed == 0
    assert [of_type(report, key).old_versions_removed for key in (PERSON, KNOWS)] == [1, 1]


def test_cleanup_with_unlistable_folder_reports_it(graph: Repository) -> None:
    loop = Path(graph.location.path) / "nodes" / "loop"
    loop.symlink_to(loop)
    report = sweep(graph)
    assert [item.type_key for item in report.datasets if item.error] == ["nodes"]


def test_cleanup_without_limit_is_refused(graph: Repository) -> None:
    with pytest.raises(InvalidInput, match="cleanup requires at least one of --keep or --older-than"):
        cleanup(graph)


def test_cleanup_with_negative_grace_is_refused(graph: Repository) -> None:
    with pytest.raises(InvalidInput, match="grace"):
        cleanup(graph, keep=1, grace=timedelta(seconds=-1))


def test_cleanup_in_read_mode_allows_the_preview_only(graph: Repository) -> None:
    overwrite(graph, "a")
    overwrite(graph, "b")
    reader = reopened(graph)
    assert sweep(reader, confirm=False).files_removed > 0
    with pytest.raises(PermissionDenied):
        sweep(reader)


def test_cleanup_in_memory_removes_nothing() -> None:
    graph = new_graph("memory://cleanup-test")
    overwrite(graph, "a")
    overwrite(graph, "b")
    report = sweep(graph)
    assert report.datasets == (TypeCleanup(CITY), TypeCleanup(PERSON), TypeCleanup(KNOWS))


def test_cleanup_removes_idempotency_keys_by_age_only(graph: Repository) -> None:
    def prepare(transaction: Transaction) -> Prepared[None]:
        transaction.stage(PERSON, insert=rows_of(transaction.base.catalog, PERSON, ["a"]))
        return Prepared("insert", None)

    graph.write("main", WriteRequest("insert", idempotency_key="k"), prepare)
    assert sweep(graph).objects_removed == 0
    assert cleanup(graph, older_than="1h", confirm=True, grace=NO_GRACE).objects_removed == 0
    assert cleanup(graph, older_than="0", confirm=True).objects_removed == 0
    assert cleanup(graph, older_than="0", grace=NO_GRACE).objects_removed == 1
    assert cleanup(graph, older_than="0", confirm=True, grace=NO_GRACE).objects_removed == 1
    assert not graph.objects.exists_any("__idempotency")


def test_cleanup_removes_remains_of_ended_intents_and_keeps_pending_ones(graph: Repository) -> None:
    intent = pending_intent(graph, graph.begin(), confirmed=False)
    for id_ in (intent.id, "01ENDED"):
        graph.objects.put(f"__recovery/{id_}.lease", b"0")
        graph.objects.put(f"__recovery/{id_}.outcome", b"discarded")
    assert sweep(graph).objects_removed == 0
    graph.intents.remove(intent.id)
    assert sweep(graph).objects_removed == 2
    assert not graph.objects.exists_any("__recovery")


def test_cleanup_removes_no_file_of_the_manifest(graph: Repository) -> None:
    folder = Path(graph.location.path) / "__manifest"
    for number in range(3):
        overwrite(graph, f"p{number}")
    before = {path.name for path in folder.rglob("*")}
    assert sweep(graph).files_removed
    assert before < {path.name for path in folder.rglob("*")}
    assert len(history(reopened(graph))) == 4

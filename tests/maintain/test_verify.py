"""Verification: every kind of damage to every kind of file is found and described."""

from __future__ import annotations

import pickle
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace as with_fields
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import NotFound
from omnigraph.graph.open_storage import connect
from omnigraph.graph.publish import publish
from omnigraph.graph.repository import Repository
from omnigraph.graph.write_plan import TableWrite, WritePlan
from omnigraph.maintain.verification.tasks import FileTask, RowTask
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.records import CommitRecord, HeadRecord
from tests.maintain.damage import (
    DAMAGES,
    build_graph,
    delete,
    find_damage,
    flip_bit,
    truncate,
    verify_path,
)

PERSON, DOC, KNOWS = "node:Person", "node:Doc", "edge:Knows"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "g"
    build_graph(path)
    return path


@pytest.fixture
def graph(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "g"))


def handle(path: Path) -> og.LocalGraph:
    return og.open(path, durability="os")


def pinned(path: Path, key: str, branch: str = "main") -> tuple[Path, int]:
    """Return the directory and the version of a table at the head of a branch."""
    with og.open(path, "r") as opened:
        pin = opened.snapshot(branch=branch).pin(key)
    return path / pin.path, pin.version


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def head_commit(path: Path, branch: str = "main") -> str:
    with og.open(path, "r") as opened:
        return opened.commits(branch=branch)[0].id


def test_verify_undamaged_graph_reports_what_was_checked(graph: Path) -> None:
    report = verify_path(graph)
    assert report.ok
    assert report.commits == 3
    assert report.versions == 5
    assert report.rows == 12 + 13 + 4 + 3 + 6
    assert report.bytes_read > 200_000
    assert report.not_recorded == 0
    assert [(state.branch, state.intact) for state in report.branches] == [
        ("deep", True),
        ("main", True),
        ("work", True),
    ]


def test_verify_all_commits_checks_more_versions_and_shares_files(graph: Path) -> None:
    heads, everything = verify_path(graph), verify_path(graph, all_commits=True)
    assert everything.ok
    assert everything.commits == 11
    assert everything.versions > heads.versions
    # Every file is read once, however many commits share it.
    stored = sum(file.stat().st_size for file in graph.rglob("*") if file.is_file())
    assert heads.bytes_read < everything.bytes_read < stored


def test_verify_quick_reads_no_contents_and_finds_wrong_sizes(graph: Path) -> None:
    folder, _ = pinned(graph, KNOWS)
    file = only(folder, "data/*")
    flip_bit(file)
    assert verify_path(graph, quick=True).ok
    truncate(file)
    report = verify_path(graph, quick=True)
    assert report.bytes_read == 0
    assert [(item.kind, item.type_key) for item in report.damage] == [("truncated", KNOWS)]


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize(
    "pattern",
    [
        "edges/*/data/*.lance",
        "nodes/2-*/_deletions/*.arrow",
        "edges/*/_indices/*/page_data.lance",
        "__manifest/data/registry-*.lance",
    ],
)
def test_verify_damaged_file_names_it(graph: Path, pattern: str, how: str) -> None:
    # The last registry is the current one.
    file = sorted(graph.glob(pattern))[-1]
    DAMAGES[how](file)
    found = find_damage(verify_path(graph), str(file.relative_to(graph)))
    assert found is not None
    assert found.kind == {"deleted": "missing", "truncated": "truncated"}.get(how, "altered")
    assert found.remedy


def test_verify_damaged_data_file_names_type_branches_and_commits(graph: Path) -> None:
    folder, _ = pinned(graph, KNOWS)
    file = only(folder, "data/*")
    flip_bit(file)
    (found,) = verify_path(graph).damage
    assert (found.kind, found.type_key, found.property, found.rows) == ("altered", KNOWS, None, 6)
    assert found.branches == ("deep", "main", "work")
    with handle(graph) as opened:
        needing = {item.id for item in opened.commits() if item.operation != "init"}
        needing |= {item.id for item in opened.commits(branch="deep") if item.operation != "init"}
        first = next(item.id for item in reversed(opened.commits()) if item.operation == "load")
    assert set(found.commits) == needing - {first}
    assert found.commit_count == len(found.commits)


def test_verify_damage_of_one_branch_leaves_the_others_intact(graph: Path) -> None:
    folder, version = pinned(graph, PERSON, "deep")
    file = folder / version_file(version)
    delete(file)
    report = verify_path(graph)
    (found,) = report.damage
    assert (found.kind, found.branches, found.commits) == (
        "missing",
        ("deep",),
        (head_commit(graph, "deep"),),
    )
    states = {state.branch: state for state in report.branches}
    assert states["main"].intact
    assert not states["deep"].intact
    with handle(graph) as opened:
        assert states["deep"].newest_intact == opened.commits(branch="work")[0].id
    assert verify_path(graph, branch="main").ok


def test_verify_damaged_file_of_one_column_names_the_property(graph: Path) -> None:
    folder, _ = pinned(graph, PERSON)
    # The backfilled column is in the smallest data file.
    file = min(folder.glob("data/*"), key=lambda item: item.stat().st_size)
    flip_bit(file)
    (found,) = verify_path(graph).damage
    assert (found.type_key, found.property) == (PERSON, "email")


def test_verify_damaged_head_file_names_the_branch_and_its_last_commit(graph: Path) -> None:
    last = head_commit(graph)
    with og.open(graph, "r") as opened:
        incarnation = opened._repository.branches()["main"].incarnation
    file = max(graph.glob(f"__manifest/data/head-{incarnation}-*"))
    truncate(file)
    report = verify_path(graph)
    (found,) = report.damage
    assert (found.file, found.branches, found.commits) == (str(file.relative_to(graph)), ("main",), (last,))
    state = next(item for item in report.branches if item.branch == "main")
    assert (state.head, state.intact, state.newest_intact) == (None, False, last)


def test_verify_newest_manifest_version_deleted_is_found(graph: Path) -> None:
    # Only the log of digests names the version that creates a branch.
    with handle(graph) as opened:
        opened.branches.create("later")
    newest = min(graph.glob("__manifest/_versions/*.manifest"))
    delete(newest)
    found = find_damage(verify_path(graph), str(newest.relative_to(graph)))
    assert found is not None
    assert found.kind == "missing"


def test_verify_newest_manifest_version_unreadable_falls_back_to_the_one_before(graph: Path) -> None:
    newest = min(graph.glob("__manifest/_versions/*.manifest"))
    newest.write_bytes(b"")
    report = verify_path(graph)
    assert find_damage(report, str(newest.relative_to(graph))) is not None
    assert len(report.branches) == 3


@pytest.mark.parametrize("how", DAMAGES)
def test_verify_transaction_file_of_the_manifest_is_compared_with_its_copy(graph: Path, how: str) -> None:
    newest = max(graph.glob("__manifest/_transactions/*.txn"), key=lambda item: int(item.name.split("-")[0]))
    DAMAGES[how](newest)
    assert find_damage(verify_path(graph), str(newest.relative_to(graph))) is not None


def test_verify_no_graph_raises_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no graph"):
        verify_path(tmp_path / "nothing")


def test_verify_unknown_branch_raises_not_found(graph: Path) -> None:
    with pytest.raises(NotFound, match="branch 'other' not found"):
        verify_path(graph, branch="other")


# --- rows and lineage ---------------------------------------------------------------------------------------


def publish_tables(path: Path, change: dict[str, TableWrite]) -> None:
    """Publish table versions without the checks of a write."""
    repository = Repository.open(path, durability="os")
    transaction = repository.begin()
    base = transaction.base.commit
    plan = WritePlan(
        transaction.commit_id,
        "main",
        base.incarnation,
        base.id,
        base.schema,
        base.tables,
        "test",
        "strict",
        change,
    )
    publish(repository.manifest, plan)
    repository.close()


def staged(path: Path, key: str, **changes: list[str]) -> tuple[str, TableWrite]:
    """Stage one more row of a type: a copy of another row with some values changed."""
    repository = Repository.open(path, durability="os")
    snapshot = repository.snapshot()
    pin = snapshot.pin(key)
    row = repository.tables.scan(pin, limit=1)
    for name, values in changes.items():
        at = row.schema.get_field_index(name)
        row = row.set_column(at, row.schema.field(at), pa.array(values, row.schema.field(at).type))
    staged = repository.tables.stage(pin, insert=row)
    repository.close()
    write = TableWrite(pin.path, pin.version, staged.version, staged.rows)
    return str(snapshot.table(key).id), write


def test_verify_duplicate_id_is_reported_with_the_id(graph: Path) -> None:
    publish_tables(graph, dict([staged(graph, DOC, id=["same"])]))
    assert verify_path(graph).ok
    publish_tables(graph, dict([staged(graph, DOC, id=["same"])]))
    (found,) = verify_path(graph).damage
    assert (found.kind, found.type_key, found.rows) == ("duplicate_id", DOC, 1)
    assert "'same'" in found.problem


def test_verify_repeated_unique_value_is_reported(graph: Path) -> None:
    with og.open(graph, "r") as opened:
        email = opened.snapshot().table(PERSON).physical("email")
    publish_tables(graph, dict([staged(graph, PERSON, id=["new"], **{email: ["p1"]})]))
    (found,) = verify_path(graph).damage
    assert found.kind == "duplicate_id"
    assert "'p1'" in found.problem


def test_verify_edge_without_a_node_is_reported(graph: Path) -> None:
    publish_tables(graph, dict([staged(graph, KNOWS, id=["lone"], src=["p1"], dst=["nobody"])]))
    (found,) = verify_path(graph).damage
    assert (found.kind, found.type_key, found.rows, found.branches) == ("dangling_edge", KNOWS, 1, ("main",))
    assert "'lone'" in found.problem


def test_verify_edge_id_that_the_key_does_not_give_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "keyed"
    with og.init(path, "node P { name: String @key }\nedge Knows: P -> P { @key(src, dst) }") as keyed:
        keyed.load({"P": [{"name": "a"}], "Knows": [{"from": "a", "to": "a"}]}, "append")
    assert verify_path(path).ok
    publish_tables(path, dict([staged(path, KNOWS, id=["made-up"])]))
    (found,) = verify_path(path).damage
    assert (found.kind, found.type_key, found.rows) == ("wrong_id", KNOWS, 1)
    assert "'made-up'" in found.problem


def test_verify_wrong_number_of_rows_is_reported(graph: Path) -> None:
    table, write = staged(graph, DOC, id=["x"])
    publish_tables(graph, {table: with_fields(write, rows=99)})
    for quick in (True, False):
        (found,) = verify_path(graph, quick=quick).damage
        assert (found.kind, found.type_key, found.rows) == ("rows", DOC, 94)


def swap(path: Path, change: ManifestChange) -> None:
    repository = Repository.open(path, durability="os")
    view = repository.manifest.refresh()
    repository.manifest.replace_heads_if_equal(view, [repository.head()], change)
    repository.close()


def main_head(path: Path) -> HeadRecord:
    repository = Repository.open(path, durability="os")
    try:
        return repository.head()
    finally:
        repository.close()


def broken_commits(head: CommitRecord) -> Iterator[tuple[str, CommitRecord]]:
    base = with_fields(head, id="7ZZZZZZZZZZZZZZZZZZZZZZZZZ", parent=head.id, sequence=head.sequence + 1)
    base = with_fields(base, created_at=head.created_at + 1, merged_parent=None)
    yield "does not exist", with_fields(base, parent="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    yield "sequence number", with_fields(base, sequence=head.sequence + 5)
    yield "not newer", with_fields(base, created_at=head.created_at)
    yield "missing or cannot be parsed", with_fields(base, schema="0" * 64)


@pytest.mark.parametrize("case", range(4))
def test_verify_broken_lineage_is_reported(graph: Path, case: int) -> None:
    head = main_head(graph)
    problem, commit = list(broken_commits(head.commit))[case]
    swap(graph, ManifestChange(heads=[with_fields(head, commit=commit)], commits=[commit]))
    problems = [item.problem for item in verify_path(graph, quick=True).damage]
    assert any(problem in text for text in problems), problems


def test_verify_head_that_differs_from_its_commit_row_is_reported(graph: Path) -> None:
    head = main_head(graph)
    swap(graph, ManifestChange(heads=[with_fields(head, commit=with_fields(head.commit, message="other"))]))
    (found,) = verify_path(graph, quick=True).damage
    assert (found.kind, found.branches) == ("lineage", ("main",))
    swap(
        graph, ManifestChange(heads=[with_fields(main_head(graph), commit=with_fields(head.commit, id="7Z"))])
    )
    (found,) = verify_path(graph, quick=True).damage
    assert "has no row in the log" in found.problem


# --- digests, garbage collection, tasks ---------------------------------------------------------------------


def test_verify_record_adds_digests_of_undamaged_files_only(tmp_path: Path) -> None:
    other = og.init(tmp_path / "old", schema="node City { name: String @key }", durability="os")
    other.load({"City": [{"name": "Bern"}]})
    path = Path(other.uri)
    strip_digests(path)
    before = verify_path(path)
    assert before.ok
    assert before.not_recorded > 0
    truncate(only(path, "nodes/*/data/*"))
    assert verify_path(path, record=True).recorded == 0


def strip_digests(path: Path) -> None:
    """Publish a head whose tables have no recorded digest, as in a graph of an earlier format."""
    repository = Repository.open(path, durability="os")
    snapshot = repository.snapshot()
    pin = snapshot.pin("node:City")
    staged = repository.tables.stage(pin, delete_ids=["nothing"])
    repository.close()
    write = TableWrite(pin.path, pin.version, staged.version, staged.rows)
    publish_tables(path, {str(snapshot.table("node:City").id): write})


def test_verify_after_garbage_collection_counts_reclaimed_commits(graph: Path) -> None:
    with handle(graph) as opened:
        opened.cleanup(keep=1, confirm=True, grace="0s")
    report = verify_path(graph, all_commits=True)
    assert report.ok
    assert report.reclaimed > 0


def test_verify_deleted_version_of_an_old_commit_is_not_taken_for_reclaimed(graph: Path) -> None:
    with og.open(graph, "r") as opened:
        old = opened.snapshot(at=opened.commits()[-2].id).pin(PERSON)
    file = graph / old.path / version_file(old.version)
    delete(file)
    assert verify_path(graph).ok
    report = verify_path(graph, all_commits=True)
    assert [item.file for item in report.damage] == [str(file.relative_to(graph))]
    assert report.reclaimed == 0


def test_verify_copy_without_transaction_files_of_the_manifest_is_undamaged(graph: Path) -> None:
    shutil.rmtree(graph / "__manifest" / "_transactions")
    assert verify_path(graph).ok


def test_verify_beside_a_writer_reports_no_damage(tmp_path: Path) -> None:
    writer = og.init(tmp_path / "g", schema="node City { name: String @key }", durability="os")
    done = threading.Event()

    def write() -> None:
        for number in range(25):
            writer.load({"City": [{"name": f"c{number}"}]})
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    reports = [verify_path(tmp_path / "g", quick=True)]
    while not done.is_set():
        reports.append(verify_path(tmp_path / "g", quick=True))
    thread.join()
    assert [item for report in reports for item in report.damage] == []
    assert reports[-1].ok


def test_verify_tasks_run_in_another_process_with_the_address_only(graph: Path) -> None:
    _, root, _ = connect(graph, None, "os")
    copied = pickle.loads(pickle.dumps(root))
    assert isinstance(copied, LanceRoot)
    with og.open(graph, "r") as opened:
        pin = opened.snapshot().pin(PERSON)
    task = pickle.loads(pickle.dumps(RowTask(pin)))
    assert task.run(copied) == []
    assert FileTask.__slots__, "tasks are small"


def test_verify_handle_reads_storage_and_not_its_caches(graph: Path) -> None:
    with handle(graph) as opened:
        assert opened.query("query q() { match { $k: Person } return { count($k) as n } }")
        assert opened.verify().ok
        folder, _ = pinned(graph, PERSON)
        for file in folder.glob("data/*"):
            flip_bit(file)
        assert not opened.verify().ok

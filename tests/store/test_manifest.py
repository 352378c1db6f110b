"""`__manifest`: fragments of replaceable rows, the compare-and-swap, and the compaction of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph.errors import StorageError
from omnigraph.store.lance.lance_files import get_fragment
from omnigraph.store.manifest import branch_swaps, bucket_entries, name_buckets, row_files
from omnigraph.store.manifest import manifest as manifest_module
from omnigraph.store.manifest.branch_swaps import (
    create_branch_if_absent,
    delete_branch_if_equals,
    fold_heads,
    needs_fold,
)
from omnigraph.store.manifest.manifest import LOG_COMPACT_AT, Manifest, NotAGraph, SwapLost
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_files import BUCKETS, new_id
from omnigraph.store.manifest.manifest_init import begin_init
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import BranchEntry, CommitRecord, RecoveryRecord, TablePin
from tests.support.manifests import SCHEMA, child, first_change, head_of, make_manifest, move, reopen
from tests.support.places import fresh_memory, lance_root, together


def kinds(view: ManifestView) -> dict[str, int]:
    """Return the number of fragments of each kind in a view."""
    found: dict[str, int] = {}
    for file in view.files:
        found[file.kind] = found.get(file.kind, 0) + 1
    return found


def stored_rows(view: ManifestView, kind: str) -> list[list[str]]:
    """Read the row keys of every fragment of a kind from storage."""
    files = view.of_kind(kind)
    tables = [get_fragment(view.dataset, file.fragment).to_table() for file in files]
    return [table["key"].to_pylist() for table in tables]


# --- what stands in which fragment ----------------------------------------------------------------------


def test_manifest_registry_and_heads_have_their_own_fragments(uri: str) -> None:
    manifest = make_manifest(uri, ["main", "a", "b"])
    for branch in ("main", "a", "main", "b"):
        move(manifest, manifest.view, branch)
    view = reopen(manifest).view
    assert stored_rows(view, "registry") == [["registry"]]
    assert sorted(stored_rows(view, "head")) == [["head:a"], ["head:b"], ["head:main"]]
    assert kinds(view) == {"registry": 1, "branches": 1, "head": 3, "commit": 5, "schema": 1}


def test_publish_adds_one_log_fragment_and_replaces_one_head(uri: str) -> None:
    manifest = make_manifest(uri, ["main", "other"])
    before = {file.name for file in manifest.view.files}
    record = move(manifest, manifest.view)
    after = {file.name for file in manifest.view.files}
    gone, new = before - after, after - before
    assert [name.split("-")[0] for name in gone] == ["head"]
    assert sorted(name.split("-")[0] for name in new) == ["commit", "head"]
    assert any(record.id in name for name in new)


def test_head_that_a_handle_wrote_equals_the_stored_one(uri: str) -> None:
    manifest = make_manifest(uri)
    head = head_of(manifest, manifest.view)
    commit = replace(child(head.commit), files="nodes/1\tdata/a.lance\t3\t06b05a", touched=("1",))
    change = ManifestChange(heads=[replace(head, commit=commit)], commits=[commit])
    view = manifest.replace_heads_if_equal(manifest.view, [head], change)
    cold = reopen(manifest)
    assert asdict(head_of(manifest, view)) == asdict(head_of(cold, cold.view))


def test_replace_head_in_fragment_with_two_rows_is_refused(uri: str) -> None:
    manifest = make_manifest(uri)
    head = head_of(manifest, manifest.view)
    file = manifest.view.head_file(head.incarnation)
    assert file is not None
    fresh = reopen(manifest)
    fresh._rows._files[file.name] = {"head:main": "{}", "head:other": "{}"}
    with pytest.raises(StorageError, match="expected 1 row, got 2"):
        fresh.replace_heads_if_equal(fresh.view, [head], ManifestChange(heads=[head]))


def test_replace_head_with_stale_expectation_loses_the_swap(uri: str) -> None:
    manifest = make_manifest(uri)
    stale = head_of(manifest, manifest.view)
    move(manifest, manifest.view)
    version = manifest.view.version
    with pytest.raises(SwapLost):
        manifest.replace_heads_if_equal(manifest.view, [stale], ManifestChange(heads=[stale]))
    assert manifest.refresh().version == version


def test_replace_registry_with_stale_expectation_loses_the_swap(uri: str) -> None:
    manifest = make_manifest(uri)
    stale = manifest.registry(manifest.view)
    manifest.replace_registry_if_equals(
        manifest.view, stale, ManifestChange(registry=stale.with_next_epoch())
    )
    with pytest.raises(SwapLost):
        manifest.replace_registry_if_equals(
            manifest.view, stale, ManifestChange(registry=stale.with_format(9))
        )
    assert manifest.registry(manifest.refresh()).format == 3


def test_manifest_with_two_registries_raises_storage_error(uri: str) -> None:
    manifest = make_manifest(uri)
    registry = manifest.registry(manifest.view)
    manifest._swap(manifest.view, remove=[], change=ManifestChange(registry=registry.with_next_epoch()))
    with pytest.raises(StorageError, match="expected 1 registry file, got 2"):
        manifest.registry(manifest.view)


# --- the compare-and-swap -------------------------------------------------------------------------------


def test_publish_by_two_writers_to_one_branch_succeeds_once(uri: str) -> None:
    one = make_manifest(uri)
    two = reopen(one)
    record = move(one, one.view, message="one")
    with pytest.raises(SwapLost):
        move(two, two.view, message="two")
    assert head_of(two, two.refresh()).commit == record
    assert [item.message for item in two.all_commits(two.view) if item.parent] == ["one"]


def test_publish_after_lost_swap_succeeds_on_a_fresh_view(uri: str) -> None:
    one = make_manifest(uri)
    two = reopen(one)
    first = move(one, one.view)
    with pytest.raises(SwapLost):
        move(two, two.view)
    assert move(two, two.refresh()).parent == first.id


def test_publish_to_different_branches_from_one_view_succeeds(uri: str) -> None:
    one = make_manifest(uri, ["main", "other"])
    two = reopen(one)
    first, second = move(one, one.view, "main"), move(two, two.view, "other")
    view = reopen(one).view
    assert head_of(one, view, "main").commit == first
    assert head_of(one, view, "other").commit == second
    assert kinds(view)["commit"] == 3


def test_publish_by_many_writers_at_once_succeeds_once(uri: str) -> None:
    first = make_manifest(uri)
    handles = [reopen(first) for _ in range(8)]
    outcomes = together([partial(move, handle, handle.view) for handle in handles])
    won = [outcome for outcome in outcomes if isinstance(outcome, CommitRecord)]
    lost = [outcome for outcome in outcomes if isinstance(outcome, SwapLost)]
    assert (len(won), len(lost)) == (1, 7)
    assert head_of(first, first.refresh()).commit == won[0]


def test_publish_to_many_branches_at_once_succeeds(uri: str) -> None:
    names = [f"b{number}" for number in range(6)]
    first = make_manifest(uri, ["main", *names])
    handles = {name: reopen(first) for name in names}
    outcomes = together([partial(move, handle, handle.view, name) for name, handle in handles.items()])
    view = first.refresh()
    assert [head_of(first, view, name).commit for name in names] == outcomes


def create(manifest: Manifest, name: str) -> BranchEntry:
    view = manifest.view
    entry = BranchEntry(new_id(), 5, commit=head_of(manifest, view).commit.id)
    create_branch_if_absent(manifest, view, name, entry)
    return entry


def test_create_branch_twice_loses_the_swap(uri: str) -> None:
    one = make_manifest(uri)
    two = reopen(one)
    create(one, "x")
    with pytest.raises(SwapLost):
        create(two, "x")
    with pytest.raises(SwapLost):
        create(one, "x")
    assert list(two.branches(two.refresh())) == ["main", "x"]


def test_create_branch_beside_a_publish_succeeds(uri: str) -> None:
    one = make_manifest(uri)
    two = reopen(one)
    first = head_of(two, two.view).commit
    move(one, one.view)
    create(two, "x")
    view = two.refresh()
    assert head_of(two, view).commit.sequence == 2
    assert head_of(two, view, "x").commit == first


def test_first_write_of_a_branch_gives_it_a_head_file(uri: str) -> None:
    manifest = make_manifest(uri)
    create(manifest, "x")
    create(manifest, "y")
    assert kinds(manifest.view)["head"] == 1
    other = reopen(manifest)
    record = move(manifest, manifest.view, "x")
    assert kinds(manifest.view)["head"] == 2
    assert head_of(other, other.refresh(), "x").commit == record
    assert head_of(other, other.view, "y").commit.sequence == 1


def test_first_writes_of_two_branches_of_one_bucket_conflict(uri: str) -> None:
    one = make_manifest(uri)
    create(one, "x")
    create(one, "y")
    two = reopen(one)
    move(one, one.view, "x")
    with pytest.raises(SwapLost):
        move(two, two.view, "y")
    move(two, two.refresh(), "y")
    assert {name: head_of(two, two.view, name).commit.sequence for name in ("x", "y")} == {"x": 2, "y": 2}


@pytest.mark.parametrize(
    "limits", [{"MAX_HEAD_FILES": 4, "KEPT_HEAD_FILES": 2}, {"MAX_HEADS_AT_REST": 3, "REST_AFTER_FILES": 4}]
)
def test_fold_of_heads_at_rest_keeps_every_head(
    uri: str, limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in limits.items():
        monkeypatch.setattr(branch_swaps, name, limit)
    manifest = make_manifest(uri, ["main", *(f"b{number}" for number in range(6))])
    records = {f"b{number}": move(manifest, manifest.view, f"b{number}") for number in range(6)}
    assert needs_fold(manifest.view)
    stale = reopen(manifest)
    assert fold_heads(manifest, manifest.view) == 4
    assert not needs_fold(manifest.view)
    cold = reopen(manifest)
    assert {name: head_of(cold, cold.view, name).commit for name in records} == records
    with pytest.raises(SwapLost):
        move(stale, stale.view, "b0")
    assert move(stale, stale.refresh(), "b0").parent == records["b0"].id
    assert fold_heads(manifest, manifest.view) == 0


def test_many_branches_are_created_found_and_deleted(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_buckets, "MAX_ENTRIES", 4)
    monkeypatch.setattr(bucket_entries, "MAX_ENTRIES", 4)
    monkeypatch.setattr(bucket_entries, "MIN_ENTRIES", 2)
    manifest = make_manifest(uri)
    names = [f"agent-{number}" for number in range(20)]
    entries = {name: create(manifest, name) for name in names}
    assert kinds(manifest.view)["branches"] > 5
    cold = reopen(manifest)
    assert list(cold.branches(cold.view)) == sorted(["main", *names])
    assert [cold.branch(cold.view, name) for name in names] == list(entries.values())
    after = [name for name, _ in cold.branches_after(cold.view, "agent-15")]
    assert after == [name for name in sorted(["main", *names]) if name > "agent-15"]
    assert list(cold.branch_entries.names(cold.view, after="agent-15")) == after
    for prefix in ("", "agent-1", "agent-19", "m", "x", "agent-1x"):
        found = list(cold.branch_entries.names(cold.view, prefix))
        assert found == [name for name in sorted(["main", *names]) if name.startswith(prefix)]
    for name in names:
        delete_branch_if_equals(manifest, manifest.view, name, entries[name])
    assert list(manifest.branches(manifest.view)) == ["main"]
    assert kinds(manifest.view)["branches"] <= 2


def test_full_bucket_is_stored_without_compression(tmp_path: Path) -> None:
    # Lance would take ten times as long to compress it.
    manifest = make_manifest(str(tmp_path / "graph"))
    names = [f"agent-{number:04}" for number in range(name_buckets.MAX_ENTRIES)]
    entries = {name: BranchEntry(new_id(), 1_700_000_000_000_000, "agent", new_id()) for name in names}
    (bucket,) = bucket_entries.first_buckets(BUCKETS, entries.items())
    removed = manifest.view.of_kind(BUCKETS)
    manifest.replace_files(manifest.view, removed, ManifestChange(buckets=[bucket]))
    (file,) = manifest.view.of_kind(BUCKETS)
    assert file.size is not None
    assert file.size > sum(len(key) + len(text) for key, text in bucket.rows.items())
    cold = reopen(manifest)
    assert cold.branches(cold.view) == entries


def test_delete_branch_after_a_publish_to_it_loses_the_swap(uri: str) -> None:
    one = make_manifest(uri, ["main", "x"])
    two = reopen(one)
    entry = two.branch(two.view, "x")
    assert entry is not None
    move(one, one.view, "x")
    with pytest.raises(SwapLost):
        delete_branch_if_equals(two, two.view, "x", entry)
    delete_branch_if_equals(two, two.refresh(), "x", entry)
    assert two.head(two.view, "x") is None
    with pytest.raises(SwapLost):
        move(one, one.view, "x")


def test_delete_branch_twice_loses_the_swap(uri: str) -> None:
    manifest = make_manifest(uri, ["main", "x"])
    entry = manifest.branch(manifest.view, "x")
    assert entry is not None
    delete_branch_if_equals(manifest, manifest.view, "x", entry)
    with pytest.raises(SwapLost):
        delete_branch_if_equals(manifest, manifest.view, "x", entry)


# --- creation -------------------------------------------------------------------------------------------


def test_open_manifest_of_missing_root_raises_not_a_graph(uri: str) -> None:
    with pytest.raises(NotAGraph) as caught:
        Manifest.open(lance_root(uri))
    assert not caught.value.is_incomplete


def test_create_manifest_twice_loses_the_swap(uri: str) -> None:
    first = make_manifest(uri)
    with pytest.raises(SwapLost):
        make_manifest(uri)
    assert reopen(first).view.version == first.view.version


def test_create_manifest_by_many_processes_succeeds_once(uri: str) -> None:
    changes = [first_change() for _ in range(6)]
    outcomes = together([partial(Manifest.create, lance_root(uri), change) for change in changes])
    won = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Manifest)]
    assert len(won) == 1
    assert sum(isinstance(outcome, SwapLost) for outcome in outcomes) == 5
    opened = Manifest.open(lance_root(uri))
    assert opened.registry(opened.view) == changes[won[0]].registry
    assert kinds(opened.view) == {"registry": 1, "branches": 1, "head": 1, "commit": 1, "schema": 1}


@pytest.mark.parametrize("round_", range(4))
def test_begin_init_many_times_at_once_makes_one_version(uri: str, round_: int) -> None:
    root = lance_root(uri)
    assert together([partial(begin_init, root)] * (4 + round_)) == [None] * (4 + round_)
    assert root.open(manifest_module.PATH).version == 1


def test_begin_init_of_existing_graph_changes_nothing(uri: str) -> None:
    manifest = make_manifest(uri)
    begin_init(lance_root(uri))
    assert reopen(manifest).view.files == manifest.view.files


def test_create_manifest_in_unwritable_root_raises_storage_error(tmp_path: Path) -> None:
    (tmp_path / "graph").write_text("a file where the folder should be")
    with pytest.raises(StorageError):
        make_manifest(str(tmp_path / "graph"))


def test_open_manifest_after_interrupted_init_is_refused_and_init_completes(uri: str) -> None:
    begin_init(lance_root(uri))
    with pytest.raises(NotAGraph) as caught:
        Manifest.open(lance_root(uri))
    assert caught.value.is_incomplete
    assert make_manifest(uri).registry(Manifest.open(lance_root(uri)).view).format == 3


# --- refreshing and finding -----------------------------------------------------------------------------


def test_refresh_reads_only_new_files() -> None:
    writer = make_manifest(fresh_memory(), ["main", *(f"b{number}" for number in range(20))])
    for number in range(20):
        move(writer, writer.view, f"b{number}")
    reader = reopen(writer)
    for name in reader.branches(reader.view):
        head_of(reader, reader.view, name)
    move(writer, writer.view, "b3")
    known = set(reader._rows._files)
    view = reader.refresh()
    names = list(reader.branches(view))
    heads = [head_of(reader, view, name).commit for name in names]
    assert [name.split("-")[0] for name in set(reader._rows._files) - known] == ["head"]
    assert sum(head.sequence == 3 for head in heads) == 1


def test_refresh_of_many_threads_reads_a_new_version_once(tmp_path: Path) -> None:
    writer = make_manifest(str(tmp_path / "g"), ["main"])
    reader = reopen(writer)

    def read_head() -> tuple[ManifestView, object]:
        view = reader.refresh()
        return view, reader.rows(view, view.of_kind("head")[0])

    for _ in range(10):
        move(writer, writer.view, "main")
        found = [item for item in together([read_head] * 8) if not isinstance(item, Exception)]
        assert [view.version for view, _ in found] == [writer.view.version] * 8
        assert len({(id(view), id(rows)) for view, rows in found}) == 1


def test_refresh_without_new_version_returns_the_same_view(uri: str) -> None:
    manifest = make_manifest(uri)
    assert manifest.refresh() is manifest.view


def test_read_of_warm_head_costs_the_same_after_many_commits() -> None:
    writer = make_manifest(fresh_memory())
    reader = reopen(writer)

    def reads() -> int:
        head_of(reader, reader.refresh())
        move(writer, writer.refresh())
        lance.iops_counter()
        before = lance.iops_counter()
        head_of(reader, reader.refresh())
        return lance.iops_counter() - before

    early = reads()
    for _ in range(100):
        move(writer, writer.view)
        writer.compact_log()
    assert reads() == early > 0


def test_find_commit_reads_only_files_that_cover_its_id() -> None:
    manifest = make_manifest(fresh_memory())
    records = [move(manifest, manifest.view) for _ in range(10)]
    cold = reopen(manifest)
    assert cold.find_commit(cold.view, records[4].id) == records[4]
    assert [name.split("-")[2] for name in cold._rows._files] == [records[4].id]


def test_find_commit_with_id_outside_all_files_reads_nothing() -> None:
    manifest = make_manifest(fresh_memory())
    move(manifest, manifest.view)
    cold = reopen(manifest)
    assert cold.find_commit(cold.view, "00000000000000000000000000") is None
    assert cold.find_commit(cold.view, "not an id at all") is None
    assert not cold._rows._files


def test_find_commit_in_large_folded_file_does_not_load_it(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = make_manifest(fresh_memory())
    records = [move(manifest, manifest.view) for _ in range(LOG_COMPACT_AT)]
    assert manifest.compact_log()
    monkeypatch.setattr(row_files, "_MAX_ROWS_TO_CACHE_FILE", 8)
    cold = reopen(manifest)
    assert [cold.find_commit(cold.view, record.id) for record in records[:-1]] == records[:-1]
    assert not cold._rows._files


def test_walk_along_the_commits_of_a_large_folded_file_searches_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = make_manifest(fresh_memory())
    records = [move(manifest, manifest.view) for _ in range(LOG_COMPACT_AT)]
    assert manifest.compact_log()
    monkeypatch.setattr(row_files, "_MAX_ROWS_TO_CACHE_FILE", 8)
    searched = []

    def get_counted(dataset: lance.LanceDataset, number: int) -> lance.LanceFragment:
        searched.append(number)
        return get_fragment(dataset, number)

    monkeypatch.setattr(row_files, "get_fragment", get_counted)
    cold = reopen(manifest)
    searched.clear()
    # One file has the oldest commits, and the newest commit has a file of its own.
    folded = records[:-1][::-1]
    assert [cold.find_commit(cold.view, record.id) for record in folded] == folded
    assert len(searched) == 1


def test_find_commit_with_invalid_id_in_range_returns_none(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = make_manifest(fresh_memory())
    records = [move(manifest, manifest.view) for _ in range(LOG_COMPACT_AT)]
    assert manifest.compact_log()
    monkeypatch.setattr(row_files, "_MAX_ROWS_TO_CACHE_FILE", 8)
    cold = reopen(manifest)
    assert cold.find_commit(cold.view, f"{records[3].id}' OR '1' = '1") is None


def test_read_of_missing_schema_raises_storage_error(uri: str) -> None:
    manifest = make_manifest(uri)
    assert manifest.schema(manifest.view, SCHEMA) == "{}"
    with pytest.raises(StorageError, match="__manifest has no schema"):
        manifest.schema(manifest.view, "cd" * 32)


def test_read_of_missing_manifest_file_raises_error(tmp_path: Path) -> None:
    manifest = make_manifest(str(tmp_path / "graph"))
    record = move(manifest, manifest.view)
    cold = reopen(manifest)
    for file in (tmp_path / "graph" / "__manifest" / "data").glob(f"commit-0-{record.id}-*"):
        file.unlink()
    with pytest.raises(StorageError, match=r"__manifest/data/commit-\S+ is damaged: it is missing") as caught:
        cold.find_commit(cold.view, record.id)
    assert caught.value.details["reason"] == "damaged"


def test_row_cache_counts_rows_read_twice_once() -> None:
    manifest = make_manifest(fresh_memory())
    file = manifest.view.of_kind("commit")[0]
    rows = manifest._rows.read(manifest.view, file)
    for _ in range(5):
        manifest._rows._cache(file.name, rows)
    cached = manifest._rows._files
    assert cached.currsize == sum(row_files._count_characters(found) for found in cached.values())


def test_row_cache_drops_files_that_a_swap_replaced() -> None:
    manifest = make_manifest(fresh_memory())
    for number in range(3):
        create(manifest, f"b{number}")
        move(manifest, manifest.view)
    assert manifest._rows.cached <= {file.name for file in manifest.view.files}
    assert {file.name for file in manifest.view.of_kind(BUCKETS)} <= manifest._rows.cached


def test_row_cache_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "_CACHED_CHARACTERS", 8_000)
    manifest = make_manifest(fresh_memory())
    records = [move(manifest, manifest.view) for _ in range(30)]
    cached = manifest._rows._files
    texts = [text for rows in cached.values() for text in rows.values()]
    assert 0 < sum(map(len, texts)) <= cached.currsize <= 8_000
    assert [manifest.find_commit(manifest.view, record.id) for record in records] == records


# --- folding --------------------------------------------------------------------------------------------


def test_compact_log_below_the_threshold_does_nothing() -> None:
    manifest = make_manifest(fresh_memory())
    for _ in range(LOG_COMPACT_AT - 2):
        move(manifest, manifest.view)
    assert (manifest.needs_log_compaction, manifest.compact_log()) == (False, False)
    move(manifest, manifest.view)
    assert (manifest.needs_log_compaction, manifest.compact_log()) == (True, True)
    assert not manifest.needs_log_compaction


def test_compact_log_keeps_every_commit_and_head(uri: str) -> None:
    manifest = make_manifest(uri, ["main", "other"])
    records = [move(manifest, manifest.view, branch) for _ in range(20) for branch in ("main", "other")]
    heads = [head_of(manifest, manifest.view, branch) for branch in ("main", "other")]
    assert manifest.compact_log()
    cold = reopen(manifest)
    assert kinds(cold.view) == {"registry": 1, "branches": 1, "head": 2, "commit": 1, "schema": 1}
    assert [cold.find_commit(cold.view, record.id) for record in records] == records
    assert [head_of(cold, cold.view, branch) for branch in ("main", "other")] == heads


@pytest.mark.parametrize("publish_first", [True, False])
def test_compact_log_beside_a_publish_succeeds(uri: str, publish_first: bool) -> None:
    folder = make_manifest(uri)
    records = [move(folder, folder.view) for _ in range(LOG_COMPACT_AT)]
    publisher = reopen(folder)
    if publish_first:
        records.append(move(publisher, publisher.view))
        assert folder.compact_log()
    else:
        assert folder.compact_log()
        records.append(move(publisher, publisher.view))
    cold = reopen(folder)
    assert [cold.find_commit(cold.view, record.id) for record in records] == records
    assert head_of(cold, cold.view).commit == records[-1]
    assert kinds(cold.view)["commit"] == 2


def test_compact_log_twice_from_one_view_has_effect_once(uri: str) -> None:
    one = make_manifest(uri)
    records = [move(one, one.view) for _ in range(LOG_COMPACT_AT)]
    two = reopen(one)
    assert one.compact_log()
    assert not two.compact_log()
    cold = reopen(one)
    assert sorted(item.id for item in cold.all_commits(cold.view) if item.parent) == [
        record.id for record in records
    ]


def test_compact_log_beside_concurrent_publishes_loses_no_commit() -> None:
    first = make_manifest(fresh_memory(), ["main", "a", "b"])

    def publish(branch: str) -> list[CommitRecord]:
        manifest = reopen(first)
        return [move(manifest, manifest.refresh(), branch) for _ in range(60)]

    def fold() -> list[CommitRecord]:
        manifest = reopen(first)
        for _ in range(60):
            manifest.refresh()
            manifest.compact_log()
        return []

    works: list[Callable[[], list[CommitRecord]]] = [partial(publish, name) for name in ("main", "a", "b")]
    outcomes = together([*works, fold])
    view = first.refresh()
    for outcome in outcomes:
        assert not isinstance(outcome, Exception)
        assert [first.find_commit(view, record.id) for record in outcome] == outcome
    assert len(list(first.all_commits(view))) == 181


@pytest.mark.long
def test_publish_of_1500_commits_keeps_few_fragments() -> None:
    manifest = make_manifest(fresh_memory())
    records = []
    most = 0
    for _ in range(1_500):
        records.append(move(manifest, manifest.view))
        while manifest.needs_log_compaction:
            assert manifest.compact_log()
        most = max(most, len(manifest.view.files))
    assert most <= 2 * LOG_COMPACT_AT + 3
    cold = reopen(manifest)
    assert [cold.find_commit(cold.view, record.id) for record in records[::97]] == records[::97]
    assert {item.id for item in cold.all_commits(cold.view) if item.parent} == {item.id for item in records}


def test_compact_log_folds_recovery_rows() -> None:
    manifest = make_manifest(fresh_memory())
    rows = []
    for number in range(LOG_COMPACT_AT):
        registry = manifest.registry(manifest.view)
        row = RecoveryRecord(new_id(), "discarded", "ana", "main", "load", None, f"reason {number}", number)
        rows.append(row)
        change = ManifestChange(registry=registry.with_next_epoch(), recoveries=[row])
        manifest.replace_registry_if_equals(manifest.view, registry, change)
    assert manifest.compact_log()
    cold = reopen(manifest)
    assert kinds(cold.view)["recovery"] == 1
    assert cold.recoveries(cold.view) == rows
    assert cold.find_recovery(cold.view, rows[7].id) == rows[7]
    assert cold.find_recovery(cold.view, new_id()) is None


def test_compact_log_of_a_long_log_holds_few_rows_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "COMPRESSED_ROWS", LOG_COMPACT_AT)
    monkeypatch.setattr(row_files, "_BATCH_ROWS", 4)
    monkeypatch.setattr(row_files, "_MAX_ROWS_TO_CACHE_FILE", 8)
    manifest = make_manifest(fresh_memory())
    records = [move(manifest, manifest.view) for _ in range(LOG_COMPACT_AT)]
    sizes = list[int]()
    write: Callable[[str, list[Any], Any], Any] = manifest._rows._write

    def write_counted(name: str, batches: Iterable[Any], layout: Any) -> Any:
        tables = list(batches)
        sizes.extend(table.num_rows for table in tables)
        return write(name, tables, layout)

    monkeypatch.setattr(manifest._rows, "_write", write_counted)
    assert manifest.compact_log()
    assert (max(sizes), sum(sizes)) == (4, LOG_COMPACT_AT + 1)
    cold = reopen(manifest)
    assert [cold.find_commit(cold.view, record.id) for record in records] == records


# --- trimming -------------------------------------------------------------------------------------------


# --- rows -----------------------------------------------------------------------------------------------


def test_manifest_with_unusual_texts_and_large_versions_round_trips(uri: str) -> None:
    manifest = make_manifest(uri)
    head = head_of(manifest, manifest.view)
    odd = 'quote\' "double" \\ back\n\u0000\u2028 日本語 🙂 {"a":1}'
    pin = TablePin(f"nodes/{odd}", 2**64 - 1, 2**53 + 1, odd)
    record = replace(
        child(head.commit, message=odd), actor=odd, operation=odd, tables={odd: pin}, touched=(odd,)
    )
    manifest.replace_heads_if_equal(
        manifest.view, [head], ManifestChange(heads=[replace(head, commit=record)], commits=[record])
    )
    cold = reopen(manifest)
    assert cold.find_commit(cold.view, record.id) == record
    assert head_of(cold, cold.view).commit == record


def test_manifest_with_unusual_branch_names_round_trips(uri: str) -> None:
    names = [
        "main",
        "a",
        "a/b",
        "a/b/c",
        "日本語",
        "it's",
        'say "hi"',
        "-",
        "head-x-y",
        "registry",
        "x" * 900,
    ]
    manifest = reopen(make_manifest(uri, names))
    for name in names:
        move(manifest, manifest.view, name, message=name)
    view = reopen(manifest).view
    assert {name: head_of(manifest, view, name).commit.message for name in names} == {
        name: name for name in names
    }

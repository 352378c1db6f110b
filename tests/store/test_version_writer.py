"""Versions that are written without Lance: equal to those of Lance, exclusive, and refused for unknown features."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation
from lance.fragment import write_fragments

from omnigraph.errors import StorageError
from omnigraph.store.file_digests import digest_file
from omnigraph.store.lance.lance_files import file_name, version_file
from omnigraph.store.lance.protobuf import Value, encode_bytes, encode_number, read_fields
from omnigraph.store.lance.version_manifest import StoredFragment, parse_version, read_manifest_message
from omnigraph.store.lance.version_writer import (
    NextVersion,
    append_fragments,
    create_version,
    rewrite_fragments,
)
from omnigraph.store.manifest import manifest as manifest_module
from omnigraph.store.manifest import row_files
from omnigraph.store.manifest.manifest import PATH, Manifest, SwapLost
from omnigraph.store.sync import SyncBatch
from omnigraph.store.tables.tables import COMPACT_AT, Tables
from tests.support.manifests import head_of, make_manifest, move, reopen
from tests.support.places import lance_root, together

VERSION, TIMESTAMP, TRANSACTION_FILE, UUID = 3, 7, 12, 2


def manifest_bytes(uri: str, version: int) -> bytes:
    return (Path(uri) / PATH / version_file(version)).read_bytes()


def fields(message: bytes, *without: int) -> list[tuple[int, Value]]:
    return [(number, value) for number, value in read_fields(message) if number not in without]


def next_version(manifest: Manifest, uri: str) -> NextVersion:
    """Return the version that replaces the first file of the newest one by a file of the same content."""
    view = manifest.view
    fragment = view.dataset.get_fragment(view.files[0].fragment)
    assert fragment is not None
    found = rewrite_fragments(
        manifest_bytes(uri, view.version), {fragment.fragment_id}, [replace(fragment.metadata, id=0)]
    )
    assert found is not None
    return found


def test_rewrite_gives_the_version_and_the_transaction_that_lance_commits(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri, ["main", *(f"branch-{number}" for number in range(200))])
    manifest = reopen(manifest)
    manifest._probe = None
    for branch in ("main", "branch-7", "main"):
        before = manifest.view
        move(manifest, before, branch)
        after = manifest.view.dataset
        ids = {item.fragment for item in before.files}
        removed = ids - {item.fragment for item in manifest.view.files}
        new = [item.metadata for item in after.get_fragments() if item.fragment_id not in ids]
        ours = rewrite_fragments(
            manifest_bytes(uri, before.version), removed, [replace(item, id=0) for item in new]
        )
        assert removed
        assert ours is not None
        assert ours.version == after.version
        theirs = manifest_bytes(uri, after.version)
        assert fields(read_manifest_message(ours.manifest), TIMESTAMP, TRANSACTION_FILE) == fields(
            read_manifest_message(theirs), TIMESTAMP, TRANSACTION_FILE
        )
        (length,) = struct.unpack_from("<I", theirs)
        assert fields(ours.transaction, UUID) == fields(theirs[4 : 4 + length], UUID)
        assert ours.manifest[4 : 4 + len(ours.transaction)] == ours.transaction
        assert ours.manifest[-8:] == theirs[-8:]


@pytest.mark.parametrize(
    "change",
    [
        lambda dataset: dataset.create_scalar_index("id", "BTREE"),
        lambda dataset: dataset.update_config({"key": "value"}),
    ],
    ids=["index", "config"],
)
def test_rewrite_of_a_version_with_other_fields_is_left_to_lance(
    tmp_path: Path, change: Callable[[lance.LanceDataset], object]
) -> None:
    dataset = lance.write_dataset(pa.table({"id": ["a", "b"]}), str(tmp_path / "table"))
    new = [replace(item.metadata, id=0) for item in dataset.get_fragments()]
    assert rewrite_fragments((tmp_path / "table" / version_file(1)).read_bytes(), {0}, new) is not None
    change(dataset)
    dataset = lance.dataset(dataset.uri)
    changed = (tmp_path / "table" / version_file(int(dataset.version))).read_bytes()
    assert rewrite_fragments(changed, {0}, new) is None


def test_rewrite_of_a_file_cut_at_any_length_is_left_to_lance(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    data = manifest_bytes(uri, manifest.view.version)
    removed = {manifest.view.files[0].fragment}
    assert rewrite_fragments(data, removed, []) is not None
    for length in range(len(data)):
        assert rewrite_fragments(data[:length], removed, []) is None
    assert rewrite_fragments(data, {1 << 20}, []) is None


def test_create_version_of_many_threads_succeeds_once(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    folder = Path(uri) / PATH
    transactions = len(list((folder / "_transactions").iterdir()))
    versions = [next_version(manifest, uri) for _ in range(8)]
    created = together([partial(create_version, str(folder), item) for item in versions])
    (winner,) = (version for version, done in zip(versions, created, strict=True) if done)
    assert manifest_bytes(uri, winner.version) == winner.manifest
    assert (folder / winner.transaction_file).read_bytes() == winner.transaction
    assert len(list((folder / "_transactions").iterdir())) == transactions + 1
    assert not list((folder / "_versions").glob(".tmp*"))
    assert lance.dataset(str(folder)).version == winner.version


def test_lance_rebases_over_a_version_without_it_and_detects_conflicts(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    ours = make_manifest(uri, ["main", "other"])
    theirs, late = reopen(ours), reopen(ours)
    theirs._probe = late._probe = None
    record = move(ours, ours.view)
    with pytest.raises(SwapLost):
        move(theirs, theirs.view)
    moved = move(late, late.view, "other")
    cold = reopen(ours)
    assert head_of(cold, cold.view).commit == record
    assert head_of(cold, cold.view, "other").commit == moved


def test_swap_of_a_damaged_list_of_files_is_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    (file,) = manifest.view.of_kind("schema")
    path = Path(uri) / PATH / version_file(manifest.view.version)
    data = path.read_bytes()
    position = data.rindex(file.name.encode())
    path.write_bytes(data[:position] + b"S" + data[position + 1 :])
    with pytest.raises(StorageError, match="is damaged"):
        move(manifest, manifest.view)
    assert not (path.parent / version_file(manifest.view.version + 1)).exists()


def test_fields_are_encoded_as_they_are_read() -> None:
    data = encode_number(1, 1 << 63) + encode_bytes(2, b"x" * 300) + encode_number(3, 127)
    assert list(read_fields(data)) == [(1, 1 << 63), (2, b"x" * 300), (3, 127)]


def test_append_gives_the_version_and_the_transaction_that_lance_commits(tmp_path: Path) -> None:
    base = lance.write_dataset(pa.table({"id": ["a"], "n": [1]}), str(tmp_path / "table"))
    for number in range(3):
        new = write_fragments(pa.table({"id": [f"b{number}"], "n": [number]}), base, mode="append")
        content = (tmp_path / "table" / version_file(int(base.version))).read_bytes()
        ours = append_fragments(content, new)
        transaction = lance.Transaction(
            base.version, LanceOperation.Update(removed_fragment_ids=[], new_fragments=new)
        )
        base = lance.LanceDataset.commit(base, transaction, detached=True)
        theirs = (tmp_path / "table" / version_file(int(base.version))).read_bytes()
        assert ours is not None
        assert ours.is_detached
        assert ours.first_id == number + 1
        assert fields(read_manifest_message(ours.manifest), VERSION, TIMESTAMP, TRANSACTION_FILE) == fields(
            read_manifest_message(theirs), VERSION, TIMESTAMP, TRANSACTION_FILE
        )
        (length,) = struct.unpack_from("<I", theirs)
        assert fields(ours.transaction, UUID) == fields(theirs[4 : 4 + length], UUID)


def test_appends_of_a_group_are_the_versions_that_lance_reads(tmp_path: Path) -> None:
    root = lance_root(str(tmp_path / "graph"))
    assert root.local is not None
    tables = Tables(root)
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
    pin = tables.create("nodes/1", schema).pin("c")
    pin = tables.stage(pin, insert=pa.table({"id": ["first"], "n": [0]}, schema=schema)).pin("c")
    pin = tables.stage(
        pin, delete_ids=["first"], insert=pa.table({"id": ["a"], "n": [1]}, schema=schema)
    ).pin("c")
    batch = SyncBatch(defers_uploads=True)
    for number in range(COMPACT_AT + 4):
        if number == 2:
            # A copy of a graph may lack it.
            shutil.rmtree(root.local / "nodes/1/_transactions")
        with batch.collecting():
            staged = tables.stage(pin, insert=pa.table({"id": [f"g{number}"], "n": [number]}, schema=schema))
        assert {file.name.partition("/")[0] for file in staged.files} == {
            "data",
            "_transactions",
            "_versions",
        }
        for file in staged.files:
            assert digest_file(root.local / "nodes/1" / file.name, file.name) == file
        found = root.open("nodes/1", staged.version)
        assert tables.stored_fragments("nodes/1", staged.version) == tuple(
            StoredFragment.of(item.metadata) for item in found.get_fragments()
        )
        pin = staged.pin("c")
    batch.flush()
    rows = Tables(lance_root(str(tmp_path / "graph"))).scan(pin)
    assert sorted(rows["id"].to_pylist()) == sorted(["a", *(f"g{n}" for n in range(COMPACT_AT + 4))])


def test_swaps_of_a_log_with_files_of_two_versions_can_be_opened_by_lance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "COMPRESSED_ROWS", 4)
    monkeypatch.setattr(manifest_module, "LOG_COMPACT_AT", 4)
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    moved = []
    for _ in range(12):
        moved.append(move(manifest, manifest.view).id)
        manifest.compact_log()
        assert root_files(uri) == {file.name for file in manifest.view.files}
    read = parse_version(manifest_bytes(uri, manifest.view.version))
    assert read is not None
    assert {item.files for item in read.fragments} == {file.name for file in manifest.view.files}
    cold = reopen(manifest)
    assert {record.id for record in cold.all_commits(cold.view)} > set(moved)


def root_files(uri: str) -> set[str]:
    """Return the files of the newest version as Lance opens it."""
    found = lance.dataset(f"{uri}/{PATH}").get_fragments()
    return {file_name(item) for fragment in found for item in fragment.metadata.files}

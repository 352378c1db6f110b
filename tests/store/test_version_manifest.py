"""Versions read from their manifest files: the same fragments as Lance describes, or None."""

from __future__ import annotations

import struct
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.lance.version_manifest import (
    StoredFragment,
    StoredVersion,
    parse_version,
    read_version,
)
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.table_fragments import list_fragments
from omnigraph.store.tables.tables import Tables

SCHEMA = "node Person { name: String @key  age: I32? }"


def described(dataset: lance.LanceDataset) -> list[tuple[StoredFragment, tuple[int | None, ...]]]:
    """The fragments of a version as Lance describes them, with the sizes of their files."""
    found = [StoredFragment.of(item.metadata) for item in dataset.get_fragments()]
    return [(item, item.sizes) for item in found]


def stored(version: StoredVersion | None) -> list[tuple[StoredFragment, tuple[int | None, ...]]]:
    assert version is not None
    return [(item, item.sizes) for item in version.fragments]


@pytest.fixture
def root(tmp_path: Path) -> LanceRoot:
    return LanceRoot.from_uri(str(tmp_path / "g.omni"), {}, "os")


@pytest.fixture
def dataset(tmp_path: Path) -> lance.LanceDataset:
    """A table with a fragment without changes, one with deleted rows, and one of two files."""
    uri = str(tmp_path / "table")
    found = lance.write_dataset(pa.table({"id": pa.array([], pa.string())}), uri, mode="create")
    for start in (0, 500, 1_000):
        rows = pa.table({"id": [str(number) for number in range(start, start + 500)]})
        found = lance.write_dataset(rows, uri, mode="append")
    found.add_columns({"length": "length(id)"})
    found.delete("id = '7' or id = '8'")
    found.delete("id = '9'")
    found.delete("length(id) = 4 and id != '1234'")
    rows = pa.table({"id": ["x"], "length": pa.array([1], pa.int32())})
    return lance.write_dataset(rows, uri, mode="append")


def manifest_bytes(dataset: lance.LanceDataset, version: int) -> bytes:
    return (Path(dataset.uri) / version_file(version)).read_bytes()


def test_parse_every_version_of_a_changed_table_gives_the_fragments_of_lance(
    dataset: lance.LanceDataset,
) -> None:
    for version in range(1, int(dataset.version) + 1):
        found = parse_version(manifest_bytes(dataset, version))
        assert stored(found) == described(dataset.checkout_version(version))
    last = stored(parse_version(manifest_bytes(dataset, int(dataset.version))))
    assert any(fragment.deletions for fragment, _ in last)
    assert any(len(sizes) == 2 for _, sizes in last)


def test_read_tables_and_manifest_of_a_graph_gives_the_fragments_of_lance(root: LanceRoot) -> None:
    with og.init(root.uri, SCHEMA) as g:
        g.load({"Person": [{"name": f"p{number}", "age": number} for number in range(300)]})
        g.mutate('query q() { delete Person where name = "p7" }', {})
        g.mutate('query q() { update Person set { age: 1 } where name = "p8" }', {})
        pins = [pin for pin in g.snapshot().types.values() if pin.rows]
    assert root.local is not None
    for pin in pins:
        found = read_version(f"{root.local}/{pin.path}/{version_file(pin.version)}", pin.version)
        assert stored(found) == described(root.open(pin.path, pin.version))
    view = Manifest.open(root).view
    file = f"{root.local}/__manifest/{version_file(view.version)}"
    assert stored(read_version(file, view.version)) == described(view.dataset)


def test_parse_file_cut_at_any_length_gives_none_or_the_fragments(dataset: lance.LanceDataset) -> None:
    data = manifest_bytes(dataset, int(dataset.version))
    assert all(parse_version(data[:length]) is None for length in range(len(data)))
    footer = data[-16:]
    whole = parse_version(data)
    for length in range(0, len(data) - 16, 7):
        assert parse_version(data[:length] + footer) in (None, whole)


@pytest.mark.parametrize("flags", [2, 3, 1 << 20])
def test_parse_version_with_an_unknown_feature_gives_none(dataset: lance.LanceDataset, flags: int) -> None:
    data = manifest_bytes(dataset, 1)
    (position,) = struct.unpack_from("<Q", data, len(data) - 16)
    (length,) = struct.unpack_from("<I", data, position)
    number, name = flags, b"\x48"
    while number >= 0x80:
        name += bytes([number & 0x7F | 0x80])
        number >>= 7
    message = data[position + 4 : position + 4 + length] + name + bytes([number])
    changed = data[:position] + struct.pack("<I", len(message)) + message + data[-16:]
    assert parse_version(data) is not None
    assert parse_version(changed) is None


def test_parse_fragment_with_an_unknown_field_gives_none() -> None:
    def field(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value

    def version(fragment: bytes) -> bytes:
        message = field(2, fragment) + b"\x18\x05"
        return struct.pack("<I", len(message)) + message + struct.pack("<QHH4s", 0, 0, 2, b"LANC")

    plain = field(2, field(1, b"a.lance")) + b"\x20\x03"
    found = parse_version(version(plain))
    assert stored(found) == [(StoredFragment(0, "a.lance", None, 3, 3, (None,)), (None,))]
    assert parse_version(version(plain + field(5, b"row ids"))) is None
    assert parse_version(version(field(2, field(1, b"a.lance") + b"\x38\x01") + b"\x20\x03")) is None
    assert parse_version(version(plain + field(3, b"\x08\x01"))) is None


def test_read_missing_version_or_file_of_another_version_gives_none(dataset: lance.LanceDataset) -> None:
    file = f"{dataset.uri}/{version_file(2)}"
    assert read_version(file, 2) is not None
    assert read_version(file, 3) is None
    assert read_version(f"{dataset.uri}/{version_file(99)}", 99) is None


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the datasets that were opened."""
    seen: list[str] = []
    open_ = LanceRoot.open

    def counted(self: LanceRoot, path: str, version: int | None = None) -> lance.LanceDataset:
        seen.append(path)
        return open_(self, path, version)

    monkeypatch.setattr(LanceRoot, "open", counted)
    return seen


def test_list_fragments_of_a_local_table_does_not_open_the_version(
    root: LanceRoot, opened: list[str]
) -> None:
    with og.init(root.uri, SCHEMA) as g:
        g.load({"Person": [{"name": "Ann"}, {"name": "Bo"}]})
        (pin,) = [pin for pin in g.snapshot().types.values() if pin.rows]
    opened.clear()
    (fragment,) = list_fragments(Tables(root), TablePin(pin.path, pin.version, 2, ""))
    assert (fragment.rows, fragment.physical_rows, opened) == (2, 2, [])


def test_refresh_after_commit_of_another_handle_opens_nothing(root: LanceRoot, opened: list[str]) -> None:
    with og.init(root.uri, SCHEMA) as g:
        manifest = Manifest.open(root)
        receipt = g.load({"Person": [{"name": "Ann"}]})
        opened.clear()
        before = manifest.view
        view = manifest.refresh()
        head = manifest.head(view, "main")
        assert view.version > before.version
        assert head is not None
        assert receipt.commit is not None
        assert head.commit.id == receipt.commit.id
        assert opened == []
        # A write opens the version that it replaces.
        assert view.dataset.version == view.version


def test_read_large_file_of_a_view_whose_version_was_removed_uses_the_newest(root: LanceRoot) -> None:
    with og.init(root.uri, SCHEMA) as g:
        manifest = Manifest.open(root)
        for number in range(4):
            g.branches.create(f"branch-{number}")
        old = manifest.refresh()
        g.load({"Person": [{"name": "Ann"}]})
        assert root.local is not None
        (root.local / "__manifest" / version_file(old.version)).unlink()
        # The bucket of branches has several rows, so Lance reads it.
        assert sorted(manifest.branches(old)) == sorted(["main", *(f"branch-{n}" for n in range(4))])

"""Truncated and missing files are found before a commit refers to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import StorageError
from omnigraph.store.lance.file_checks import bitmap_size, check_complete, check_transaction
from omnigraph.store.lance.lance_files import transaction_file, version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.location import Location
from tests.support.full_disk import largest_file
from tests.support.places import fresh_memory

ROWS = 20_000
CITIES = "query all() { match { $c: City } return { $c.name as name } order { name } }"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Lance dataset with a data file, deletion files of both kinds, an index, a transaction and versions."""
    folder = tmp_path_factory.mktemp("table") / "t"
    dataset = lance.write_dataset(pa.table({"id": np.arange(ROWS)}), str(folder))
    dataset.delete("id = 7")
    dataset.delete("id % 2 = 0 AND id < 15000")
    dataset.create_scalar_index("id", "BTREE")
    return folder


def files(table: Path) -> Iterator[Path]:
    return (path for path in table.rglob("*") if path.suffix in (".lance", ".manifest", ".arrow", ".bin"))


def test_check_complete_accepts_every_kind_of_file(table: Path) -> None:
    found = list(files(table))
    assert {path.suffix for path in found} == {".lance", ".manifest", ".arrow", ".bin"}
    check_complete(found)


def test_check_complete_truncated_file_names_it(table: Path, tmp_path: Path) -> None:
    for path in files(table):
        whole = path.read_bytes()
        for size in {0, 1, len(whole) // 2, len(whole) - 4, len(whole) - 1}:
            cut = tmp_path / path.name
            cut.write_bytes(whole[:size])
            with pytest.raises(StorageError, match="is incomplete") as refused:
                check_complete([cut])
            assert refused.value.details["file"] == str(cut)


def test_check_complete_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        check_complete([tmp_path / "gone.lance"])


def test_check_transaction_compares_with_the_copy_in_the_version(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    dataset = lance.write_dataset(pa.table({"id": [1]}), str(folder))
    fragments = lance.fragment.write_fragments(pa.table({"id": [2]}), dataset, mode="append")
    transaction = lance.Transaction(dataset.version, lance.LanceOperation.Append(fragments))
    committed = lance.LanceDataset.commit(dataset, transaction, detached=True)
    file, version = folder / transaction_file(transaction), folder / version_file(committed.version)
    manifest = version.read_bytes()
    check_transaction(file.name, file.read_bytes(), manifest)
    root = LanceRoot.at(Location.parse(str(tmp_path)), {}, "os")
    names = transaction_file(transaction), version_file(committed.version)
    root.seal_version("t", {}, *names)
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        with pytest.raises(StorageError, match="is incomplete"):
            check_transaction(file.name, file.read_bytes(), manifest)
        with pytest.raises(StorageError, match="is incomplete"):
            root.seal_version("t", {}, *names)
    file.unlink()
    with pytest.raises(StorageError, match="cannot be read back"):
        root.seal_version("t", {}, *names)


def test_bitmap_size_of_truncated_header_is_unknown() -> None:
    assert bitmap_size(b"\x3a\x30\x00\x00") is None


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_write_on_a_full_disk_is_refused_or_readable(place: str, tmp_path: Path) -> None:
    """A graph in memory has only the temporary files of uploads on a disk."""
    uri = fresh_memory() if place == "memory" else str(tmp_path / "g.omni")
    messages: list[str] = []
    written = ["Bern"]
    with closing(og.init(uri, schema="node City { name: String @key }")) as graph:
        graph.load({"City": [{"name": "Bern"}]})
        for size in range(100, 1_000, 50):
            try:
                with largest_file(size):
                    graph.load({"City": [{"name": f"City {size}"}]})
            except StorageError as error:
                messages.append(error.message)
            else:
                written.append(f"City {size}")
            assert sorted(row["name"] for row in graph.query(CITIES).rows()) == sorted(written)
        assert any("is incomplete" in message for message in messages), messages
        with closing(og.open(uri)) as again:
            again.load({"City": [{"name": "Oslo"}]})
            assert len(again.query(CITIES).rows()) == len(written) + 1

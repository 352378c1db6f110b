"""The files that versions need are exactly the files on disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import NotFound
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.location import Location
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.tables.staged_table import StagedTable
from omnigraph.store.tables.table_files import NeededFiles, TableFile, TableFiles
from omnigraph.store.tables.tables import COMPACT_AT, Tables
from tests.support.rows import compact

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
PATH = "nodes/7-t"


class Bench:
    """A table that is changed in steps."""

    def __init__(self, folder: Path) -> None:
        location = Location.parse(str(folder))
        self.folder = folder
        self.root = LanceRoot.at(location, {}, "os")
        self.tables = Tables(self.root)
        self.files = TableFiles(self.root, ObjectStore.open(location, durability="os"))
        self.pins = [TablePin(PATH, self.tables.create(PATH, SCHEMA).version, 0, "c")]

    @property
    def last(self) -> TablePin:
        return self.pins[-1]

    def take(self, staged: StagedTable) -> None:
        self.pins.append(TablePin(PATH, staged.version, staged.rows, "c"))

    def insert(self, *ids: str, delete: tuple[str, ...] = ()) -> None:
        rows = pa.table({"id": list(ids), "n": list(range(len(ids)))}, schema=SCHEMA) if ids else None
        self.take(self.tables.stage(self.last, insert=rows, delete_ids=delete))

    def needed(self, pin: TablePin) -> NeededFiles:
        return self.files.needed_by(pin.path, pin.version)

    def on_disk(self) -> set[str]:
        table = self.folder / PATH
        return {path.relative_to(table).as_posix() for path in table.rglob("*") if path.is_file()}

    def fresh(self) -> Tables:
        return Tables(LanceRoot.at(Location.parse(str(self.folder)), {}, "os"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.insert("a", "b", "c")
    bench.insert("d", delete=("b",))
    bench.take(bench.tables.stage_index(bench.last, "id", "BTREE"))
    bench.insert("e", delete=("a", "d"))
    wider = SCHEMA.append(pa.field("extra", pa.string()))
    bench.take(bench.tables.stage_columns(bench.last, wider))
    bench.take(compact(bench.tables, bench.last))
    bench.take(bench.tables.stage_index(bench.last, "id", "BTREE"))
    bench.take(bench.tables.stage_overwrite(bench.last, [], wider))
    return bench


def test_together_the_versions_of_a_table_need_every_file_it_has(bench: Bench) -> None:
    needed = NeededFiles.union(bench.needed(pin) for pin in bench.pins)
    unneeded = {name for name in bench.on_disk() if name not in needed}
    assert unneeded == {"_versions/latest_version_hint.json"}
    assert needed.files <= bench.on_disk()


def test_each_version_reads_from_exactly_the_files_it_needs(bench: Bench, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "nodes", kept)
    for pin in bench.pins:
        before = bench.fresh().scan(pin), bench.fresh().scan(pin, where="id = 'c'")
        needed = bench.needed(pin)
        for name in bench.on_disk():
            if name not in needed:
                (tmp_path / PATH / name).unlink()
        assert (bench.fresh().scan(pin), bench.fresh().scan(pin, where="id = 'c'")) == before
        assert bench.fresh().stage(pin, delete_ids=["c"]).rows >= 0
        shutil.rmtree(tmp_path / "nodes")
        shutil.copytree(kept, tmp_path / "nodes")


def test_without_any_one_of_its_files_a_version_never_reads_wrong_rows(bench: Bench, tmp_path: Path) -> None:
    """Lance must report a missing file. Otherwise a partly removed version would look complete."""
    for pin in bench.pins:
        whole = bench.fresh().scan(pin), bench.fresh().scan(pin, where="id = 'c'")
        for name in sorted(bench.on_disk()):
            if name not in bench.needed(pin):
                continue
            file = tmp_path / PATH / name
            aside = tmp_path / "aside"
            file.rename(aside)
            for position, where in enumerate((None, "id = 'c'")):
                try:
                    assert bench.fresh().scan(pin, where=where) == whole[position], name
                except NotFound:
                    continue
            aside.rename(file)


def test_a_version_of_which_small_fragments_were_folded_needs_none_of_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(COMPACT_AT + 1):
        bench.insert(f"id{number}")
    data = {name for name in bench.needed(bench.last).files if name.startswith("data/")}
    assert len(data) == 2
    assert len({name for name in bench.on_disk() if name.startswith("data/")}) == COMPACT_AT + 2


def test_a_version_that_is_gone_is_not_found(bench: Bench) -> None:
    version = bench.last.version
    assert bench.files.has_version(PATH, version)
    (bench.folder / PATH / "_versions" / f"d{version}.manifest").unlink()
    assert not bench.files.has_version(PATH, version)
    with pytest.raises(NotFound):
        Bench.needed(bench, bench.last)


@pytest.mark.parametrize(
    ("name", "removable"),
    [
        ("_versions/d9223372036854775809.manifest", True),
        ("_versions/d9223372036854775809.manifest#1", True),
        ("_versions/18446744073709551614.manifest", False),
        ("_versions/latest_version_hint.json", False),
        ("data/0.lance", True),
        ("data/0/1.blob", True),
        ("_deletions/0-1-2.arrow", True),
        ("_indices/u/page_data.lance", True),
        ("_transactions/1-u.txn", True),
        ("_refs/tags/x.json", False),
        ("somebody-elses.txt", False),
    ],
)
def test_only_files_of_known_kinds_may_be_removed_and_never_the_head_lineage(
    name: str, removable: bool
) -> None:
    assert TableFile(name, 0, 0).is_removable is removable


def test_a_folder_is_needed_with_everything_in_it() -> None:
    needed = NeededFiles(frozenset({"data/a.lance"}), frozenset({"data/a", "_indices/u"}))
    assert "data/a.lance" in needed
    assert "data/a/1.blob" in needed
    assert "_indices/u/page_data.lance" in needed
    assert "_indices/v/page_data.lance" not in needed
    assert "data/b.lance" not in needed
    assert "data/a" not in needed


def test_versions_go_before_what_they_consist_of(bench: Bench) -> None:
    listing = bench.files.table(PATH)
    order = [file.name for batch in bench.files.remove(PATH, listing.files) for file in batch]
    kinds = [name.startswith("_versions/") and name.endswith(".manifest") for name in order]
    assert kinds == sorted(kinds, reverse=True)
    assert bench.on_disk() == set()
    assert not list((bench.folder / PATH / "_indices").iterdir())


def test_a_table_that_is_removed_leaves_no_folder(bench: Bench) -> None:
    listing = bench.files.table(PATH)
    assert sum(len(batch) for batch in bench.files.remove_table(listing)) == len(listing.files)
    assert not (bench.folder / PATH).exists()


def test_listing_names_each_table_with_its_files_and_nothing_else(bench: Bench) -> None:
    bench.tables.create("nodes/8-u", SCHEMA)
    (bench.folder / "nodes" / "stray.txt").write_text("not in a table")
    found = {item.path: {file.name for file in item.files} for item in bench.files.tables("nodes")}
    assert set(found) == {PATH, "nodes/8-u"}
    assert found[PATH] == bench.on_disk()


def test_files_of_a_graph_in_memory_cannot_be_seen() -> None:
    location = Location.parse("memory://files-test")
    files = TableFiles(LanceRoot.at(location, {}, "os"), ObjectStore.open(location))
    assert not files.are_visible
    assert list(files.tables("nodes")) == []

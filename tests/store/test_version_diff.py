"""Comparison of two versions: shared fragments are not read, and differences are exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.row_addresses import ROW_ADDRESS
from omnigraph.store.tables.table_fragments import list_fragments
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.version_diff import (
    Slice,
    VersionDiff,
    compare_versions,
    slice_rows,
    take_addresses,
)
from tests.support.places import lance_root
from tests.support.rows import PATH, arrow, make_table, pin_of, stage


def ids_of(tables: Tables, pin: TablePin, slices: tuple[Slice, ...]) -> list[str]:
    batches = slice_rows(tables, pin, slices, ["id"])
    return sorted(id_ for batch in batches for id_ in batch.column("id").to_pylist())


def only(tables: Tables, before: TablePin, after: TablePin) -> tuple[list[str], list[str]]:
    """Return the ids of rows that only one of two versions stores; check the counts."""
    diff = compare_versions(tables, before, after)
    removed, added = ids_of(tables, before, diff.removed), ids_of(tables, after, diff.added)
    assert (len(removed), len(added)) == (diff.removed_rows, diff.added_rows)
    return removed, added


def many(start: int, stop: int) -> dict[str, str | None]:
    return {f"{number:05}": f"row {number}" for number in range(start, stop)}


def test_one_version_against_itself_opens_nothing(uri: str) -> None:
    tables = Tables(lance_root(uri))
    nowhere = TablePin("nodes/none", 7, 0, "content")
    assert compare_versions(tables, nowhere, nowhere) == VersionDiff()


def test_two_absent_tables_are_the_same(uri: str) -> None:
    assert compare_versions(Tables(lance_root(uri)), None, None) == VersionDiff()


def test_a_version_that_is_not_there_is_not_found(uri: str) -> None:
    tables, pin = make_table(uri)
    with pytest.raises(NotFound):
        compare_versions(tables, pin, TablePin(PATH, 99, 0, "content"))


def test_what_was_inserted_and_deleted_is_the_difference(uri: str) -> None:
    tables, pin = make_table(uri)
    before = stage(tables, pin, {"a": "1", "b": "2", "c": "3"})
    after = stage(tables, before, {"d": "4"}, delete=["b"])
    assert only(tables, before, after) == (["b"], ["d"])
    assert only(tables, after, before) == (["d"], ["b"])


def test_deletions_of_both_sides_in_one_fragment_are_told_apart(uri: str) -> None:
    tables, pin = make_table(uri)
    base = stage(tables, stage(tables, pin, {"a": "1", "b": "2", "c": "3", "d": "4"}), delete=["a"])
    left, right = stage(tables, base, delete=["b", "c"]), stage(tables, base, delete=["c", "d"])
    assert only(tables, left, right) == (["d"], ["b"])


def test_the_same_deletion_on_both_sides_is_no_difference(uri: str) -> None:
    tables, pin = make_table(uri)
    base = stage(tables, pin, {"a": "1", "b": "2"})
    left, right = stage(tables, base, delete=["a"]), stage(tables, base, delete=["a"])
    assert list_fragments(tables, left) != list_fragments(tables, right)
    assert compare_versions(tables, left, right) == VersionDiff()


def test_fragments_of_one_number_on_two_branches_are_different(uri: str) -> None:
    tables, pin = make_table(uri)
    base = stage(tables, pin, {"a": "1"})
    left, right = stage(tables, base, {"l": "x"}), stage(tables, base, {"r": "x"})
    assert [part.id for part in list_fragments(tables, left)] == [
        part.id for part in list_fragments(tables, right)
    ]
    assert only(tables, left, right) == (["l"], ["r"])


def test_an_absent_table_has_none_of_the_rows(uri: str) -> None:
    tables, pin = make_table(uri)
    full = stage(tables, stage(tables, pin, {"a": "1", "b": "2"}), {"c": "3"}, delete=["a"])
    made, gone = compare_versions(tables, None, full), compare_versions(tables, full, None)
    assert ids_of(tables, full, made.added) == ids_of(tables, full, gone.removed) == ["b", "c"]
    assert (made.added_rows, made.removed_rows, gone.added_rows, gone.removed_rows) == (2, 0, 0, 2)


def test_tables_at_two_paths_share_nothing(uri: str) -> None:
    tables, pin = make_table(uri)
    here = stage(tables, pin, {"a": "1"})
    schema = tables.open(PATH, pin.version).schema
    empty = TablePin("nodes/2-y", tables.create("nodes/2-y", schema).version, 0, "content")
    there = pin_of(tables.stage(empty, insert=arrow({"a": "1"}, schema)))
    assert only(tables, here, there) == (["a"], ["a"])


@pytest.mark.parametrize("deleted", [3, 900])
def test_few_and_many_rows_of_a_fragment_are_read_with_their_addresses(uri: str, deleted: int) -> None:
    tables, pin = make_table(uri)
    before = stage(tables, stage(tables, pin, many(0, 5)), many(5, 1_000))
    gone = [f"{number:05}" for number in range(5 + deleted) if number % 7 or deleted == 3]
    after = stage(tables, before, delete=gone)
    diff = compare_versions(tables, before, after)
    assert ids_of(tables, before, diff.removed) == gone
    for batch in slice_rows(tables, before, diff.removed, ["name"]):
        assert batch.schema.names == ["name", ROW_ADDRESS]
        again = take_addresses(tables, before, batch.column(ROW_ADDRESS).to_numpy(), ["name"])
        assert again["name"].to_pylist() == batch.column("name").to_pylist()
    counts = [batch.num_rows for batch in slice_rows(tables, before, diff.removed, [])]
    assert sum(counts) == len(gone)


def test_rows_are_taken_in_the_order_of_the_addresses(uri: str) -> None:
    tables, pin = make_table(uri)
    full = stage(tables, stage(tables, pin, {"a": "1", "b": "2", "c": "3"}), {"d": "4"}, delete=["b"])
    diff = compare_versions(tables, None, full)
    (rows,) = [batch for batch in slice_rows(tables, full, diff.added, ["id"]) if "a" in batch[0].to_pylist()]
    at = dict(zip(rows["id"].to_pylist(), rows[ROW_ADDRESS].to_pylist(), strict=True))
    d = np.uint64(1 << 32)
    wanted = np.array([d, at["c"], at["a"], at["c"]], np.uint64)
    found = take_addresses(tables, full, wanted, ["name", "id"])
    assert found.to_pydict() == {"name": ["4", "3", "1", "3"], "id": ["d", "c", "a", "c"]}


def test_taking_a_deleted_row_is_an_error_and_not_a_shorter_answer(uri: str) -> None:
    tables, pin = make_table(uri)
    full = stage(tables, stage(tables, pin, {"a": "1", "b": "2"}), delete=["a"])
    with pytest.raises(StorageError, match="expected 2 rows by address, got 1"):
        take_addresses(tables, full, np.array([0, 1], np.uint64), ["id"])


def test_comparing_reads_no_data_file(tmp_path: Path) -> None:
    tables, pin = make_table(str(tmp_path / "graph"))
    before = stage(tables, stage(tables, pin, many(0, 50)), many(50, 100))
    after = stage(tables, before, {"new": "x"}, delete=["00007", "00060"])
    for file in (tmp_path / "graph" / PATH / "data").iterdir():
        file.unlink()
    cold = Tables(lance_root(str(tmp_path / "graph")))
    diff = compare_versions(cold, before, after)
    assert (diff.removed_rows, diff.added_rows) == (2, 1)
    with pytest.raises(NotFound):
        ids_of(cold, before, diff.removed)


def test_rows_that_are_scanned_and_rows_that_are_taken_fit_into_one_table(uri: str) -> None:
    tables, pin = make_table(uri)
    before = stage(tables, stage(tables, pin, many(0, 100)), {"whole": "1"})
    after = stage(tables, before, delete=["whole", "00007"])
    diff = compare_versions(tables, before, after)
    assert sorted(item.offsets is None for item in diff.removed) == [False, True]
    batches = list(slice_rows(tables, before, diff.removed, ["id"]))
    assert sorted(pa.Table.from_batches(batches)["id"].to_pylist()) == ["00007", "whole"]

"""Fragments of tables: equal fragments have equal rows, and rows are found by position."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.errors import NotFound
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.deletion_files import deleted_offsets, parse_bitmap
from omnigraph.store.tables.table_fragments import (
    TableFragment,
    find_rows,
    list_fragments,
    live_offsets,
    read_fragments,
    take_positions,
)
from omnigraph.store.tables.table_indexes import list_indexes
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.version_diff import take_addresses
from tests.support.rows import SCHEMA, compact, make_table, pin_of, stage

COLUMNS = ["id", "name"]


def rows_of(tables: Tables, pin: TablePin, part: TableFragment) -> list[tuple[str, str | None]]:
    (found,) = read_fragments(tables, pin, [part], COLUMNS)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def in_order(tables: Tables, pin: TablePin) -> list[tuple[str, str | None]]:
    """Return the rows in the order of a Lance scan."""
    found = tables.open(pin.path, pin.version).to_table(columns=COLUMNS)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def grown(uri: str) -> tuple[Tables, TablePin]:
    """Return a table with three fragments, the second with a deletion."""
    tables, pin = make_table(uri)
    pin = stage(tables, pin, {"a": "1", "b": None})
    pin = stage(tables, pin, {"c": "3", "d": "4", "e": "5"})
    pin = stage(tables, pin, {"f": "6"}, delete=["d"])
    return tables, pin


def test_an_empty_table_has_no_part(uri: str) -> None:
    tables, pin = make_table(uri)
    assert list_fragments(tables, pin) == ()
    assert read_fragments(tables, pin, (), COLUMNS) == []


def test_the_parts_together_are_the_rows_in_order(uri: str) -> None:
    tables, pin = grown(uri)
    parts = list_fragments(tables, pin)
    assert [part.rows for part in parts] == [2, 2, 1]
    together = [row for part in parts for row in rows_of(tables, pin, part)]
    assert together == in_order(tables, pin)
    assert sum(part.rows for part in parts) == pin.rows


def test_some_parts_are_read_in_the_order_asked_for(uri: str) -> None:
    tables, pin = grown(uri)
    parts = list_fragments(tables, pin)
    first, last = read_fragments(tables, pin, [parts[0], parts[2]], COLUMNS)
    assert first["id"].to_pylist() == ["a", "b"]
    assert last["id"].to_pylist() == ["f"]


def test_parts_that_a_change_does_not_touch_stay_the_same(uri: str) -> None:
    tables, pin = grown(uri)
    before = list_fragments(tables, pin)
    later = stage(tables, pin, {"g": "7"}, delete=["a"])
    after = list_fragments(tables, later)
    assert after[1:3] == before[1:3]
    assert after[0].files == before[0].files
    assert (before[0].deletions, after[0].rows) == (None, 1)
    assert after[0].deletions is not None


def test_more_deletions_in_a_part_are_another_identity(uri: str) -> None:
    tables, pin = grown(uri)
    later = stage(tables, pin, delete=["e"])
    once, twice = list_fragments(tables, pin)[1], list_fragments(tables, later)[1]
    assert once.files == twice.files
    assert once.deletions != twice.deletions
    assert rows_of(tables, pin, once) == [("c", "3"), ("e", "5")]
    assert rows_of(tables, later, twice) == [("c", "3")]


def test_live_rows_are_the_places_that_deletions_leave(uri: str) -> None:
    tables, pin = grown(uri)
    parts = list_fragments(tables, pin)
    assert live_offsets(tables, pin, parts[1]).tolist() == [0, 2]
    later = stage(tables, pin, delete=["c"])
    assert live_offsets(tables, later, list_fragments(tables, later)[1]).tolist() == [2]


def test_two_versions_of_one_base_have_fragments_of_one_number_and_different_files(uri: str) -> None:
    tables, pin = grown(uri)
    left, right = stage(tables, pin, {"x": "left"}), stage(tables, pin, {"x": "right"})
    one, other = list_fragments(tables, left)[-1], list_fragments(tables, right)[-1]
    assert one.id == other.id
    assert one.files != other.files
    assert rows_of(tables, left, one) == [("x", "left")]
    assert rows_of(tables, right, other) == [("x", "right")]


def test_two_versions_of_one_base_that_delete_different_rows_are_told_apart(uri: str) -> None:
    tables, pin = grown(uri)
    left, right = stage(tables, pin, delete=["a"]), stage(tables, pin, delete=["b"])
    one, other = list_fragments(tables, left)[0], list_fragments(tables, right)[0]
    assert one.files == other.files
    assert one.deletions != other.deletions


def test_a_rewrite_leaves_other_files_and_the_same_rows(uri: str) -> None:
    tables, pin = grown(uri)
    later = pin_of(compact(tables, pin))
    assert not {part.files for part in list_fragments(tables, pin)} & {
        part.files for part in list_fragments(tables, later)
    }
    assert sorted(in_order(tables, later)) == sorted(in_order(tables, pin))


def test_a_column_added_later_is_null_in_the_parts_that_were_there(uri: str) -> None:
    tables, pin = grown(uri)
    wider = SCHEMA.append(pa.field("age", pa.int64()))
    later = pin_of(tables.stage_columns(pin, wider))
    ages = [
        column
        for part in list_fragments(tables, later)
        for column in read_fragments(tables, later, [part], ["age"])[0]["age"].to_pylist()
    ]
    assert ages == [None] * pin.rows


def test_rows_are_taken_by_position_in_the_order_asked_for(uri: str) -> None:
    tables, pin = grown(uri)
    rows = in_order(tables, pin)
    wanted = np.array([4, 0, 2], np.int64)
    found = take_positions(tables, pin, wanted, COLUMNS)
    assert found["id"].to_pylist() == [rows[place][0] for place in wanted]


def found_ids(tables: Tables, pin: TablePin, where: str) -> list[str]:
    """Return the ids of the rows that a filter selects, by their addresses."""
    addresses, rows = find_rows(tables, pin, where, ["id"])
    assert take_addresses(tables, pin, addresses, ["id"])["id"].to_pylist() == rows["id"].to_pylist()
    return sorted(rows["id"].to_pylist())


def test_find_rows_returns_the_addresses_of_the_rows_and_their_columns(uri: str) -> None:
    tables, pin = grown(uri)
    expected = [id_ for id_, name in in_order(tables, pin) if name in ("6", "1", "5")]
    assert found_ids(tables, pin, "name IN ('6', '1', '5')") == expected


def test_find_rows_by_an_index_returns_the_rows_of_a_scan(uri: str) -> None:
    tables, pin = grown(uri)
    where = "id IN ('f', 'c', 'd', 'zz')"
    expected = found_ids(tables, pin, where)
    indexed = pin_of(tables.stage_index(pin, "id", "BTREE"))
    assert list_indexes(tables, pin) == []
    assert [(item.columns, item.rows) for item in list_indexes(tables, indexed)] == [(("id",), indexed.rows)]
    assert found_ids(tables, indexed, where) == expected == ["c", "f"]
    later = stage(tables, indexed, {"zz": "9"}, delete=["a"])
    assert found_ids(tables, later, where) == ["c", "f", "zz"]


@pytest.mark.parametrize("count", [1, 3, 6_000, 40_000])
def test_deleted_offsets_of_a_deletion_file_are_those_that_a_scan_leaves_out(
    tmp_path: Path, count: int
) -> None:
    tables, pin = make_table(str(tmp_path))
    pin = stage(tables, pin, {f"{number:06}": "x" for number in range(140_000)})
    gone = np.sort(np.random.default_rng(count).choice(140_000, count, replace=False))
    changed = tables.stage(pin, delete_addresses=gone.tolist())
    later = pin_of(changed)
    (part,) = list_fragments(tables, later)
    assert deleted_offsets(tables, later, part).tolist() == gone.tolist()
    assert set(live_offsets(tables, later, part).tolist()) == set(range(140_000)) - set(gone.tolist())


def test_deleted_offsets_without_a_deletion_file_are_none(uri: str) -> None:
    tables, pin = grown(uri)
    assert [deleted_offsets(tables, pin, part).tolist() for part in list_fragments(tables, pin)] == [
        [],
        [1],
        [],
    ]


def test_a_bitmap_of_runs_is_parsed() -> None:
    runs = "3b30 0000" + "01" + "0000 0500" + "0200" + "0100 0200" + "0a00 0200"
    assert parse_bitmap(bytes.fromhex(runs)).tolist() == [1, 2, 3, 10, 11, 12]
    with pytest.raises(ValueError, match="does not start a Roaring bitmap"):
        parse_bitmap(b"nonsense")


def test_a_version_that_is_not_there_is_not_found(uri: str) -> None:
    tables, pin = grown(uri)
    gone = TablePin(pin.path, pin.version + 1, pin.rows, pin.content)
    with pytest.raises(NotFound):
        list_fragments(tables, gone)
    with pytest.raises(NotFound):
        find_rows(tables, gone, "true")

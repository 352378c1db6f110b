"""Translation of row addresses from one version of a table to another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.staged_table import StagedTable
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.version_diff import take_addresses, translate_addresses
from tests.support.places import fresh_memory, lance_root
from tests.support.rows import compact

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("name", pa.string())])


@pytest.fixture
def tables() -> Tables:
    return Tables(lance_root(fresh_memory()))


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "name": [id_.upper() for id_ in ids]}, schema=SCHEMA)


def pinned(staged: StagedTable) -> TablePin:
    return TablePin(staged.path, staged.version, staged.rows, "c")


def grown(tables: Tables, *parts: tuple[str, ...]) -> TablePin:
    """Return a table with one fragment for each group of ids."""
    pin = TablePin("nodes/t", tables.create("nodes/t", SCHEMA).version, 0, "c")
    for part in parts:
        pin = pinned(tables.stage(pin, insert=rows(*part)))
    return pin


def located(tables: Tables, pin: TablePin) -> dict[str, int]:
    """Return the address of every live row by id."""
    found = tables.open(pin.path, pin.version).to_table(columns=["id"], with_row_address=True)
    return dict(zip(found["id"].to_pylist(), found["_rowaddr"].to_pylist(), strict=True))


def follow(
    tables: Tables, before: TablePin, after: TablePin, ids: str
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    known = located(tables, before)
    return translate_addresses(tables, before, after, np.array([known[id_] for id_ in ids], np.uint64))


def check(tables: Tables, before: TablePin, after: TablePin, ids: str, lost: str = "") -> None:
    """Check that all rows except the lost ones are found at their new addresses."""
    carried, found = follow(tables, before, after, ids)
    assert [id_ for id_, there in zip(ids, found, strict=True) if not there] == list(lost)
    assert carried[found].tolist() == [located(tables, after)[id_] for id_ in ids if id_ not in lost]
    ordered = np.sort(carried[found])
    if len(ordered):
        assert set(take_addresses(tables, after, ordered, ["id"])["id"].to_pylist()) == set(ids) - set(lost)


def test_rows_stay_where_they_are_when_others_are_added(tables: Tables) -> None:
    before = grown(tables, ("a", "b"), ("c",))
    after = pinned(tables.stage(before, insert=rows("d")))
    check(tables, before, after, "cab")


def test_rows_of_the_same_version_are_where_they_are(tables: Tables) -> None:
    before = grown(tables, ("a", "b"))
    check(tables, before, before, "ba")


def test_deleted_rows_are_not_there_and_their_neighbours_are(tables: Tables) -> None:
    before = grown(tables, ("a", "b", "c"), ("d",))
    after = pinned(tables.stage(before, delete_ids=["b"]))
    check(tables, before, after, "abcd", lost="b")


def test_a_whole_fragment_that_is_gone_has_no_rows(tables: Tables) -> None:
    before = grown(tables, ("a", "b"), ("c",))
    after = pinned(tables.stage(before, delete_ids=["a", "b"]))
    check(tables, before, after, "abc", lost="ab")


def test_rows_that_are_stored_again_are_not_there(tables: Tables) -> None:
    before = grown(tables, ("a", "b", "c"))
    after = pinned(tables.stage(before, delete_ids=["a"], insert=rows("a")))
    check(tables, before, after, "abc", lost="a")


def test_nothing_is_there_after_a_compaction_of_it(tables: Tables) -> None:
    before = grown(tables, ("a",), ("b",))
    after = pinned(compact(tables, before))
    assert after.version != before.version
    check(tables, before, after, "ab", lost="ab")


def test_deletions_from_before_are_not_held_against_rows(tables: Tables) -> None:
    """Offsets count deleted rows too."""
    before = pinned(tables.stage(grown(tables, ("a", "b", "c", "d")), delete_ids=["a"]))
    after = pinned(tables.stage(before, delete_ids=["c"]))
    check(tables, before, after, "bcd", lost="c")


def test_fragments_of_two_branches_with_one_number_are_told_apart(tables: Tables) -> None:
    base = grown(tables, ("a",))
    one = pinned(tables.stage(base, insert=rows("b")))
    other = pinned(tables.stage(base, insert=rows("c")))
    assert located(tables, one)["b"] == located(tables, other)["c"]
    check(tables, one, other, "ab", lost="b")


def test_a_row_that_was_deleted_on_one_branch_is_there_on_another(tables: Tables) -> None:
    base = grown(tables, ("a", "b", "c"))
    one = pinned(tables.stage(base, delete_ids=["a"]))
    other = pinned(tables.stage(base, delete_ids=["b"]))
    check(tables, one, other, "bc", lost="b")
    check(tables, other, one, "ac", lost="a")


def test_columns_that_were_added_do_not_move_rows(tables: Tables) -> None:
    before = grown(tables, ("a", "b"))
    wider = pa.schema([*tables.schema(before), pa.field("age", pa.int32())])
    after = pinned(tables.stage_columns(before, wider))
    check(tables, before, after, "ab")


def test_another_table_has_none_of_the_rows(tables: Tables) -> None:
    before = grown(tables, ("a",))
    other = TablePin("nodes/u", tables.create("nodes/u", SCHEMA).version, 0, "c")
    check(tables, before, other, "a", lost="a")


def test_no_rows_are_asked_for(tables: Tables) -> None:
    before = grown(tables, ("a",))
    carried, found = translate_addresses(tables, before, before, np.zeros(0, np.uint64))
    assert len(carried) == len(found) == 0
    assert carried.dtype == np.uint64

"""The difference of two versions is what a comparison of all their rows gives, read from what they do not share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.diff.diff_ids import hash_ids
from omnigraph.engine.diff.diff_pairs import KEYS, pair_sorted
from omnigraph.engine.diff.table_diff import DELETE, INSERT, UPDATE, Side, TableDiff
from omnigraph.errors import InvalidInput, NotFound, StorageError
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.version_diff import compare_versions, slice_rows
from tests.engine.diffs import COLUMNS, Change, changes, diff_of, people
from tests.support.places import fresh_memory, lance_root
from tests.support.rows import PATH, SCHEMA, arrow, compact, make_table, pin_of, stage
from tests.support.waiting import HANG

HASHES = [0, 15208633714157532122, 18062871536439303024, 9203737613151666016]

# --- which rows are looked at ----------------------------------------------------------------------------


def test_files_that_both_versions_share_are_never_read(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    tables, pin = make_table(uri)
    base = people(tables, pin, 0, 300)
    changed = people(tables, base, 300, 310)
    data = tmp_path / "graph" / PATH / "data"
    first = tables.open(base.path, base.version).get_fragments()[0].data_files()[0].path
    after = stage(tables, changed, {"00301": "other", "new": "x"}, delete=["00301", "00302"])
    (data / first).unlink()
    cold = Tables(lance_root(uri))
    expected = [
        ("00301", UPDATE, "n301", "other"),
        ("00302", DELETE, "n302", None),
        ("new", INSERT, None, "x"),
    ]
    assert changes(diff_of(cold, changed, after).batches()) == expected
    with pytest.raises(NotFound):
        changes(diff_of(cold, pin, after).batches())


def test_rewritten_rows_of_equal_values_do_not_appear() -> None:
    tables, pin = make_table(fresh_memory())
    before = stage(tables, people(tables, pin, 0, 300), delete=["00003"])
    again = stage(tables, before, {"00005": "n5", "00006": "six"}, delete=["00005", "00006"])
    after = pin_of(compact(tables, again))
    diff = diff_of(tables, before, after)
    assert diff.rows == 598
    assert changes(diff.batches()) == [("00006", UPDATE, "n6", "six")]
    assert changes(diff_of(tables, again, after).batches()) == []


def test_what_is_stored_tells_about_adding_and_removing() -> None:
    tables, pin = make_table(fresh_memory())
    base = people(tables, pin, 0, 10)
    more, fewer = people(tables, base, 10, 12), stage(tables, base, delete=["00001"])
    for before, after, facts in (
        (base, base, (True, False, False, 0)),
        (base, more, (False, True, False, 2)),
        (base, fewer, (False, False, True, 1)),
        (more, fewer, (False, False, True, 3)),
        (None, base, (False, True, False, 10)),
    ):
        diff = diff_of(tables, before, after)
        assert (diff.is_empty, diff.adds, diff.removes, diff.rows) == facts
    assert TableDiff(None, None).is_empty
    assert list(TableDiff(None, None).batches()) == []


def test_equal_versions_are_not_even_opened() -> None:
    tables = Tables(lance_root(fresh_memory()))
    nowhere = TablePin("nodes/none", 7, 0, "content")
    assert list(diff_of(tables, nowhere, nowhere).batches()) == []


# --- what is asked for -----------------------------------------------------------------------------------


@pytest.mark.parametrize("in_memory_rows", [0, 1_000])
def test_ids_restrict_the_changes(in_memory_rows: int) -> None:
    tables, pin = make_table(fresh_memory())
    base = people(tables, pin, 0, 100)
    after = stage(tables, people(tables, base, 100, 200), {"00001": "x"}, delete=["00001", "00002"])
    diff = diff_of(tables, base, after, in_memory_rows)
    everything = changes(diff.batches())
    wanted = {"00001", "00002", "00003", "00150", "none"}
    some = pa.array(sorted(wanted, reverse=True))
    assert changes(diff.batches(ids=some)) == [item for item in everything if item[0] in wanted]
    assert changes(diff.batches(ids=some.cast(pa.large_string()), after_id="00002")) == [
        ("00150", INSERT, None, "n150")
    ]
    assert changes(diff.batches(ids=pa.array([], pa.string()))) == []


def test_pages_together_are_the_whole() -> None:
    tables, pin = make_table(fresh_memory())
    after = people(tables, pin, 0, 50)
    diff = diff_of(tables, None, after)
    paged: list[Change] = []
    while page := changes(iter([*diff.batches(after_id=paged[-1][0] if paged else None, batch_rows=7)][:1])):
        assert len(page) <= 7
        paged += page
    assert paged == changes(diff.batches())
    assert len(paged) == 50


def test_parts_share_out_the_changes() -> None:
    tables, pin = make_table(fresh_memory())
    base = people(tables, pin, 0, 200)
    after = pin_of(tables.stage_overwrite(base, arrow({"x": "y"}).to_batches(), SCHEMA))
    diff = diff_of(tables, base, after)
    parts = [changes(diff.batches(part=(number, 3))) for number in range(3)]
    assert all(len(part) > 40 for part in parts)
    for number, part in enumerate(parts):
        hashes = hash_ids(pa.array([id_ for id_, *_ in part]))
        assert (hashes % np.uint64(3) == number).all()
    assert sorted(item for part in parts for item in part) == sorted(changes(diff.batches()))


def test_the_hash_of_an_id_never_changes() -> None:
    # Written down, because tasks on other machines must agree.
    assert hash_ids(pa.array(["", "a", "Ann", "é"])).tolist() == HASHES
    ids = pa.array([f"person-{number}" for number in range(10_000)])
    hashes = hash_ids(ids)
    assert len(np.unique(hashes)) == len(ids)
    for shares in (2, 3, 8, 16):
        counts = np.bincount((hashes % np.uint64(shares)).astype(np.int64), minlength=shares)
        assert counts.min() > 0.8 * len(ids) / shares
    assert (hash_ids(ids.slice(7, 5)) == hashes[7:12]).all()


@pytest.mark.parametrize("wrong", [{"part": (3, 3)}, {"columns": ["none"]}, {"batch_rows": 0}])
def test_what_cannot_be_asked_for_is_refused_at_once(wrong: dict[str, Any]) -> None:
    tables, pin = make_table(fresh_memory())
    with pytest.raises(InvalidInput):
        diff_of(tables, None, pin).batches(**wrong)


# --- columns and images ----------------------------------------------------------------------------------

EDGES = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("src", pa.string(), nullable=False),
        pa.field("dst", pa.string(), nullable=False),
        pa.field("p1", pa.list_(pa.float32(), 2)),
        pa.field("p2", pa.struct([("data", pa.large_binary()), ("uri", pa.string())])),
        pa.field("p3", pa.list_(pa.string())),
    ]
)


def edges(rows: Mapping[str, tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(EDGES.names, (id_, *values), strict=True)) for id_, values in rows.items()], schema=EDGES
    )


def test_images_have_every_column_by_its_common_name() -> None:
    tables = Tables(lance_root(fresh_memory()))
    empty = TablePin("edges/1-e", tables.create("edges/1-e", EDGES).version, 0, "content")
    blob = {"data": b"x", "uri": None}
    old = {
        "u": ("a", "b", [1, 2], blob, ["t"]),
        "d": ("a", "c", None, None, None),
        "same": ("a", "a", None, None, []),
    }
    before = pin_of(tables.stage(empty, insert=edges(old)))
    new = {"u": ("a", "c", [1, 2], None, []), "i": ("b", "b", [0, 0], None, None), "same": old["same"]}
    after = pin_of(tables.stage(before, delete_ids=list(old), insert=edges(new)))
    ends = {"id": "id", "src": "src", "dst": "dst"}
    diff = TableDiff(
        Side(tables, before, {**ends, "vector": "p1", "old": "p2"}),
        Side(tables, after, {**ends, "tags": "p3", "vector": "p1"}),
    )
    assert diff.columns == ("id", "src", "dst", "tags", "vector", "old")
    (batch,) = diff.batches()
    assert batch.before.schema.names == batch.after.schema.names == list(diff.columns)
    assert all(field.nullable for field in [*batch.before.schema, *batch.after.schema])
    nothing = dict.fromkeys(diff.columns)
    assert batch.ids.to_pylist() == ["d", "i", "same", "u"]
    assert batch.ops.tolist() == [DELETE, INSERT, UPDATE, UPDATE]
    assert batch.before.to_pylist()[:2] == [{**nothing, "id": "d", "src": "a", "dst": "c"}, nothing]
    assert batch.before.to_pylist()[3] == {
        **nothing, "id": "u", "src": "a", "dst": "b", "vector": [1, 2], "old": blob,
    }  # fmt: skip
    assert batch.after.to_pylist() == [
        nothing,
        {**nothing, "id": "i", "src": "b", "dst": "b", "vector": [0, 0]},
        {**nothing, "id": "same", "src": "a", "dst": "a", "tags": []},
        {**nothing, "id": "u", "src": "a", "dst": "c", "vector": [1, 2], "tags": []},
    ]
    assert {name: flags.tolist() for name, flags in batch.changed.items()} == {
        "src": [True, True, False, False],
        "dst": [True, True, False, True],
        "tags": [False, False, True, True],
        "vector": [False, True, False, False],
        "old": [False, False, False, True],
    }
    (few,) = diff.batches(columns=["src", "vector"])
    assert few.ids.to_pylist() == ["d", "i"]
    assert few.after.schema.names == ["id", "src", "vector"]
    (bare,) = diff.batches(columns=[])
    assert (bare.ids.to_pylist(), bare.before.schema.names, dict(bare.changed)) == (["d", "i"], ["id"], {})


def test_addresses_lead_back_to_the_rows() -> None:
    tables, pin = make_table(fresh_memory())
    before = people(tables, people(tables, pin, 0, 5), 5, 10)
    after = stage(tables, before, {"00007": "x", "z": "y"}, delete=["00000", "00007"])
    (batch,) = diff_of(tables, before, after).batches()
    for pin_, addresses, image in (
        (before, batch.before_addresses, batch.before),
        (after, batch.after_addresses, batch.after),
    ):
        stored = compare_versions(tables, None, pin_).added
        at = {
            address: id_
            for part in slice_rows(tables, pin_, stored, ["id"])
            for id_, address in zip(*(column.to_pylist() for column in part.columns), strict=True)
        }
        ids = image["id"].to_pylist()
        assert [
            at[address] for address, id_ in zip(addresses.tolist(), ids, strict=True) if id_ is not None
        ] == [id_ for id_ in ids if id_ is not None]
    assert batch.ops.tolist() == [DELETE, UPDATE, INSERT]
    assert (batch.after_addresses[0], batch.before_addresses[2]) == (0, 0)


def test_a_column_of_two_types_is_refused() -> None:
    tables, pin = make_table(fresh_memory())
    other = TablePin(
        "nodes/2-y", tables.create("nodes/2-y", pa.schema([SCHEMA[0], ("name", pa.int64())])).version, 0, ""
    )
    rows = pa.table({"id": ["a"], "name": [1]}, schema=tables.open(other.path, other.version).schema)
    diff = diff_of(tables, people(tables, pin, 0, 1), pin_of(tables.stage(other, insert=rows)))
    with pytest.raises(InvalidInput, match="different types"):
        list(diff.batches())


def test_two_rows_of_one_id_are_an_error() -> None:
    tables, pin = make_table(fresh_memory())
    broken = stage(tables, stage(tables, pin, {"a": "1"}), {"a": "2"})
    for in_memory_rows in (0, 100):
        with pytest.raises(StorageError, match="two rows with one id"):
            list(diff_of(tables, None, broken, in_memory_rows).batches())


# --- on disk ---------------------------------------------------------------------------------------------


def test_an_id_may_be_split_between_batches() -> None:
    rows = [("a", False, 1), ("a", True, 2), ("b", True, 3), ("c", False, 4), ("c", True, 5), ("d", False, 6)]
    keys = pa.Table.from_pylist([dict(zip(KEYS.names, row, strict=True)) for row in rows], KEYS)
    for size in range(1, 8):
        batches = [KEYS.empty_table().to_batches(), keys.combine_chunks().to_batches(max_chunksize=size)]
        found = [
            item
            for pairs in pair_sorted(batch for part in batches for batch in part)
            for item in zip(
                pairs.ids.to_pylist(),
                pairs.ops.tolist(),
                pairs.before.tolist(),
                pairs.after.tolist(),
                strict=True,
            )
        ]
        assert found == [("a", UPDATE, 1, 2), ("b", INSERT, 0, 3), ("c", UPDATE, 4, 5), ("d", DELETE, 6, 0)]


def spilled(tables: Tables, after: TablePin, folder: Path) -> TableDiff:
    return TableDiff(None, Side(tables, after, COLUMNS), in_memory_rows=10, directory=folder)


def test_the_folder_is_gone_when_the_stream_ends_is_closed_or_fails(tmp_path: Path) -> None:
    tables, pin = make_table(str(tmp_path / "graph"))
    after = people(tables, pin, 0, 400)
    folder = tmp_path / "spill"
    folder.mkdir()
    ended = spilled(tables, after, folder).batches(batch_rows=100)
    assert len(next(ended)) == 100
    assert list(folder.iterdir()) != []
    assert sum(len(batch) for batch in ended) == 300
    assert list(folder.iterdir()) == []

    closed = spilled(tables, after, folder).batches(batch_rows=100)
    next(closed)
    assert list(folder.iterdir()) != []
    closed.close()  # type: ignore[attr-defined]
    assert list(folder.iterdir()) == []

    failing = spilled(Tables(lance_root(str(tmp_path / "graph"))), after, folder).batches(batch_rows=100)
    next(failing)
    for file in (tmp_path / "graph" / PATH / "data").iterdir():
        file.write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        list(failing)
    assert list(folder.iterdir()) == []
    assert caught.value.__traceback__ is not None


def test_few_changes_import_no_database() -> None:
    code = """
import sys
from tests.engine.diffs import changes, diff_of, people
from tests.support.places import fresh_memory
from tests.support.rows import make_table
tables, pin = make_table(fresh_memory())
after = people(tables, pin, 0, 50)
assert len(changes(diff_of(tables, pin, after).batches())) == 50
sys.exit("duckdb" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=HANG).returncode == 0

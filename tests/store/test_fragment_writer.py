"""Writes of rows that lack some columns of their table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.staged_table import StagedTable
from omnigraph.store.tables.tables import Tables
from tests.support.places import lance_root

KINDS = [
    pa.string(),
    pa.int32(),
    pa.uint64(),
    pa.float32(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("ms"),
    pa.list_(pa.string()),
    pa.list_(pa.float32(), 3),
    pa.struct([("data", pa.large_binary()), ("uri", pa.string())]),
]
ID = pa.field("id", pa.string(), nullable=False)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(lance_root(str(tmp_path)))


def pin(staged: StagedTable) -> TablePin:
    return TablePin(staged.path, staged.version, staged.rows, "content")


@pytest.mark.parametrize("required", [True, False])
def test_columns_that_rows_do_not_have_do_not_keep_them_out(tables: Tables, required: bool) -> None:
    gone = [pa.field(f"c{number}", kind, nullable=not required) for number, kind in enumerate(KINDS)]
    table = TablePin("t", tables.create("t", pa.schema([ID, *gone])).version, 0, "content")
    rows = pa.table({"id": ["a", "b"]}, schema=pa.schema([ID]))
    for staged in (
        tables.stage(table, insert=rows),
        tables.stage_rows(table, rows.to_batches(), rows.schema),
        tables.stage_overwrite(table, rows.to_batches(), rows.schema),
    ):
        assert tables.scan(pin(staged), ["id"])["id"].to_pylist() == ["a", "b"]
        whole = tables.scan(pin(staged))
        assert all(whole[item.name].null_count == (0 if required else 2) for item in gone)


def test_filled_columns_stand_beside_the_others(tables: Tables) -> None:
    table = TablePin("t", tables.create("t", pa.schema([ID])).version, 0, "content")
    ids = [f"n{number}" for number in range(3_000)]
    for part in (ids[:1_000], ids[1_000:]):
        table = pin(tables.stage(table, insert=pa.table({"id": part}, schema=pa.schema([ID]))))
    table = pin(tables.stage(table, delete_ids=ids[500:1_700]))
    wanted = pa.schema([pa.field("again", pa.string())])

    def again(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([batch.column("id")], schema=wanted)

    filled = tables.stage_computed_columns(table, ["id"], wanted, again)
    found = tables.scan(pin(filled))
    assert filled.rows == found.num_rows == 1_800
    assert found["again"].to_pylist() == found["id"].to_pylist()
    assert tables.schema(table).names == ["id"]


def test_filling_a_table_without_rows_only_adds_the_columns(tables: Tables) -> None:
    table = TablePin("t", tables.create("t", pa.schema([ID])).version, 0, "content")
    wanted = pa.schema([pa.field("again", pa.string())])
    filled = tables.stage_computed_columns(table, ["id"], wanted, lambda batch: batch)
    assert tables.schema(pin(filled)).names == ["id", "again"]

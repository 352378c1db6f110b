"""Tables of two columns, and what is in them as plain dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.staged_table import StagedTable
from omnigraph.store.tables.table_fragments import list_fragments
from omnigraph.store.tables.tables import COMPACTION_TIERS, Tables
from omnigraph.store.tables.uncommitted_fragments import rewrite_fragments
from tests.support.places import lance_root

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("name", pa.string())])
PATH = "nodes/1-x"

Rows = Mapping[str, str | None]


def arrow(rows: Rows, schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows as Arrow: ids first, then the one property."""
    return pa.Table.from_arrays(
        [pa.array(list(rows)), pa.array(list(rows.values()), pa.string())], schema=schema
    )


def plain(table: pa.Table) -> dict[str, str | None]:
    """Arrow as rows; every id occurs once."""
    ids, names = (table.column(number).to_pylist() for number in (0, 1))
    assert len(set(ids)) == len(ids), "an id occurs twice"
    return dict(zip(ids, names, strict=True))


def pin_of(staged: StagedTable) -> TablePin:
    """The pin that a commit would make of a staged table."""
    return TablePin(staged.path, staged.version, staged.rows, "content")


def make_table(uri: str) -> tuple[Tables, TablePin]:
    """An empty table and its pin."""
    tables = Tables(lance_root(uri))
    return tables, TablePin(PATH, tables.create(PATH, SCHEMA).version, 0, "content")


def stage(tables: Tables, pin: TablePin, insert: Rows | None = None, delete: Iterable[str] = ()) -> TablePin:
    """Stage a change and pin it."""
    rows = None if insert is None else arrow(insert, tables.open(pin.path, pin.version).schema)
    return pin_of(tables.stage(pin, delete_ids=delete, insert=rows))


def compact(tables: Tables, pin: TablePin) -> StagedTable:
    """Rewrite all fragments that are small or have deletions as one."""
    every = list_fragments(tables, pin)
    old = [item for item in every if item.deletions or item.physical_rows < COMPACTION_TIERS[-1]]
    if len(old) < 2 and not any(item.deletions for item in old):
        return tables.stage_compaction(pin, [])
    ids = [item.id for item in old]
    rewritten = rewrite_fragments(tables.root, pin, ids, 1 + max(item.id for item in every))
    return tables.stage_compaction(pin, [(ids, rewritten)])


def read(tables: Tables, pin: TablePin) -> dict[str, str | None]:
    """What a pin reads as."""
    rows = plain(tables.scan(pin, ["id", "name"]))
    assert len(rows) == pin.rows, "the pin counts its rows wrongly"
    return rows

"""Storing the rows of a merge: what is laid over a version becomes one staged operation on it."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.columns import arrow_schema
from omnigraph.engine.committed_rows import CommittedRows
from omnigraph.engine.diff.table_diff import DELETE, INSERT
from omnigraph.merge.conflicts import Choice, other_side
from omnigraph.merge.merge_tables import TypeSides
from omnigraph.merge.row_merge import KEEP, PUT, REMOVE, Mask, TableMerge
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.row_addresses import ROW_ADDRESS, Addresses
from omnigraph.store.tables.tables import StagedTable
from omnigraph.store.tables.version_diff import translate_addresses

# Rows that were inserted, updated and deleted.
Counts: TypeAlias = dict[str, int]


def stage_rows(item: TypeSides, merge: TableMerge, basis: Choice) -> tuple[StagedTable, Counts]:
    """Lay the rows of a merge over the version of its basis; counts are of what that changed."""
    tables = item.sides.of(basis).tables
    pin = item.pin(basis)
    if pin is None:
        return _stage_new(item, merge, basis)
    known, addresses = _find_rows(item, merge, basis, pin)
    put, removed = merge.actions == PUT, merge.actions == REMOVE
    schema = arrow_schema(item.table, physical=True)
    rows = merge.rows.take(pa.array(np.flatnonzero(put))).cast(schema)
    wide = _widen(item, basis, pin, schema)
    doomed = np.sort(addresses[known & (put | removed)])
    staged = tables.stage_rows(wide, rows.to_batches(), schema, doomed)
    return staged, _counts(merge, known)


def count_rows(item: TypeSides, merge: TableMerge, basis: Choice) -> Counts:
    """What `stage_rows` would count; nothing is written."""
    pin = item.pin(basis)
    if pin is not None:
        known, _ = _find_rows(item, merge, basis, pin)
        return _counts(merge, known)
    taken = item.pin(other_side(basis))
    assert taken is not None
    unwanted = int(((merge.actions == KEEP) & (merge.upper.ops != DELETE)).sum())
    return {"inserted": taken.rows - unwanted, "updated": 0, "deleted": 0}


def _counts(merge: TableMerge, known: Mask) -> Counts:
    put, removed = merge.actions == PUT, merge.actions == REMOVE
    return {
        "inserted": int((put & ~known).sum()),
        "updated": int((put & known).sum()),
        "deleted": int((removed & known).sum()),
    }


def _stage_new(item: TypeSides, merge: TableMerge, basis: Choice) -> tuple[StagedTable, Counts]:
    """A type that the basis does not have: the other side's version, less what is not to be there."""
    upper: Choice = other_side(basis)
    pin = item.pin(upper)
    assert pin is not None
    tables = item.sides.of(upper).tables
    schema = arrow_schema(item.table, physical=True)
    unwanted = np.sort(merge.upper.after_addresses[(merge.actions == KEEP) & (merge.upper.ops != DELETE)])
    staged = tables.stage_rows(_widen(item, upper, pin, schema), (), schema, unwanted)
    return staged, {"inserted": staged.rows, "updated": 0, "deleted": 0}


def _widen(item: TypeSides, side: Choice, pin: TablePin, schema: pa.Schema) -> TablePin:
    """One side's version with every column of the merged table.

    A property that both sides added on their own may be in another column there, which is copied beside it. Columns
    of what the side does not know are null in its rows.
    """
    tables = item.sides.of(side).tables
    present = tables.schema(pin)
    missing = [field.with_nullable(True) for field in schema if field.name not in present.names]
    elsewhere = item.columns_of(side)
    copied = [field for field in missing if field.name in elsewhere]
    empty = [field for field in missing if field.name not in elsewhere]
    if empty:
        pin = _pinned(tables.stage_columns(pin, pa.schema([*present, *empty])), pin)
    if copied:
        sources = [elsewhere[field.name] for field in copied]

        def copy(rows: pa.RecordBatch) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays(
                [rows.column(name) for name in sources], schema=pa.schema(copied)
            )

        pin = _pinned(tables.stage_computed_columns(pin, sources, pa.schema(copied), copy), pin)
    return pin


def _pinned(staged: StagedTable, before: TablePin) -> TablePin:
    return TablePin(staged.path, staged.version, staged.rows, before.content)


def _find_rows(item: TypeSides, merge: TableMerge, basis: Choice, pin: TablePin) -> tuple[Mask, Addresses]:
    """Which of the rows the basis has, and where.

    What the basis changed itself has been found already. Everything else lies where the common ancestor has it,
    unless it was moved, and only then is it looked for.
    """
    upper, under = merge.upper, merge.under
    known = np.zeros(len(merge.ids), bool)
    addresses = np.zeros(len(merge.ids), np.uint64)
    places = pc.index_in(merge.ids, value_set=under.ids).fill_null(-1).to_numpy()
    both = np.flatnonzero(places >= 0)
    known[both] = under.ops[places[both]] != DELETE
    addresses[both] = under.after_addresses[places[both]]
    rest = np.flatnonzero((places[: len(upper)] < 0) & (upper.ops != INSERT))
    before = item.pin("base")
    lost = rest
    if before is not None and len(rest):
        carried, found = translate_addresses(
            item.sides.base.tables, before, pin, upper.before_addresses[rest]
        )
        known[rest[found]] = True
        addresses[rest[found]] = carried[found]
        lost = rest[~found]
    wanted = lost[merge.actions[lost] != KEEP]
    if len(wanted):
        _look_up(item, merge, basis, wanted, known, addresses)
    return known, addresses


def _look_up(
    item: TypeSides, merge: TableMerge, basis: Choice, places: np.ndarray, known: Mask, addresses: Addresses
) -> None:
    snapshot, table = item.sides.of(basis), item.known(basis)
    assert table is not None
    ids = merge.ids.take(pa.array(places))
    rows = CommittedRows(snapshot).find(table.key, "id", ids, ["id", ROW_ADDRESS])
    where = pc.index_in(ids, value_set=rows["id"].combine_chunks()).fill_null(-1).to_numpy()
    found = where >= 0
    known[places[found]] = True
    addresses[places[found]] = rows[ROW_ADDRESS].to_numpy()[where[found]]

"""Staging of a row merge: its rows become one operation on the version of the kept side."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.columns import arrow_schema
from omnigraph.engine.committed_rows import CommittedRows
from omnigraph.engine.diff.table_diff import DELETE, INSERT
from omnigraph.merge.merge_base import MergeSide, other_side
from omnigraph.merge.overlay import UNKNOWN_ADDRESS
from omnigraph.merge.row_merge import KEEP, PUT, REMOVE, Positions, RowMerge
from omnigraph.merge.table_changes import Mask
from omnigraph.merge.table_merge import ThreeWayTable
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.row_addresses import ROW_ADDRESS, Addresses
from omnigraph.store.tables.staged_table import StagedTable
from omnigraph.store.tables.version_diff import translate_addresses

# The numbers of rows that were inserted, updated and deleted.
Counts: TypeAlias = dict[str, int]


def stage_rows(table: ThreeWayTable, merge: RowMerge, kept_side: MergeSide) -> tuple[StagedTable, Counts]:
    """Stage the rows of a merge on the version of the kept side; return the version and the changed rows."""
    tables = table.states.of(kept_side).tables
    pin = table.pin(kept_side)
    if pin is None:
        return _stage_new_table(table, merge, kept_side)
    exists, addresses = _find_rows(table, merge, kept_side, pin)
    put, removed = merge.actions == PUT, merge.actions == REMOVE
    schema = arrow_schema(table.table, physical=True)
    rows = merge.rows.take(pa.array(np.flatnonzero(put))).cast(schema)
    wide = _add_columns(table, kept_side, pin, schema)
    replaced = np.sort(addresses[exists & (put | removed)])
    wide_pin = wide.pin(pin.content)
    staged = tables.stage_rows(wide_pin, rows.to_batches(), schema, replaced)
    if table.states.cache is not None:
        table.states.cache.learn(tables, wide_pin, staged.pin(pin.content), replaced.tolist(), rows)
    return wide.followed_by(staged), _counts(merge, exists)


def count_rows(table: ThreeWayTable, merge: RowMerge, kept_side: MergeSide) -> Counts:
    """Return the counts of `stage_rows`, and write nothing."""
    pin = table.pin(kept_side)
    if pin is not None:
        exists, _ = _find_rows(table, merge, kept_side, pin)
        return _counts(merge, exists)
    applied = table.pin(other_side(kept_side))
    assert applied is not None
    excluded = int(((merge.actions == KEEP) & (merge.applied.ops != DELETE)).sum())
    return {"inserted": applied.rows - excluded, "updated": 0, "deleted": 0}


def _counts(merge: RowMerge, exists: Mask) -> Counts:
    put, removed = merge.actions == PUT, merge.actions == REMOVE
    return {
        "inserted": int((put & ~exists).sum()),
        "updated": int((put & exists).sum()),
        "deleted": int((removed & exists).sum()),
    }


def _stage_new_table(
    table: ThreeWayTable, merge: RowMerge, kept_side: MergeSide
) -> tuple[StagedTable, Counts]:
    """Stage a table that the kept side does not have: the version of the applied side without excluded rows."""
    applied_side: MergeSide = other_side(kept_side)
    pin = table.pin(applied_side)
    assert pin is not None
    tables = table.states.of(applied_side).tables
    schema = arrow_schema(table.table, physical=True)
    excluded = (merge.actions == KEEP) & (merge.applied.ops != DELETE)
    addresses = np.sort(merge.applied.after_addresses[excluded])
    wide = _add_columns(table, applied_side, pin, schema)
    staged = wide.followed_by(tables.stage_rows(wide.pin(pin.content), (), schema, addresses))
    return staged, {"inserted": staged.rows, "updated": 0, "deleted": 0}


def _add_columns(table: ThreeWayTable, side: MergeSide, pin: TablePin, schema: pa.Schema) -> StagedTable:
    """Return the version of one side with every column of the merged table.

    A property that both sides added may have another physical column there; its values are copied. Columns that the
    side does not have are null.
    """
    tables = table.states.of(side).tables
    present = tables.schema(pin)
    missing = [field.with_nullable(True) for field in schema if field.name not in present.names]
    elsewhere = table.columns_of(side)
    copied = [field for field in missing if field.name in elsewhere]
    empty = [field for field in missing if field.name not in elsewhere]
    staged = StagedTable.unchanged(pin)
    if empty:
        staged = tables.stage_columns(pin, pa.schema([*present, *empty]))
    if copied:
        sources = [elsewhere[field.name] for field in copied]

        def copy(rows: pa.RecordBatch) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays(
                [rows.column(name) for name in sources], schema=pa.schema(copied)
            )

        filled = tables.stage_computed_columns(staged.pin(pin.content), sources, pa.schema(copied), copy)
        staged = staged.followed_by(filled)
    return staged


def _find_rows(
    table: ThreeWayTable, merge: RowMerge, kept_side: MergeSide, pin: TablePin
) -> tuple[Mask, Addresses]:
    """Return which rows of the merge the kept side has, and their addresses.

    The addresses of rows that the kept side changed are known. Those of other rows are translated from the merge
    base; rows that were moved since are looked up by id.
    """
    applied, kept = merge.applied, merge.kept
    exists = np.zeros(len(merge.ids), bool)
    addresses = np.zeros(len(merge.ids), np.uint64)
    kept_positions = pc.index_in(merge.ids, value_set=kept.ids).fill_null(-1).to_numpy()
    changed = np.flatnonzero(kept_positions >= 0)
    exists[changed] = kept.ops[kept_positions[changed]] != DELETE
    addresses[changed] = kept.after_addresses[kept_positions[changed]]
    unknown = changed[exists[changed] & (addresses[changed] == UNKNOWN_ADDRESS)]
    unchanged = np.flatnonzero((kept_positions[: len(applied)] < 0) & (applied.ops != INSERT))
    base = table.pin("base")
    moved = unchanged
    if base is not None and len(unchanged):
        translated, found = translate_addresses(
            table.states.base.tables, base, pin, applied.before_addresses[unchanged], table.states.cache
        )
        exists[unchanged[found]] = True
        addresses[unchanged[found]] = translated[found]
        moved = unchanged[~found]
    sought = np.concatenate([moved, unknown])
    wanted = sought[merge.actions[sought] != KEEP]
    if len(wanted):
        positions, looked_up = _look_up(table, merge, kept_side, wanted)
        exists[positions] = True
        addresses[positions] = looked_up
    return exists, addresses


def _look_up(
    table: ThreeWayTable, merge: RowMerge, kept_side: MergeSide, positions: Positions
) -> tuple[Positions, Addresses]:
    """Look rows up by id; return the positions of those that exist, and their addresses."""
    kept_table = table.table_of(kept_side)
    assert kept_table is not None
    ids = merge.ids.take(pa.array(positions))
    committed = CommittedRows(table.states.of(kept_side), cache=table.states.cache)
    rows = committed.find(kept_table.key, "id", ids, ["id", ROW_ADDRESS])
    indices = pc.index_in(ids, value_set=rows["id"].combine_chunks()).fill_null(-1).to_numpy()
    found = indices >= 0
    return positions[found], rows[ROW_ADDRESS].to_numpy()[indices[found]]

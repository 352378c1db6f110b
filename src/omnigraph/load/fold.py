"""Fold of row operations: the rows of one id apply in order to the stored row, and only the result is written.

Every engine calls the same function: once for a load in memory, once for each part of the ids of a larger load. All
rows of an id are in one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Table
from omnigraph.engine.arrow_arrays import single_array
from omnigraph.engine.diff.column_equality import differing
from omnigraph.errors import InvalidInput
from omnigraph.sources.operation_columns import unpack_given
from omnigraph.sources.order_keys import mixed_kinds, order_keys
from omnigraph.sources.row_batch import PLACE, SOURCE
from omnigraph.sources.row_operations import GIVEN, OPERATION, ORDER, Operation
from omnigraph.store.tables.row_addresses import ROW_ADDRESS


@dataclass(frozen=True)
class FoldCounts:
    """Input rows without an effect of their own.

    `superseded` rows lost against a newer row of their id. `unchanged` ids are stored already with the same values.
    `absent` ids were to be deleted and are not stored.
    """

    superseded: int = 0
    unchanged: int = 0
    absent: int = 0

    def __add__(self, other: FoldCounts) -> FoldCounts:
        """Return the sums."""
        return FoldCounts(
            self.superseded + other.superseded,
            self.unchanged + other.unchanged,
            self.absent + other.absent,
        )


@dataclass(frozen=True)
class Folded:
    """The result of a fold.

    `rows` are new and changed rows with the origin of the last input row of their id. `removed` are the stored rows
    to delete, with their addresses. `existing` are the origins of inserts whose id exists, and `absent` those of
    deletes whose id does not.
    """

    rows: pa.Table
    removed: pa.Table
    existing: pa.Table
    absent: pa.Table
    counts: FoldCounts


def fold_operations(
    table: Table, changes: pa.Table, stored: pa.Table, order_by: str | None, *, keep_unchanged: bool = False
) -> Folded:
    """Apply the operations of `changes` to the stored rows with their ids.

    `changes` has the rows of a spool with operations, in input order. `stored` has every stored row with one of
    the ids, with all columns and `ROW_ADDRESS`. If `order_by` is a property, a row that is older than the stored
    row has no effect. Rows that equal the stored row are left out unless `keep_unchanged`.
    """
    late = _late_rows(table, changes, stored, order_by)
    superseded = int(late.sum())
    changes = changes.filter(pa.array(~late)) if superseded else changes
    changes, starts = _sorted_by_id(changes)
    count = changes.num_rows
    if not count:
        return _nothing(table, changes, stored, FoldCounts(superseded))
    codes = single_array(changes[OPERATION]).to_numpy(zero_copy_only=False)
    index = np.arange(count)
    group = np.cumsum(np.isin(index, starts, assume_unique=True)) - 1
    last = np.append(starts[1:], count) - 1
    ids = single_array(changes["id"]).take(pa.array(last))
    places = pc.index_in(ids, value_set=single_array(stored["id"]))
    held = pc.fill_null(places, -1).to_numpy(zero_copy_only=False).astype(np.int64)

    # The last row that does not build on earlier ones, and the rows from there on that have an effect.
    reset = np.maximum.reduceat(np.where(codes != Operation.PATCH, index, -1), starts)
    is_deleted = codes[last] == Operation.DELETE
    after_delete = (reset >= 0) & (codes[np.maximum(reset, 0)] == Operation.DELETE) & ~is_deleted
    first = np.where(reset < 0, starts, reset + after_delete)
    superseded += int((index < first[group]).sum())
    base = np.where(reset < 0, held, -1)

    live = np.flatnonzero(~is_deleted)
    rows = _final_rows(table, changes, stored, starts, first, group, base, live)
    rows = rows.append_column(PLACE, changes[PLACE].take(pa.array(last[live])))
    rows = rows.append_column(SOURCE, changes[SOURCE].take(pa.array(last[live])))
    unchanged = _unchanged(table, rows, stored, held[live])
    if not keep_unchanged and unchanged.any():
        rows = rows.filter(pa.array(~unchanged))
    removed = stored.take(pa.array(held[is_deleted & (held >= 0)]))
    is_absent = is_deleted & (held < 0)
    counts = FoldCounts(superseded, 0 if keep_unchanged else int(unchanged.sum()), int(is_absent.sum()))
    return Folded(
        rows,
        _row_keys(table, removed),
        _origins(changes, _existing_inserts(codes, starts, group, held)),
        _origins(changes, last[is_absent]),
        counts,
    )


def _late_rows(
    table: Table, changes: pa.Table, stored: pa.Table, order_by: str | None
) -> np.ndarray[Any, Any]:
    """Return the rows whose order is before that of the stored row. The order must be a property for that."""
    none = np.zeros(changes.num_rows, bool)
    if order_by is None or not changes.num_rows:
        return none
    keys = single_array(changes[ORDER])
    if mixed_kinds(keys):
        raise InvalidInput(
            f"column '{order_by}' orders the rows of '{table.name}' and has values of several types",
            hint="use numbers only, times only or texts only",
        )
    if not stored.num_rows or all(column.name != order_by for column in table.columns):
        return none
    held, _ = order_keys(order_by, single_array(stored[order_by]))
    at = pc.index_in(single_array(changes["id"]), value_set=single_array(stored["id"]))
    late: np.ndarray[Any, Any] = pc.fill_null(pc.less(keys, held.take(at)), False).to_numpy(
        zero_copy_only=False
    )
    return late


def _sorted_by_id(changes: pa.Table) -> tuple[pa.Table, np.ndarray[Any, Any]]:
    """Return the rows by id and then in the order in which they apply, and the first row of each id."""
    ids = single_array(changes["id"]).dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = single_array(changes[ORDER])
    if order.null_count == len(order):
        places = np.argsort(ids, kind="stable")
    else:
        # Rows without an order are older than those with one.
        order = pc.fill_null(order, "")
        keys = pa.table({"id": ids, "order": order, "position": np.arange(len(ids))})
        sort_keys = [(name, "ascending") for name in keys.column_names]
        places = pc.sort_indices(keys, sort_keys=sort_keys).to_numpy()
    starts = np.flatnonzero(np.diff(ids[places], prepend=-1))
    is_sorted = bool((places[:-1] < places[1:]).all())
    return changes if is_sorted else changes.take(pa.array(places)), starts


def _final_rows(
    table: Table,
    changes: pa.Table,
    stored: pa.Table,
    starts: np.ndarray[Any, Any],
    first: np.ndarray[Any, Any],
    group: np.ndarray[Any, Any],
    base: np.ndarray[Any, Any],
    live: np.ndarray[Any, Any],
) -> pa.Table:
    """Return the row of each id in `live`. A column is from the last row that gives it, or from the stored row."""
    count = changes.num_rows
    given = unpack_given(single_array(changes[GIVEN]), len(table.columns))
    given &= (np.arange(count) >= first[group])[:, None]
    numbers = np.arange(count)
    columns = []
    for position, column in enumerate(table.columns):
        chosen = np.maximum.reduceat(np.where(given[:, position], numbers, -1), starts)[live]
        kept = np.where(base[live] >= 0, base[live] + count, -1)
        chosen = np.where(chosen >= 0, chosen, kept)
        parts = changes[column.name], stored[column.name]
        values = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
        taken = values.take(pa.array(chosen, pa.int64(), mask=chosen < 0))
        columns.append(single_array(taken))
    return pa.Table.from_arrays(columns, [column.name for column in table.columns])


def _unchanged(
    table: Table, rows: pa.Table, stored: pa.Table, held: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Return which rows equal the stored row of their id."""
    unchanged = held >= 0
    places = np.flatnonzero(unchanged)
    if not len(places):
        return unchanged
    new, old = rows.take(pa.array(places)), stored.take(pa.array(held[places]))
    changed = np.zeros(len(places), bool)
    for column in table.columns:
        changed |= differing(new[column.name], old[column.name])
    unchanged[places[changed]] = False
    return unchanged


def _existing_inserts(
    codes: np.ndarray[Any, Any],
    starts: np.ndarray[Any, Any],
    group: np.ndarray[Any, Any],
    held: np.ndarray[Any, Any],
) -> np.ndarray[Any, Any]:
    """Return the positions of inserts of an id that exists at this point."""
    exists = np.append(True, codes[:-1] != Operation.DELETE)
    exists[starts] = held[group[starts]] >= 0
    return np.flatnonzero((codes == Operation.INSERT) & exists)


def _origins(changes: pa.Table, positions: np.ndarray[Any, Any]) -> pa.Table:
    return changes.select(["id", PLACE, SOURCE]).take(pa.array(positions, pa.int64()))


def _row_keys(table: Table, rows: pa.Table) -> pa.Table:
    """Return the ids, for edges the endpoints, and the addresses of stored rows."""
    names = [column.name for column in table.columns if column.property_id is None]
    return rows.select([*names, ROW_ADDRESS])


def _nothing(table: Table, changes: pa.Table, stored: pa.Table, counts: FoldCounts) -> Folded:
    names = [*(column.name for column in table.columns), PLACE, SOURCE]
    none: np.ndarray[Any, Any] = np.empty(0, np.int64)
    return Folded(
        changes.select(names).slice(0, 0),
        _row_keys(table, stored.slice(0, 0)),
        _origins(changes, none),
        _origins(changes, none),
        counts,
    )

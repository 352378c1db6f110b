"""Overlay: the rows of a virtual merge base that differ from the stored table version it builds on.

A virtual merge base is never written. Each of its tables is a stored version, with an overlay in memory where
several merge bases were merged row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Table
from omnigraph.engine.diff.column_equality import differing
from omnigraph.engine.diff.table_diff import DELETE, INSERT, UPDATE, TableDiff
from omnigraph.merge.table_changes import Mask, TableChanges, row_schema
from omnigraph.store.tables.row_addresses import Addresses

# The address of a row that has to be looked up by its id. No fragment has this number.
UNKNOWN_ADDRESS: Final = np.uint64(2**64 - 1)

# A difference is compared at once up to this many stored rows for each row of an overlay.
_COMPARED_PER_ROW: Final = 8

_Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Overlay:
    """Rows of a stored version (`before`) and of the virtual merge base (`after`), by id and physical column.

    A missing row is a null row. `exists` tells which rows the virtual merge base has. `undecided` marks the values
    on which the merge bases disagree; they are null in `after`. A row whose existence is undecided exists, is null,
    and all its values are undecided.
    """

    ids: pa.Array
    before: pa.Table
    after: pa.Table
    exists: Mask
    undecided: Mapping[str, Mask]

    def __len__(self) -> int:
        return len(self.ids)

    def conform(self, table: Table, columns: Mapping[str, str]) -> Overlay:
        """Return the overlay by the physical columns of a merged table; `columns` has its own names by those."""
        schema = row_schema(table)
        nothing = np.zeros(len(self), bool)
        return Overlay(
            self.ids,
            _renamed(self.before, schema, columns),
            _renamed(self.after, schema, columns),
            self.exists,
            {name: self.undecided.get(columns.get(name, ""), nothing) for name in schema.names[1:]},
        )

    def select(self, ids: pa.Array) -> Overlay:
        """Return the rows with some ids."""
        chosen = pc.is_in(self.ids, value_set=ids)
        mask = chosen.to_numpy(zero_copy_only=False)
        return Overlay(
            self.ids.filter(chosen),
            self.before.filter(chosen),
            self.after.filter(chosen),
            self.exists[mask],
            {name: flags[mask] for name, flags in self.undecided.items()},
        )


@dataclass(frozen=True)
class OverlaidDiff:
    """The changes between two states of a table, of which at least one has an overlay.

    `stored` are the changes between the stored versions, None if there are none. The overlays have the physical
    columns of `table`.
    """

    table: Table
    stored: TableDiff | None
    base: Overlay | None
    side: Overlay | None

    @property
    def rows(self) -> int:
        """An upper bound of the number of changes."""
        stored = 0 if self.stored is None else self.stored.rows
        return stored + sum(len(item) for item in (self.base, self.side) if item is not None)

    @property
    def adds(self) -> bool:
        """Whether some row may exist only after, or with other values."""
        return not self.is_empty

    @property
    def removes(self) -> bool:
        """Whether some row may exist only before, or with other values."""
        return not self.is_empty

    @cached_property
    def is_empty(self) -> bool:
        """Whether nothing changed. A large difference is not compared and counts as a change."""
        stored = 0 if self.stored is None else self.stored.rows
        return stored <= _COMPARED_PER_ROW * (self.rows - stored) and not len(self._all)

    @cached_property
    def _all(self) -> TableChanges:
        return self._read(None)

    def changes(self, ids: pa.Array | None = None) -> TableChanges:
        """Read the changes, of all rows or of those with these ids."""
        return self._all if ids is None else self._read(ids)

    def _read(self, ids: pa.Array | None) -> TableChanges:
        stored = TableChanges.read(self.stored, self.table, ids)
        base, side = (
            item if item is None or ids is None else item.select(ids) for item in (self.base, self.side)
        )
        return _overlay_changes(stored, base, side)


def _overlay_changes(stored: TableChanges, base: Overlay | None, side: Overlay | None) -> TableChanges:
    """Return the changes between two overlaid states from those between the stored versions."""
    overlays = [item for item in (base, side) if item is not None]
    ids = pc.unique(pa.chunked_array([item.ids for item in overlays], pa.string()))
    untouched = pc.invert(pc.is_in(stored.ids, value_set=ids))
    found = _Overlaid(ids, stored, base, side).changes()
    return stored.filter(untouched.to_numpy(zero_copy_only=False)).append(found)


@dataclass(frozen=True)
class _Overlaid:
    """The rows of some ids that an overlay has."""

    ids: pa.Array
    stored: TableChanges
    base: Overlay | None
    side: Overlay | None

    def changes(self) -> TableChanges:
        stored = self.stored
        in_stored = _indices(self.ids, stored.ids)
        before = self._state(self.base, self.side, stored.before, stored.ops != INSERT, in_stored)
        after = self._state(self.side, self.base, stored.after, stored.ops != DELETE, in_stored)
        ops = np.where(before.exists, np.where(after.exists, UPDATE, DELETE), INSERT).astype(np.int8)
        changed = {
            name: differing(before.rows[name], after.rows[name])
            | ((before.undecided[name] | after.undecided[name]) & after.exists)
            for name in before.rows.column_names[1:]
        }
        kept = (ops != UPDATE) & (before.exists | after.exists)
        for flags in changed.values():
            kept |= flags & before.exists & after.exists
        return TableChanges(
            self.ids,
            ops,
            before.rows,
            after.rows,
            changed,
            _addresses(self.base, self.ids, in_stored, stored.before_addresses),
            _addresses(self.side, self.ids, in_stored, stored.after_addresses),
            after.undecided,
        ).filter(kept)

    def _state(
        self, own: Overlay | None, other: Overlay | None, stored: pa.Table, present: Mask, in_stored: _Indices
    ) -> _State:
        """Return the rows of one state: of its own overlay, else as stored, else those that both versions share.

        An id that only the other overlay has, and that was not changed in storage, has the stored row which that
        overlay replaces.
        """
        parts, exists = [stored], [present]
        chosen = np.where(in_stored >= 0, in_stored, -1)
        offset = stored.num_rows
        undecided = {name: np.zeros(len(self.ids), bool) for name in stored.column_names[1:]}
        if other is not None:
            places = _indices(self.ids, other.ids)
            chosen = np.where((chosen < 0) & (places >= 0), offset + places, chosen)
            parts.append(other.before)
            exists.append(other.before["id"].is_valid().to_numpy())
            offset += len(other)
        if own is not None:
            places = _indices(self.ids, own.ids)
            chosen = np.where(places >= 0, offset + places, chosen)
            parts.append(own.after)
            exists.append(own.exists)
            held = places >= 0
            for name, flags in undecided.items():
                flags[held] = own.undecided[name][places[held]]
        return _State(
            pa.concat_tables(parts).take(pa.array(chosen)), np.concatenate(exists)[chosen], undecided
        )


@dataclass(frozen=True)
class _State:
    rows: pa.Table
    exists: Mask
    undecided: dict[str, Mask]


def _addresses(overlay: Overlay | None, ids: pa.Array, in_stored: _Indices, stored: Addresses) -> Addresses:
    """Return the addresses of rows that are as in the stored version and differ from the other one."""
    known = in_stored >= 0
    if overlay is not None:
        known &= _indices(ids, overlay.ids) < 0
    addresses = np.full(len(ids), UNKNOWN_ADDRESS, np.uint64)
    addresses[known] = stored[in_stored[known]]
    return addresses


def _indices(ids: pa.Array, among: pa.Array) -> _Indices:
    found: _Indices = pc.index_in(ids, value_set=among).fill_null(-1).to_numpy().astype(np.int64)
    return found


def _renamed(rows: pa.Table, schema: pa.Schema, columns: Mapping[str, str]) -> pa.Table:
    def column(field: pa.Field) -> pa.ChunkedArray:
        name = columns.get(field.name)
        if name is None or name not in rows.column_names:
            return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
        return rows[name].cast(field.type)

    return pa.table([column(field) for field in schema], schema=schema)


def null_where(column: pa.ChunkedArray, mask: Mask) -> pa.ChunkedArray:
    """Return a column with nulls where the mask is set."""
    if not mask.any():
        return column
    return column.take(pa.array(np.arange(len(column)), mask=mask))

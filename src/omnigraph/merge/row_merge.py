"""Row merge: the changes of one side to a table are applied to the rows of the other side.

The kept side is the one whose table version stays; the changes of the applied side are applied to it. The choice of
the kept side changes what is read and written, never the result. Rows are matched by id and compared property by
property.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Column, Table
from omnigraph.catalog.columns import BLOB_URI, ENDPOINT_NAMES
from omnigraph.catalog.entity_images import Image, images
from omnigraph.catalog.row_json import json_values
from omnigraph.engine.diff.column_equality import differing
from omnigraph.engine.diff.table_diff import DELETE, INSERT
from omnigraph.lang.types import Scalar
from omnigraph.merge.conflicts import MergeConflict
from omnigraph.merge.merge_base import MergeSide
from omnigraph.merge.overlay import Overlay, null_where
from omnigraph.merge.resolutions import Resolutions, ResolvedValue
from omnigraph.merge.table_changes import Mask, TableChanges
from omnigraph.rules.external_blobs import ExternalBlobPolicy
from omnigraph.sources.json.json_values import MISMATCH, build_array, mismatch_error, value_converter

Positions: TypeAlias = npt.NDArray[np.int64]
RowConflictKind: TypeAlias = Literal["divergent_insert", "divergent_update", "delete_vs_update"]

# The action for a row of the kept side.
KEEP: Final = 0
PUT: Final = 1
REMOVE: Final = 2

_MESSAGES: Final[Mapping[RowConflictKind, str]] = {
    "divergent_insert": "divergent insert for id '{}'",
    "divergent_update": "divergent update for id '{}'",
    "delete_vs_update": "delete/update conflict for id '{}'",
}


class RowMerge:
    """The rows of one table that change when the changes of the applied side are applied to the kept side.

    `applied` are the changes of the applied side, `kept` the changes of the kept side to the same ids. `shared` are
    the physical columns that both sides have; in other columns there are no conflicts. `ids`, `rows` and `actions`
    are the result.
    """

    def __init__(
        self,
        table: Table,
        applied: TableChanges,
        kept: TableChanges,
        *,
        applied_side: MergeSide,
        shared: frozenset[str],
    ) -> None:
        self.table = table
        self.applied = applied
        self.kept = kept
        self._applied_side: MergeSide = applied_side
        self._shared = shared
        self.ids = applied.ids
        self.rows = applied.after
        self.actions = np.where(applied.ops == DELETE, REMOVE, PUT).astype(np.int8)
        # Whether every row is that of the applied side.
        self.is_applied_only = True
        # The values that are undecided, by column; all of a row whose existence is undecided.
        self.undecided: dict[str, Mask] = {name: flags.copy() for name, flags in applied.undecided.items()}
        missing = pc.is_null(applied.after["id"]).to_numpy()
        self.undecided_rows: Mask = missing & (applied.ops != DELETE)
        self.actions[self.undecided_rows] = REMOVE

    @property
    def changes_rows(self) -> bool:
        """Whether any row of the kept side changes."""
        return bool((self.actions != KEEP).any())

    # --- merging -----------------------------------------------------------------------------------------

    def merge(self, resolutions: Resolutions | None) -> list[MergeConflict]:
        """Merge every row that both sides changed; return the conflicts without a resolution.

        Without `resolutions` the result is a virtual merge base: conflicts are not returned, but left undecided.
        """
        matches = pc.index_in(self.applied.ids, value_set=self.kept.ids).fill_null(-1)
        kept_positions = matches.to_numpy().astype(np.int64)
        applied = np.flatnonzero(kept_positions >= 0)
        if not len(applied):
            return []
        self.is_applied_only = False
        kept = kept_positions[applied]
        deleted = self.applied.ops[applied] == DELETE
        deleted_in_kept = self.kept.ops[kept] == DELETE
        self.actions[applied[deleted & deleted_in_kept]] = KEEP
        unknown = self.undecided_rows[applied]
        one_deleted = (deleted != deleted_in_kept) | unknown
        conflicts = list(self._merge_deleted(applied[one_deleted], kept[one_deleted], resolutions))
        both_alive = ~deleted & ~deleted_in_kept & ~unknown
        conflicts += self._merge_values(applied[both_alive], kept[both_alive], resolutions)
        return conflicts

    def _merge_deleted(
        self, applied: Positions, kept: Positions, resolutions: Resolutions | None
    ) -> Iterator[MergeConflict]:
        """Merge rows that one side deleted and the other updated: always a conflict."""
        if not len(applied):
            return
        if resolutions is None:
            self._leave_rows_undecided(applied)
            return
        positions = pa.array(applied)
        states = (
            images(self.table, self.applied.before.take(positions)),
            images(self.table, self.applied.after.take(positions)),
            images(self.table, self.kept.after.take(pa.array(kept))),
        )
        # Several merge bases may disagree on whether the row exists.
        known = self.applied.before["id"].take(positions).is_valid().to_pylist()
        for position, kept_position, has_base, image, after, kept_after in zip(
            applied, kept, known, *states, strict=True
        ):
            base = image if has_base else None
            applied_image: Image | None = None if self.applied.ops[position] == DELETE else after
            kept_image: Image | None = None if self.kept.ops[kept_position] == DELETE else kept_after
            conflict = self._conflict(
                "delete_vs_update", int(position), None, base, applied_image, kept_image
            )
            side = resolutions.resolve(conflict)
            if side is None:
                yield conflict
            elif side != self._applied_side:
                self.actions[position] = KEEP

    def _merge_values(
        self, applied: Positions, kept: Positions, resolutions: Resolutions | None
    ) -> list[MergeConflict]:
        """Merge rows that both sides inserted or updated, property by property."""
        if not len(applied):
            return []
        base = self.applied.before.take(pa.array(applied))
        after = self.applied.after.take(pa.array(applied))
        kept_after = self.kept.after.take(pa.array(kept))
        inserted = self.applied.ops[applied] == INSERT
        conflicts: list[MergeConflict] = []
        unchanged = np.ones(len(applied), bool)
        columns: list[pa.ChunkedArray] = [after["id"]]
        for name in after.column_names[1:]:
            undecided = self.applied.is_undecided(name)[applied]
            differs = differing(after[name], kept_after[name]) | undecided
            changed = self.applied.changed[name][applied]
            both = changed & self.kept.changed[name][kept]
            clash = differs & (inserted | both) if name in self._shared else np.zeros(len(applied), bool)
            takes_applied = changed & ~clash
            values: dict[int, pa.Array] = {}
            if resolutions is None:
                undecided |= clash
                self._undecided(name)[applied[undecided]] = True
            elif clash.any():
                rows = np.flatnonzero(clash)
                for row, conflict in self._value_conflicts(name, rows, applied, base, after, kept_after):
                    resolution = resolutions.resolve(conflict)
                    if resolution is None:
                        conflicts.append(conflict)
                    elif isinstance(resolution, ResolvedValue):
                        values[row] = self._array(name, resolution.value)
                    else:
                        takes_applied[row] = resolution == self._applied_side
            chosen = pc.if_else(pa.array(takes_applied), after[name], kept_after[name])
            merged = null_where(_with_values(chosen, values), undecided)
            columns.append(merged)
            unchanged &= ~differing(merged, kept_after[name]) & ~undecided
        self._replace(applied, pa.table(columns, schema=self.rows.schema))
        self.actions[applied] = np.where(unchanged, KEEP, PUT)
        return conflicts

    def _value_conflicts(
        self,
        name: str,
        rows: Positions,
        applied: Positions,
        base: pa.Table,
        after: pa.Table,
        kept_after: pa.Table,
    ) -> Iterator[tuple[int, MergeConflict]]:
        column = self._column(name)
        property_name = ENDPOINT_NAMES.get(column.name, column.name)
        positions = pa.array(rows)
        values = [
            json_values(state[name].take(positions), column.type) for state in (base, after, kept_after)
        ]
        for row, before, value, kept_value in zip(rows.tolist(), *values, strict=True):
            position = int(applied[row])
            kind: RowConflictKind = (
                "divergent_insert" if self.applied.ops[position] == INSERT else "divergent_update"
            )
            yield row, self._conflict(kind, position, property_name, before, value, kept_value)

    def _conflict(
        self, kind: RowConflictKind, position: int, name: str | None, base: Any, applied: Any, kept: Any
    ) -> MergeConflict:
        ours, theirs = (kept, applied) if self._applied_side == "theirs" else (applied, kept)
        id_ = self.applied.ids[position].as_py()
        return MergeConflict(
            kind,
            self.table.kind,
            self.table.name,
            id_,
            _MESSAGES[kind].format(id_),
            property_name=name,
            base=base,
            ours=ours,
            theirs=theirs,
        )

    def _column(self, physical: str) -> Column:
        return next(item for item in self.table.columns if item.physical == physical)

    def _array(self, name: str, value: Any) -> pa.Array:
        column = self._column(name)
        if value is None:
            return pa.nulls(1, self.rows.schema.field(name).type)
        stored = value_converter(column)(value)
        if stored is MISMATCH:
            raise mismatch_error(column, value)
        if column.type.scalar is Scalar.BLOB and stored[BLOB_URI] is not None:
            # A resolution chooses among the values of the two sides; a new URI enters the graph by a write.
            ExternalBlobPolicy().check(stored[BLOB_URI])
        return build_array(column, [stored])

    def _replace(self, positions: Positions, rows: pa.Table) -> None:
        """Replace the rows at these positions."""
        order = np.arange(len(self.ids))
        order[positions] = len(self.ids) + np.arange(len(positions))
        self.rows = pa.concat_tables([self.rows, rows]).take(pa.array(order))

    # --- undecided rows of a virtual merge base ----------------------------------------------------------

    def leave_undecided(
        self,
        ids: Sequence[str],
        columns: Sequence[str] | None,
        kept_changes: Callable[[pa.Array], TableChanges],
    ) -> bool:
        """Leave the values of some entities in these columns undecided, or their existence without `columns`.

        Return whether any of them was decided before. `kept_changes` are the changes of the kept side to some ids.
        """
        self._append_kept(kept_changes, ids)
        positions = self._positions(ids, len(self.ids))
        if columns is None:
            decided = bool((~self.undecided_rows[positions]).any())
            self._leave_rows_undecided(positions)
            return decided
        decided = False
        for name in columns:
            flags = self._undecided(name)
            decided |= bool((~flags[positions]).any())
            flags[positions] = True
            place = self.rows.schema.get_field_index(name)
            column = null_where(self.rows.column(place), flags)
            self.rows = self.rows.set_column(place, self.rows.schema.field(place), column)
        self.is_applied_only = False
        self.actions[positions] = np.where(self.undecided_rows[positions], REMOVE, PUT)
        return decided

    def overlay(self) -> Overlay:
        """Return the rows of the virtual merge base that differ from those of the kept side."""
        chosen = np.flatnonzero(self.actions != KEEP)
        ids = self.ids.take(pa.array(chosen))
        in_kept = pc.index_in(ids, value_set=self.kept.ids).fill_null(-1).to_numpy()
        # What the kept side did not change is as in the merge base.
        places = np.where(in_kept >= 0, in_kept, len(self.kept) + chosen)
        before = pa.concat_tables([self.kept.after, self.applied.before]).take(pa.array(places))
        whole = self.undecided_rows[chosen]
        put = self.actions[chosen] == PUT
        rows = self.rows.take(pa.array(chosen))
        after = pa.table([null_where(column, ~put) for column in rows.columns], schema=rows.schema)
        undecided = {name: whole | self._undecided(name)[chosen] for name in rows.column_names[1:]}
        return Overlay(ids, before, after, put | whole, undecided)

    def _append_kept(self, kept_changes: Callable[[pa.Array], TableChanges], ids: Sequence[str]) -> None:
        """Add the rows of entities that only the kept side changed, as that side has them."""
        others = pa.array(sorted(set(ids) - set(self.ids.to_pylist())), pa.string())
        changes = kept_changes(others) if len(others) else None
        if changes is None or not len(changes):
            return
        self.ids = pa.concat_arrays([self.ids, changes.ids])
        self.rows = pa.concat_tables([self.rows, _with_ids(changes.after, changes.ids)])
        self.actions = np.concatenate([self.actions, np.full(len(changes), KEEP, np.int8)])
        nothing = np.zeros(len(changes), bool)
        self.undecided = {name: np.concatenate([flags, nothing]) for name, flags in self.undecided.items()}
        self.undecided_rows = np.concatenate([self.undecided_rows, nothing])
        self.kept = self.kept.append(changes)

    def _leave_rows_undecided(self, positions: Positions) -> None:
        # The row counts as missing when the virtual merge base is checked.
        self.is_applied_only = False
        self.undecided_rows[positions] = True
        self.actions[positions] = REMOVE

    def _undecided(self, name: str) -> Mask:
        return self.undecided.setdefault(name, np.zeros(len(self.ids), bool))

    # --- taking a side -----------------------------------------------------------------------------------

    def take_kept(self, ids: Sequence[str]) -> None:
        """Leave entities as the kept side has them."""
        positions = self._positions(ids, len(self.ids))
        self.is_applied_only &= not bool((self.actions[positions] != KEEP).any())
        self.actions[positions] = KEEP

    def take_applied(self, ids: Sequence[str], kept_changes: Callable[[pa.Array], TableChanges]) -> None:
        """Give entities the state of the applied side.

        An entity that the applied side did not change has the state of the merge base there, which `kept_changes`,
        the changes of the kept side to some ids, has as their earlier rows.
        """
        # Positions after those of the applied side belong to rows that an earlier call restored.
        positions = self._positions(ids, len(self.applied))
        self._replace(positions, self.applied.after.take(pa.array(positions)))
        self.actions[positions] = np.where(self.applied.ops[positions] == DELETE, REMOVE, PUT)
        others = pa.array(sorted(set(ids) - set(self.ids.to_pylist())), pa.string())
        restored = kept_changes(others) if len(others) else None
        if restored is not None and len(restored):
            self.ids = pa.concat_arrays([self.ids, restored.ids])
            self.rows = pa.concat_tables([self.rows, _with_ids(restored.before, restored.ids)])
            actions = np.where(restored.ops == INSERT, REMOVE, PUT).astype(np.int8)
            self.actions = np.concatenate([self.actions, actions])
            self.kept = self.kept.append(restored)
            self.is_applied_only = False

    def _positions(self, ids: Sequence[str], end: int) -> Positions:
        indices = pc.index_in(pa.array(ids, pa.string()), value_set=self.ids).drop_null()
        positions: Positions = indices.to_numpy().astype(np.int64)
        return positions[positions < end]


def _with_ids(rows: pa.Table, ids: pa.Array) -> pa.Table:
    return rows.set_column(0, rows.schema.field(0), pa.chunked_array([ids]))


def _with_values(column: pa.ChunkedArray | pa.Array, values: Mapping[int, pa.Array]) -> pa.ChunkedArray:
    """Return a column with other values at some positions."""
    column = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    if not values:
        return column
    order = np.arange(len(column))
    order[list(values)] = len(column) + np.arange(len(values))
    replacements = [item.cast(column.type) for item in values.values()]
    return pa.chunked_array([*column.chunks, *replacements]).take(pa.array(order))

"""One table in a merge: its versions in the three states, and the changes of each side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.schema_merge.merge import MergedColumn, MergedTable
from omnigraph.engine.diff.table_diff import Side, TableDiff
from omnigraph.merge.merge_base import SIDES, MergeSide, MergeStates, StateName
from omnigraph.merge.overlay import OverlaidDiff, Overlay
from omnigraph.merge.table_changes import TableChanges
from omnigraph.store.manifest.records import TablePin


@dataclass(frozen=True)
class ThreeWayTable:
    """A table of the merged schema and its counterparts in the three states. Versions are opened when needed."""

    merged: MergedTable
    states: MergeStates

    @property
    def table(self) -> Table:
        """The table in the merged schema."""
        return self.merged.table

    def table_of(self, state: StateName) -> Table | None:
        """Return the table in one of the states."""
        table: Table | None = getattr(self.merged, state)
        return table

    @property
    def only_side(self) -> MergeSide | None:
        """The side that has the table, if the other side does not have it."""
        sides: list[MergeSide] = [side for side in SIDES if self.table_of(side) is not None]
        return sides[0] if len(sides) == 1 else None

    def pin(self, state: StateName) -> TablePin | None:
        """Return the version of the table in one of the states."""
        table = self.table_of(state)
        return None if table is None else self.states.of(state).commit.tables[str(table.id)]

    def columns_of(self, state: StateName) -> dict[str, str]:
        """Return the physical columns of one of the states by the physical columns of the merged table."""
        pairs = ((item.column.physical, getattr(item, state)) for item in self.merged.columns)
        return {physical: column.physical for physical, column in pairs if column is not None}

    def stored_columns_of(self, state: StateName) -> dict[str, str]:
        """Return the columns that one of the states stores, by the physical columns of the merged table."""
        table, columns = self.table_of(state), self.columns_of(state)
        virtual = None if table is None else self.states.virtual_table(state, table)
        if virtual is None:
            return columns
        stored = virtual.columns
        return {physical: stored[own] for physical, own in columns.items() if own in stored}

    def has_all_columns(self, side: MergeSide) -> bool:
        """Whether the version of one side has every column of the merged table, under the same physical name."""
        table, columns = self.table_of(side), self.columns_of(side)
        return (
            table is not None
            and table.id == self.table.id
            and all(columns.get(item.column.physical) == item.column.physical for item in self.merged.columns)
        )

    @property
    def shared_columns(self) -> frozenset[str]:
        """The physical columns of the merged table that both sides have."""
        return frozenset(
            item.column.physical
            for item in self.merged.columns
            if item.ours is not None and item.theirs is not None
        )

    # --- changes of a side -------------------------------------------------------------------------------

    def diff(self, side: MergeSide) -> TableDiff | OverlaidDiff | None:
        """Return the changes of one side; None when it has the rows of the merge base.

        A side with the content of the merge base is recognized without reading storage.
        """
        return self._our_diff if side == "ours" else self._their_diff

    @cached_property
    def _our_diff(self) -> TableDiff | OverlaidDiff | None:
        return self._diff("ours")

    @cached_property
    def _their_diff(self) -> TableDiff | OverlaidDiff | None:
        return self._diff("theirs")

    def _diff(self, side: MergeSide) -> TableDiff | OverlaidDiff | None:
        base, pin = self.pin("base"), self.pin(side)
        # A side without the table has not changed its rows.
        if pin is None:
            return None
        stored = None
        if base is None or base.content != pin.content:
            stored = TableDiff(self._diff_side("base"), self._diff_side(side))
        overlays = self.overlay_of("base"), self.overlay_of(side)
        if overlays == (None, None):
            return None if stored is None or stored.is_empty else stored
        overlaid = OverlaidDiff(self.table, stored, *overlays)
        return None if overlaid.is_empty else overlaid

    def _diff_side(self, state: StateName) -> Side | None:
        table, pin = self.table_of(state), self.pin(state)
        if table is None or pin is None:
            return None
        return Side(self.states.of(state).tables, pin, self.stored_columns_of(state), self.states.cache)

    def overlay_of(self, state: StateName) -> Overlay | None:
        """Return the rows in which a virtual state differs from what is stored; None where it is stored."""
        table = self.table_of(state)
        virtual = None if table is None else self.states.virtual_table(state, table)
        if virtual is None or virtual.overlay is None:
            return None
        return virtual.overlay.conform(self.table, self.columns_of(state))

    def is_changed(self, side: MergeSide) -> bool:
        """Whether one side has other rows than the merge base."""
        return self.diff(side) is not None

    def changes(self, side: MergeSide, ids: pa.Array | None = None) -> TableChanges:
        """Read the changes of one side, of all rows or of those with these ids."""
        missing = self.columns_of("base").keys() - self.columns_of(side).keys()
        diff = self.diff(side)
        if isinstance(diff, OverlaidDiff):
            return diff.changes(ids).without_columns(missing)
        return TableChanges.read(diff, self.table, ids).without_columns(missing)

    def changed_sources(self, side: MergeSide) -> Iterator[tuple[pa.Array, pa.ChunkedArray]]:
        """Yield the ids of the edges that one side changed, with their sources before and after the change."""
        diff = self.diff(side)
        if isinstance(diff, OverlaidDiff):
            found = diff.changes()
            yield from ((found.ids, image["src"]) for image in (found.before, found.after))
            return
        for batch in () if diff is None else diff.batches(columns=["src"]):
            yield from ((batch.ids, image["src"]) for image in (batch.before, batch.after))


def tables_of_one_schema(catalog: Catalog) -> tuple[MergedTable, ...]:
    """Return the tables of a merge whose three states have the same schema."""
    return tuple(
        MergedTable(
            table,
            table,
            table,
            table,
            tuple(MergedColumn(column, column, column, column) for column in table.columns),
        )
        for table in catalog.tables.values()
    )

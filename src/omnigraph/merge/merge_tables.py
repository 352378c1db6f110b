"""One type in a merge: its table on the three sides, and what each side changed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.schema_merge.merge import MergedColumn, MergedTable
from omnigraph.engine.diff.table_diff import Side, TableDiff
from omnigraph.graph.snapshot import Snapshot
from omnigraph.merge.conflicts import CHOICES, Choice
from omnigraph.merge.row_merge import Delta
from omnigraph.store.manifest.records import TablePin


@dataclass(frozen=True)
class Sides:
    """The three states of a merge: where the two histories meet, and where they stand."""

    base: Snapshot
    ours: Snapshot
    theirs: Snapshot

    def of(self, choice: Choice) -> Snapshot:
        """The state of one side."""
        return self.ours if choice == "ours" else self.theirs


@dataclass(frozen=True)
class TypeSides:
    """One type of the merged schema in the three states. Nothing is opened until it is asked for."""

    merged: MergedTable
    sides: Sides

    @property
    def table(self) -> Table:
        """The table as the merged schema has it."""
        return self.merged.table

    @property
    def key(self) -> str:
        """The key of the type in the merged schema."""
        return self.table.key

    def known(self, side: Literal["base", "ours", "theirs"]) -> Table | None:
        """The table of the type as one of the states has it."""
        found: Table | None = getattr(self.merged, side)
        return found

    @property
    def only_side(self) -> Choice | None:
        """The one side that has the type, if the other has not."""
        sides: list[Choice] = [side for side in CHOICES if self.known(side) is not None]
        return sides[0] if len(sides) == 1 else None

    def pin(self, side: Literal["base", "ours", "theirs"]) -> TablePin | None:
        """The version that one of the states pins."""
        table = self.known(side)
        if table is None:
            return None
        snapshot: Snapshot = getattr(self.sides, side)
        return snapshot.commit.tables[str(table.id)]

    def _side(self, side: Literal["base", "ours", "theirs"]) -> Side | None:
        pin = self.pin(side)
        if pin is None:
            return None
        snapshot: Snapshot = getattr(self.sides, side)
        return Side(snapshot.tables, pin, self.columns_of(side))

    def columns_of(self, side: Literal["base", "ours", "theirs"]) -> dict[str, str]:
        """The physical columns that one of the states has for those of the merged table, by theirs."""
        found = ((item.column.physical, getattr(item, side)) for item in self.merged.columns)
        return {physical: column.physical for physical, column in found if column is not None}

    @cached_property
    def _ours(self) -> TableDiff | None:
        return self._diff("ours")

    @cached_property
    def _theirs(self) -> TableDiff | None:
        return self._diff("theirs")

    def diff(self, choice: Choice) -> TableDiff | None:
        """What one side changed; None when its rows are those of the base, which takes no look at storage."""
        return self._ours if choice == "ours" else self._theirs

    def _diff(self, choice: Choice) -> TableDiff | None:
        base, pin = self.pin("base"), self.pin(choice)
        # A side that does not have the type says nothing about its rows.
        if pin is None or (base is not None and base.content == pin.content):
            return None
        found = TableDiff(self._side("base"), self._side(choice))
        return None if found.is_empty else found

    def delta(self, choice: Choice, ids: pa.Array | None = None) -> Delta:
        """The rows that one side changed, of some ids alone if they are given."""
        known, base = self.columns_of(choice), self.columns_of("base")
        return Delta.read(self.diff(choice), self.table, ids).without(base.keys() - known.keys())

    def changed(self, choice: Choice) -> bool:
        """Whether one side has other stored rows than the base."""
        return self.diff(choice) is not None

    @property
    def shared_columns(self) -> frozenset[str]:
        """The physical columns of the merged table that both sides know."""
        return frozenset(
            item.column.physical
            for item in self.merged.columns
            if item.ours is not None and item.theirs is not None
        )

    def has_all_columns(self, choice: Choice) -> bool:
        """Whether one side's version is the merged table's own and can hold its rows as it is."""
        table, columns = self.known(choice), self.columns_of(choice)
        return (
            table is not None
            and table.id == self.table.id
            and all(columns.get(item.column.physical) == item.column.physical for item in self.merged.columns)
        )


def same_schema(catalog: Catalog) -> tuple[MergedTable, ...]:
    """The tables of a merge whose three states have one schema."""
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

"""The row rule of a merge: what one side changed in a table is laid over the other side's rows.

One side is the basis, whose table is kept; the changes of the other are laid over it. Which of them is which
changes what is read and written, never the outcome. Rows are compared by id and property by property.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Column, Table
from omnigraph.catalog.columns import ENDPOINT_NAMES, arrow_schema
from omnigraph.catalog.entity_images import Image, images
from omnigraph.catalog.row_json import json_values
from omnigraph.engine.diff.column_equality import differing
from omnigraph.engine.diff.table_diff import DELETE, INSERT, ChangeBatch, TableDiff
from omnigraph.errors import InvalidInput
from omnigraph.merge.conflicts import Choice, Given, MergeConflict, Resolutions
from omnigraph.sources.json.json_values import MISMATCH, build_array, converter, mismatch_message
from omnigraph.store.tables.row_addresses import Addresses

Mask: TypeAlias = npt.NDArray[np.bool_]
Places: TypeAlias = npt.NDArray[np.int64]

# What becomes of a row of the basis.
KEEP: Final = 0
PUT: Final = 1
REMOVE: Final = 2

_SAYS = {
    "divergent_insert": "divergent insert for id '{}'",
    "divergent_update": "divergent update for id '{}'",
    "delete_vs_update": "delete/update conflict for id '{}'",
}


@dataclass(frozen=True)
class Delta:
    """Changes of a table in memory, one an id, by the physical columns of the merged table."""

    ids: pa.Array
    ops: npt.NDArray[np.int8]
    before: pa.Table
    after: pa.Table
    changed: Mapping[str, Mask]
    before_addresses: Addresses
    after_addresses: Addresses

    @classmethod
    def read(cls, diff: TableDiff | None, table: Table, ids: pa.Array | None = None) -> Delta:
        """The changes that a diff finds, of some ids alone if they are given; without a diff there are none."""
        schema = row_schema(table)
        batches = [] if diff is None else list(diff.batches(ids=ids))
        nothing = np.zeros(0, bool)
        return cls(
            pa.chunked_array([item.ids for item in batches], pa.string()).combine_chunks(),
            np.concatenate([np.zeros(0, np.int8), *(item.ops for item in batches)]),
            pa.concat_tables([schema.empty_table(), *(_shaped(item.before, schema) for item in batches)]),
            pa.concat_tables([schema.empty_table(), *(_shaped(item.after, schema) for item in batches)]),
            {
                name: np.concatenate([nothing, *(_mask(item, name) for item in batches)])
                for name in schema.names[1:]
            },
            np.concatenate([np.zeros(0, np.uint64), *(item.before_addresses for item in batches)]),
            np.concatenate([np.zeros(0, np.uint64), *(item.after_addresses for item in batches)]),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def without(self, columns: Collection[str]) -> Delta:
        """The same of a side that does not have some of the columns: it says nothing about what they hold."""
        if not columns or not len(self):
            return self
        after, changed = self.after, dict(self.changed)
        for name in columns:
            place = after.schema.get_field_index(name)
            after = after.set_column(place, after.schema.field(place), self.before[name])
            changed[name] = np.zeros(len(self), bool)
        kept = (self.ops == INSERT) | (self.ops == DELETE)
        for flags in changed.values():
            kept |= flags
        mask = pa.array(kept)
        return Delta(
            self.ids.filter(mask),
            self.ops[kept],
            self.before.filter(mask),
            after.filter(mask),
            {name: flags[kept] for name, flags in changed.items()},
            self.before_addresses[kept],
            self.after_addresses[kept],
        )

    def joined(self, other: Delta) -> Delta:
        """These changes, then those of other ids."""
        return Delta(
            pa.concat_arrays([self.ids, other.ids]),
            np.concatenate([self.ops, other.ops]),
            pa.concat_tables([self.before, other.before]),
            pa.concat_tables([self.after, other.after]),
            {name: np.concatenate([flags, other.changed[name]]) for name, flags in self.changed.items()},
            np.concatenate([self.before_addresses, other.before_addresses]),
            np.concatenate([self.after_addresses, other.after_addresses]),
        )


def row_schema(table: Table) -> pa.Schema:
    """The schema of rows in the making, by physical column; a required value may still be missing."""
    return pa.schema([item.with_nullable(True) for item in arrow_schema(table, physical=True)])


def _shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows[item.name].cast(item.type)
        if item.name in rows.column_names
        else pa.chunked_array([pa.nulls(rows.num_rows, item.type)])
        for item in schema
    ]
    return pa.table(columns, schema=schema)


def _mask(batch: ChangeBatch, name: str) -> Mask:
    found = batch.changed.get(name)
    return np.zeros(len(batch.ids), bool) if found is None else found


class TableMerge:
    """The rows of one table that change when one side's changes are laid over the other's.

    `upper` are the changes of the side that is laid over, `under` those that the basis made of the same ids.
    `shared` are the physical columns that both sides know: in others they cannot disagree.
    """

    def __init__(
        self, table: Table, upper: Delta, under: Delta, *, upper_is: Choice, shared: frozenset[str]
    ) -> None:
        self.table = table
        self.upper = upper
        self.under = under
        self._upper_is: Choice = upper_is
        self._shared = shared
        self.ids = upper.ids
        self.rows = upper.after
        self.actions = np.where(upper.ops == DELETE, REMOVE, PUT).astype(np.int8)
        # Whether every row is as the upper side has it.
        self.is_pure = True

    # --- deciding ----------------------------------------------------------------------------------------

    def decide(self, resolutions: Resolutions) -> list[MergeConflict]:
        """Settle every row that both sides changed; gives what nobody has decided."""
        where = pc.index_in(self.upper.ids, value_set=self.under.ids).fill_null(-1)
        places = where.to_numpy().astype(np.int64)
        both = np.flatnonzero(places >= 0)
        if not len(both):
            return []
        self.is_pure = False
        under = places[both]
        gone = self.upper.ops[both] == DELETE
        gone_under = self.under.ops[under] == DELETE
        self.actions[both[gone & gone_under]] = KEEP
        torn = gone != gone_under
        found = list(self._torn(both[torn], under[torn], resolutions))
        alive = ~gone & ~gone_under
        found += self._rewritten(both[alive], under[alive], resolutions)
        return found

    def _torn(self, upper: Places, under: Places, resolutions: Resolutions) -> Iterator[MergeConflict]:
        """Rows that one side deleted and the other updated."""
        if not len(upper):
            return
        at = pa.array(upper)
        states = (
            images(self.table, self.upper.before.take(at)),
            images(self.table, self.upper.after.take(at)),
            images(self.table, self.under.after.take(pa.array(under))),
        )
        for place, below, base, above, beneath in zip(upper, under, *states, strict=True):
            deleted = self.upper.ops[place] == DELETE
            over: Image | None = None if deleted else above
            below_is: Image | None = None if self.under.ops[below] == DELETE else beneath
            conflict = self._conflict("delete_vs_update", int(place), None, base, over, below_is)
            choice = resolutions.choose(conflict)
            if choice is None:
                yield conflict
            elif choice != self._upper_is:
                self.actions[place] = KEEP

    def _rewritten(self, upper: Places, under: Places, resolutions: Resolutions) -> list[MergeConflict]:
        """Rows that both sides inserted or updated: property by property."""
        if not len(upper):
            return []
        at, below = pa.array(upper), pa.array(under)
        mine, other, base = (
            self.upper.after.take(at),
            self.under.after.take(below),
            self.upper.before.take(at),
        )
        inserted = self.upper.ops[upper] == INSERT
        conflicts: list[MergeConflict] = []
        same = np.ones(len(upper), bool)
        columns: list[pa.ChunkedArray] = [mine["id"]]
        for name in mine.column_names[1:]:
            differs = differing(mine[name], other[name])
            took_part = self.upper.changed[name][upper]
            both = took_part & self.under.changed[name][under]
            clash = differs & (inserted | both) if name in self._shared else np.zeros(len(upper), bool)
            takes = took_part & ~clash
            given: dict[int, pa.Array] = {}
            if clash.any():
                for place in self._clashes(name, np.flatnonzero(clash), upper, base, mine, other):
                    row, conflict = place
                    choice = resolutions.choose(conflict)
                    if choice is None:
                        conflicts.append(conflict)
                    elif isinstance(choice, Given):
                        given[row] = self._array(name, choice.value)
                    else:
                        takes[row] = choice == self._upper_is
            merged = _overridden(pc.if_else(pa.array(takes), mine[name], other[name]), given)
            columns.append(merged)
            same &= ~differing(merged, other[name])
        self._replace(upper, pa.table(columns, schema=self.rows.schema))
        self.actions[upper] = np.where(same, KEEP, PUT)
        return conflicts

    def _clashes(
        self,
        name: str,
        rows: Places,
        upper: Places,
        base: pa.Table,
        mine: pa.Table,
        other: pa.Table,
    ) -> Iterator[tuple[int, MergeConflict]]:
        column = self._column(name)
        at = pa.array(rows)
        values = [json_values(side[name].take(at), column.type) for side in (base, mine, other)]
        for row, before, above, below in zip(rows.tolist(), *values, strict=True):
            place = int(upper[row])
            kind = "divergent_insert" if self.upper.ops[place] == INSERT else "divergent_update"
            yield (
                row,
                self._conflict(
                    kind, place, ENDPOINT_NAMES.get(column.name, column.name), before, above, below
                ),
            )

    def _conflict(
        self, kind: Any, place: int, name: str | None, base: Any, above: Any, below: Any
    ) -> MergeConflict:
        ours, theirs = (below, above) if self._upper_is == "theirs" else (above, below)
        id_ = self.upper.ids[place].as_py()
        return MergeConflict(
            kind,
            self.table.kind,
            self.table.name,
            id_,
            _SAYS[kind].format(id_),
            name,
            base,
            ours,
            theirs,
        )

    def _column(self, physical: str) -> Column:
        return next(item for item in self.table.columns if item.physical == physical)

    def _array(self, name: str, value: Any) -> pa.Array:
        column = self._column(name)
        if value is None:
            return pa.nulls(1, self.rows.schema.field(name).type)
        stored = converter(column)(value)
        if stored is MISMATCH:
            raise InvalidInput(mismatch_message(column, value))
        return build_array(column, [stored])

    def _replace(self, places: Places, rows: pa.Table) -> None:
        """Put other rows in the place of some."""
        order = np.arange(len(self.ids))
        order[places] = len(self.ids) + np.arange(len(places))
        self.rows = pa.concat_tables([self.rows, rows]).take(pa.array(order))

    # --- taking a side -----------------------------------------------------------------------------------

    def take_under(self, ids: Sequence[str]) -> None:
        """Leave entities as the basis has them."""
        places = self._places(ids, len(self.ids))
        self.is_pure &= not bool((self.actions[places] != KEEP).any())
        self.actions[places] = KEEP

    def take_upper(self, ids: Sequence[str], basis: Callable[[pa.Array], Delta]) -> None:
        """Make entities what the upper side has.

        What that side left alone is what the common ancestor had, which the changes of the basis tell: `basis`
        gives those of some ids.
        """
        # Only what the upper side changed has a state of its own here; restored rows come after those.
        places = self._places(ids, len(self.upper))
        self._replace(places, self.upper.after.take(pa.array(places)))
        self.actions[places] = np.where(self.upper.ops[places] == DELETE, REMOVE, PUT)
        rest = pa.array(sorted(set(ids) - set(self.ids.to_pylist())), pa.string())
        restored = basis(rest) if len(rest) else None
        if restored is not None and len(restored):
            self.ids = pa.concat_arrays([self.ids, restored.ids])
            self.rows = pa.concat_tables([self.rows, _with_ids(restored.before, restored.ids)])
            actions = np.where(restored.ops == INSERT, REMOVE, PUT).astype(np.int8)
            self.actions = np.concatenate([self.actions, actions])
            self.under = self.under.joined(restored)
            self.is_pure = False

    def _places(self, ids: Sequence[str], end: int) -> Places:
        found = pc.index_in(pa.array(ids, pa.string()), value_set=self.ids).drop_null()
        places: Places = found.to_numpy().astype(np.int64)
        return places[places < end]


def _with_ids(rows: pa.Table, ids: pa.Array) -> pa.Table:
    return rows.set_column(0, rows.schema.field(0), pa.chunked_array([ids]))


def _overridden(column: pa.ChunkedArray | pa.Array, given: Mapping[int, pa.Array]) -> pa.ChunkedArray:
    """A column with some of its values replaced."""
    column = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    if not given:
        return column
    order = np.arange(len(column))
    order[list(given)] = len(column) + np.arange(len(given))
    values = [item.cast(column.type) for item in given.values()]
    return pa.chunked_array([*column.chunks, *values]).take(pa.array(order))

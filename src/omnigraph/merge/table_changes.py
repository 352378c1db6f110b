"""The changes of one side to a table, in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import arrow_schema
from omnigraph.engine.diff.table_diff import DELETE, INSERT, ChangeBatch, TableDiff
from omnigraph.store.tables.row_addresses import Addresses

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TableChanges:
    """Changes of a table, one for each id, by the physical columns of the merged table.

    `before` are the rows of the merge base, `after` those of the side. `changed` marks the values that differ, and
    those on which several merge bases disagree. `undecided` marks the values on which the merge bases that became
    the side disagree; a commit has none.
    """

    ids: pa.Array
    ops: npt.NDArray[np.int8]
    before: pa.Table
    after: pa.Table
    changed: Mapping[str, Mask]
    before_addresses: Addresses
    after_addresses: Addresses
    undecided: Mapping[str, Mask] = field(default_factory=dict)

    @classmethod
    def read(cls, diff: TableDiff | None, table: Table, ids: pa.Array | None = None) -> TableChanges:
        """Read the changes of a diff, of all rows or of those with these ids. Without a diff there are none."""
        schema = row_schema(table)
        batches = [] if diff is None else list(diff.batches(ids=ids))
        if len(batches) == 1:
            # Most changes are few, and joining parts takes longer than reading them.
            return cls._of_batch(batches[0], schema)
        nothing = np.zeros(0, bool)
        return cls(
            pa.chunked_array([item.ids for item in batches], pa.string()).combine_chunks(),
            np.concatenate([np.zeros(0, np.int8), *(item.ops for item in batches)]),
            pa.concat_tables([schema.empty_table(), *(_conform(item.before, schema) for item in batches)]),
            pa.concat_tables([schema.empty_table(), *(_conform(item.after, schema) for item in batches)]),
            {
                name: np.concatenate([nothing, *(_changed(item, name) for item in batches)])
                for name in schema.names[1:]
            },
            np.concatenate([np.zeros(0, np.uint64), *(item.before_addresses for item in batches)]),
            np.concatenate([np.zeros(0, np.uint64), *(item.after_addresses for item in batches)]),
        )

    @classmethod
    def _of_batch(cls, batch: ChangeBatch, schema: pa.Schema) -> TableChanges:
        return cls(
            batch.ids,
            batch.ops,
            _conform(batch.before, schema),
            _conform(batch.after, schema),
            {name: _changed(batch, name) for name in schema.names[1:]},
            batch.before_addresses,
            batch.after_addresses,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def without_columns(self, columns: Collection[str]) -> TableChanges:
        """Return the changes of a side that does not have some of the columns: it changes no value in them."""
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
        undecided = {name: flags for name, flags in self.undecided.items() if name not in columns}
        return replace(self, after=after, changed=changed, undecided=undecided).filter(kept)

    def filter(self, kept: Mask) -> TableChanges:
        """Return some of the changes."""
        if kept.all():
            return self
        mask = pa.array(kept)
        return TableChanges(
            self.ids.filter(mask),
            self.ops[kept],
            self.before.filter(mask),
            self.after.filter(mask),
            {name: flags[kept] for name, flags in self.changed.items()},
            self.before_addresses[kept],
            self.after_addresses[kept],
            {name: flags[kept] for name, flags in self.undecided.items()},
        )

    def is_undecided(self, name: str) -> Mask:
        """Return the rows in which the value of a column is undecided."""
        flags = self.undecided.get(name)
        return np.zeros(len(self), bool) if flags is None else flags

    def append(self, other: TableChanges) -> TableChanges:
        """Return these changes followed by changes of other ids."""
        return TableChanges(
            pa.concat_arrays([self.ids, other.ids]),
            np.concatenate([self.ops, other.ops]),
            pa.concat_tables([self.before, other.before]),
            pa.concat_tables([self.after, other.after]),
            {name: np.concatenate([flags, other.changed[name]]) for name, flags in self.changed.items()},
            np.concatenate([self.before_addresses, other.before_addresses]),
            np.concatenate([self.after_addresses, other.after_addresses]),
            {
                name: np.concatenate([self.is_undecided(name), other.is_undecided(name)])
                for name in self.undecided.keys() | other.undecided.keys()
            },
        )


@lru_cache(maxsize=1_024)
def row_schema(table: Table) -> pa.Schema:
    """Return the physical schema with all columns nullable: a merged row may still miss a required value."""
    return pa.schema([item.with_nullable(True) for item in arrow_schema(table, physical=True)])


def _conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    if rows.schema.equals(schema):
        return rows
    columns = []
    for item in schema:
        index = rows.schema.get_field_index(item.name)
        if index < 0:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, item.type)]))
        else:
            # A cast of equal types copies nothing, and takes longer than the rest.
            column = rows.column(index)
            columns.append(column if column.type == item.type else column.cast(item.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _changed(batch: ChangeBatch, name: str) -> Mask:
    flags = batch.changed.get(name)
    return np.zeros(len(batch.ids), bool) if flags is None else flags

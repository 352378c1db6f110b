"""Lookups in the rows of one side of a merge, by the names of the merged schema."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from omnigraph.catalog.columns import arrow_type
from omnigraph.engine.committed_rows import CommittedRows
from omnigraph.merge.merge_base import MergeSide, MergeStates
from omnigraph.merge.table_merge import ThreeWayTable


class SideRows:
    """The rows of one side. A type that the side does not have is empty, a missing property is null."""

    def __init__(self, tables: Mapping[str, ThreeWayTable], side: MergeSide, states: MergeStates) -> None:
        self._tables = tables
        self._side: MergeSide = side
        self._rows = CommittedRows(states.of(side), cache=states.cache)

    def find(self, key: str, column: str, values: pa.Array, columns: list[str]) -> pa.Table:
        """Return the rows of a table whose `column` has one of the values."""
        table = self._tables[key].table_of(self._side)
        names = self._names(key)
        if table is None or column not in names:
            return self._shape(key, columns, None)
        read = list(dict.fromkeys(names[name] for name in columns if name in names))
        return self._shape(key, columns, self._rows.find(table.key, names[column], values, read))

    def find_tuples(self, key: str, columns: list[str], tuples: pa.Table, wanted: list[str]) -> pa.Table:
        """Return the rows of a table that may equal one of the tuples."""
        table = self._tables[key].table_of(self._side)
        names = self._names(key)
        if table is None or not all(name in names for name in columns):
            return self._shape(key, wanted, None)
        renamed = tuples.select(columns).rename_columns([names[name] for name in columns])
        read = [names[name] for name in wanted if name in names]
        rows = self._rows.find_tuples(table.key, renamed.column_names, renamed, read)
        return self._shape(key, list(dict.fromkeys([*wanted, *columns])), rows)

    def _names(self, key: str) -> dict[str, str]:
        """Return the column names of this side by those of the merged schema."""
        names = {}
        for item in self._tables[key].merged.columns:
            column = getattr(item, self._side)
            if column is not None:
                names[item.column.name] = column.name
        return names

    def _shape(self, key: str, columns: list[str], rows: pa.Table | None) -> pa.Table:
        types = {column.name: arrow_type(column.type) for column in self._tables[key].table.columns}
        names = self._names(key)
        count = 0 if rows is None else rows.num_rows
        return pa.table(
            {
                name: pa.nulls(count, types[name]) if rows is None or name not in names else rows[names[name]]
                for name in columns
            }
        )

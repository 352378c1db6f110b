"""The committed rows that a merge is checked against: one side's state, under the names of the merged schema."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from omnigraph.catalog.columns import arrow_type
from omnigraph.engine.committed_rows import CommittedRows
from omnigraph.graph.snapshot import Snapshot
from omnigraph.merge.conflicts import Choice
from omnigraph.merge.merge_tables import TypeSides


class MergeBasis:
    """Answers for one side of a merge. A type that it does not have is empty, a property is null."""

    def __init__(self, types: Mapping[str, TypeSides], choice: Choice, snapshot: Snapshot) -> None:
        self._types = types
        self._choice: Choice = choice
        self._rows = CommittedRows(snapshot)

    def find(self, key: str, column: str, values: pa.Array, columns: list[str]) -> pa.Table:
        """Rows of a table whose column has one of the values, by logical column name."""
        table = self._types[key].known(self._choice)
        names = self._names(key)
        if table is None or column not in names:
            return self._shaped(key, columns, None)
        asked = list(dict.fromkeys(names[name] for name in columns if name in names))
        found = self._rows.find(table.key, names[column], values, asked)
        return self._shaped(key, columns, found)

    def find_tuples(self, key: str, columns: list[str], tuples: pa.Table, wanted: list[str]) -> pa.Table:
        """Rows of a table that may agree with one of the tuples."""
        table = self._types[key].known(self._choice)
        names = self._names(key)
        if table is None or not all(name in names for name in columns):
            return self._shaped(key, wanted, None)
        known = tuples.select(columns).rename_columns([names[name] for name in columns])
        asked = [names[name] for name in wanted if name in names]
        found = self._rows.find_tuples(table.key, known.column_names, known, asked)
        return self._shaped(key, list(dict.fromkeys([*wanted, *columns])), found)

    def _names(self, key: str) -> dict[str, str]:
        """The names that this side has for what the merged schema calls otherwise."""
        names = {}
        for item in self._types[key].merged.columns:
            found = getattr(item, self._choice)
            if found is not None:
                names[item.column.name] = found.name
        return names

    def _shaped(self, key: str, columns: list[str], found: pa.Table | None) -> pa.Table:
        types = {column.name: arrow_type(column.type) for column in self._types[key].table.columns}
        names = self._names(key)
        rows = 0 if found is None else found.num_rows
        return pa.table(
            {
                name: pa.nulls(rows, types[name])
                if found is None or name not in names
                else found[names[name]]
                for name in columns
            }
        )

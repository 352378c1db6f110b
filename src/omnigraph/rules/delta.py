"""The change of one operation to a table, and the lookup of the committed rows it is checked against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from omnigraph.catalog.catalog import Table


@dataclass(frozen=True)
class TableDelta:
    """The final image of an operation in one table, by logical column.

    `rows` are the new and rewritten rows, one for each id. `shadowed` are the ids of committed rows that are
    deleted or rewritten. `deleted` are the ids of those that have no successor in `rows`. For an edge table,
    `vacated` are the source ids of the shadowed rows. `in_input_order` says that the rows are the records of an
    input in their order: of two records with one unique value, the later one is the duplicate.
    """

    table: Table
    rows: pa.Table
    shadowed: pa.Array
    deleted: pa.Array
    vacated: pa.Array | None = None
    in_input_order: bool = False


class RowLookup(Protocol):
    """Lookups in the committed rows that an operation is checked against."""

    def find(self, key: str, column: str, values: pa.Array, columns: list[str]) -> pa.Table:
        """Return the rows of a table whose `column` has one of the values, by logical column name."""
        ...

    def find_tuples(self, key: str, columns: list[str], tuples: pa.Table, wanted: list[str]) -> pa.Table:
        """Return the rows of a table that may equal one of the tuples in all the columns. A superset is allowed."""
        ...

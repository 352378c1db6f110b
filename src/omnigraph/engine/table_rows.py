"""Rows of one table, as input of expressions."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from omnigraph.catalog.columns import ENDPOINT_COLUMNS
from omnigraph.engine.arrow_expressions import RowRef
from omnigraph.lang import ir


@dataclass(frozen=True)
class TableRows:
    """Rows of one table by logical column, as `evaluate` and `matches` read them."""

    rows: pa.Table

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self.rows.num_rows)

    def column(self, ref: RowRef) -> pa.ChunkedArray:
        """Return the column that a reference names."""
        return self.rows[logical_column(ref)]


def logical_column(ref: RowRef) -> str:
    """Return the logical name of the column that a reference names."""
    match ref:
        case ir.ColumnRef():
            return ENDPOINT_COLUMNS.get(ref.name, ref.name)
        case ir.PropertyRef():
            return ref.property
        case ir.EntityRef():
            return "id"


def last_of_each_id(rows: pa.Table) -> pa.Table:
    """Return the rows without those that a later row with the same id replaces."""
    ids = rows["id"].to_pylist()
    last = dict(zip(ids, range(len(ids)), strict=True))
    return rows if len(last) == len(ids) else rows.take(sorted(last.values()))

"""Columns with the operations of input rows, next to the typed columns of their table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import logical_schema
from omnigraph.sources.row_operations import (
    GIVEN,
    OPERATION,
    ORDER,
    Operation,
    given_type,
    pack_given,
)
from omnigraph.sources.table_values import RowErrors


@dataclass(frozen=True, slots=True)
class OperationColumns:
    """The operation of each row, the columns that it gives, the order of the rows, and the errors of rows."""

    operations: np.ndarray[Any, Any]
    given: np.ndarray[Any, Any]
    order: pa.Array
    errors: RowErrors

    @property
    def is_complete(self) -> np.ndarray[Any, Any]:
        """The rows that must have all required values."""
        return np.asarray(self.operations <= Operation.REPLACE)

    def arrays(self) -> list[pa.Array]:
        """Return the columns in the order of `operation_fields`."""
        return [pa.array(self.operations, pa.int8()), pack_given(self.given), self.order]


def operation_fields(table: Table) -> list[pa.Field]:
    """Return the fields of the operations of a table's rows."""
    return [
        pa.field(OPERATION, pa.int8()),
        pa.field(GIVEN, given_type(len(table.columns))),
        pa.field(ORDER, pa.string()),
    ]


def change_schema(table: Table) -> pa.Schema:
    """Return the schema of rows with operations: the logical columns of the table, and the operations."""
    return pa.schema([*logical_schema(table), *operation_fields(table)])

"""Columns with the operations of input rows, next to the typed columns of their table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import logical_schema
from omnigraph.errors import InvalidInput
from omnigraph.sources.row_operations import GIVEN, OPERATION, ORDER, Operation, RowOperations
from omnigraph.sources.table_values import RowErrors, Values, plain_array


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


def parse_operations(operations: RowOperations, values: Values) -> tuple[np.ndarray[Any, Any], RowErrors]:
    """Return the operation of each row; rows with an unknown value have the default and an error."""
    texts = values if isinstance(values, list) else plain_array(values).to_pylist()
    known: dict[Any, Operation | InvalidInput] = {}
    codes = np.full(len(texts), operations.default, np.int8)
    errors: RowErrors = {}
    for position, value in enumerate(texts):
        name = value if isinstance(value, str) else repr(value)
        if name not in known:
            try:
                known[name] = operations.parse(value)
            except InvalidInput as error:
                known[name] = error
        found = known[name]
        if isinstance(found, InvalidInput):
            errors[position] = found
        else:
            codes[position] = found
    return codes, errors


def given_type(columns: int) -> pa.DataType:
    """Return the Arrow type of `GIVEN` for a table with so many columns."""
    return pa.binary(-(-columns // 8))


def pack_given(given: np.ndarray[Any, Any]) -> pa.Array:
    """Return the column `GIVEN` from a boolean matrix of rows and columns.

    >>> unpack_given(pack_given(np.array([[True, False, True]])), 3).tolist()
    [[True, False, True]]
    """
    rows, columns = given.shape
    packed = np.packbits(given, axis=1)
    return pa.FixedSizeBinaryArray.from_buffers(
        given_type(columns), rows, [None, pa.py_buffer(np.ascontiguousarray(packed))]
    )


def unpack_given(column: pa.Array, columns: int) -> np.ndarray[Any, Any]:
    """Return the boolean matrix of `pack_given`."""
    width = column.type.byte_width
    start = column.offset * width
    data = np.frombuffer(column.buffers()[1], np.uint8)[start : start + len(column) * width]
    return np.unpackbits(data.reshape(len(column), width), axis=1)[:, :columns].astype(bool)

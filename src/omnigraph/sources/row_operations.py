"""Operations of input rows: what a row does to the row with its id, and the order of the rows of one id.

An input has one operation for all rows, or a column with the operation of each row, as change data capture writes
it. An order column has the order in which the rows of one id apply; without one they apply in input order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InvalidInput
from omnigraph.sources.json.json_values import display_value
from omnigraph.sources.table_values import RowErrors, Values, plain_array

# Columns next to the logical columns of rows with operations: the operation, the columns that the input gives, as
# one bit for each column of the table, and the order. No property can have these names.
OPERATION: Final = ".operation"
GIVEN: Final = ".given"
ORDER: Final = ".order"

_INTEGER = re.compile(r"[+-]?\d{1,18}\Z", re.ASCII)
_DIGITS = 20
_SIGN = 1 << 63


class Operation(IntEnum):
    """What an input row does to the stored row with its id."""

    INSERT = 0
    REPLACE = 1
    PATCH = 2
    DELETE = 3


# Values of an operation column, in lower case: the letters of I/U/D logs and those of Debezium.
_UPSERTS: Final = frozenset("iucr")
_DELETE: Final = "d"
OPERATION_VALUES: Final = "I, U, D, or c, u, d, r"


@dataclass(frozen=True, slots=True)
class RowOperations:
    """The operation of the rows of an input.

    `default` is the operation of rows that are not deletes. `column` has the operation of each row, `order_by` the
    order of the rows of one id; it may be a property of the type.
    """

    default: Operation
    column: str | None = None
    order_by: str | None = None

    @property
    def names(self) -> list[str]:
        """The input columns that are read for the operation and the order."""
        return [name for name in (self.column, self.order_by) if name is not None]

    @property
    def is_partial(self) -> bool:
        """Whether rows may lack required values: patches, deletes, and inputs with an operation column."""
        return self.column is not None or self.default in (Operation.PATCH, Operation.DELETE)

    def parse(self, value: Any) -> Operation:
        """Return the operation of one row from the value of its operation column.

        >>> RowOperations(Operation.REPLACE, "op").parse("D").name
        'DELETE'
        """
        text = value.lower() if isinstance(value, str) else None
        if text == _DELETE:
            return Operation.DELETE
        if text in _UPSERTS:
            return self.default
        raise InvalidInput(
            f"column '{self.column}': unknown operation {display_value(value)}",
            hint=f"the operations are {OPERATION_VALUES}, in any case",
        )

    def parse_column(self, values: Values) -> tuple[np.ndarray[Any, Any], RowErrors]:
        """Return the operation of each row; rows with an unknown value have the default and an error."""
        texts = values if isinstance(values, list) else plain_array(values).to_pylist()
        known: dict[Any, Operation | InvalidInput] = {}
        codes = np.full(len(texts), self.default, np.int8)
        errors: RowErrors = {}
        for position, value in enumerate(texts):
            name = value if isinstance(value, str) else repr(value)
            if name not in known:
                try:
                    known[name] = self.parse(value)
                except InvalidInput as error:
                    known[name] = error
            found = known[name]
            if isinstance(found, InvalidInput):
                errors[position] = found
            else:
                codes[position] = found
        return codes, errors


def needs_complete_row(operation: int) -> bool:
    """Return whether a row with this operation must have all required values."""
    return operation in (Operation.INSERT, Operation.REPLACE)


# --- given columns ------------------------------------------------------------------------------------------


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


# --- order --------------------------------------------------------------------------------------------------


def order_keys(name: str, values: Values) -> tuple[pa.Array, RowErrors]:
    """Return texts that sort like the values of an order column.

    The first letter is the kind: integer, float, time or text. A text of digits is an integer, so that numbers in
    a CSV file sort as numbers. Null, booleans and nested values are errors of their rows.

    >>> keys, _ = order_keys("seq", [10, -2, 9])
    >>> pc.array_sort_indices(keys).to_pylist()
    [1, 2, 0]
    """
    if isinstance(values, list):
        return _keys_of_values(name, values)
    array = plain_array(values)
    kind = array.type
    keys: pa.Array
    if pa.types.is_integer(kind):
        keys = _integer_keys("i", array.cast(pa.int64()))
    elif pa.types.is_decimal(kind) and kind.scale == 0 and kind.precision <= 20:
        return _keys_of_values(name, array.to_pylist())
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        keys = _float_keys(array.cast(pa.float64()))
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        keys = _integer_keys("t", array.cast(pa.timestamp("us"), safe=False).cast(pa.int64()))
    else:
        return _keys_of_values(name, array.to_pylist())
    return keys, _null_errors(name, keys)


def mixed_kinds(keys: pa.Array) -> bool:
    """Return whether the keys have more than one kind, so that their order is not defined."""
    return len(pc.unique(pc.utf8_slice_codeunits(keys.drop_null(), 0, 1))) > 1


def _integer_keys(kind: str, values: pa.Array) -> pa.Array:
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return _padded(kind, numbers.view(np.uint64) ^ np.uint64(_SIGN), values)


def _float_keys(values: pa.Array) -> pa.Array:
    numbers = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False) + 0.0
    bits = numbers.view(np.uint64)
    negative = (bits >> np.uint64(63)).astype(bool)
    return _padded("f", np.where(negative, ~bits, bits ^ np.uint64(_SIGN)), values)


def _padded(kind: str, numbers: np.ndarray[Any, Any], values: pa.Array) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(numbers, pa.uint64()).cast(pa.string()), _DIGITS, "0")
    keys = pc.binary_join_element_wise(kind, digits, "")
    return pc.if_else(values.is_valid(), keys, pa.scalar(None, pa.string()))


def _keys_of_values(name: str, values: Iterable[Any]) -> tuple[pa.Array, RowErrors]:
    errors: RowErrors = {}
    keys: list[str | None] = []
    for position, value in enumerate(values):
        try:
            keys.append(order_key(name, value))
        except InvalidInput as error:
            errors[position] = error
            keys.append(None)
    return pa.array(keys, pa.string()), errors


def order_key(name: str, value: Any) -> str:
    """Return the text of `order_keys` for one value."""
    if isinstance(value, str):
        return _integer_text(int(value)) if _INTEGER.match(value) else f"s{value}"
    if isinstance(value, int | Decimal) and not isinstance(value, bool) and value == int(value):
        number = int(value)
        if -_SIGN <= number < _SIGN:
            return _integer_text(number)
    elif isinstance(value, float | Decimal):
        return str(_float_keys(pa.array([float(value)]))[0])
    elif isinstance(value, date | datetime):
        moment = pa.array([value]).cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        return str(_integer_keys("t", moment)[0])
    raise _wrong_order(name, value)


def _integer_text(number: int) -> str:
    return f"i{number + _SIGN:0{_DIGITS}d}"


def _null_errors(name: str, keys: pa.Array) -> RowErrors:
    if not keys.null_count:
        return {}
    missing = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
    return {int(position): _wrong_order(name, None) for position in missing}


def _wrong_order(name: str, value: Any) -> InvalidInput:
    return InvalidInput(
        f"column '{name}' orders the rows: expected a number, a time or text, got {display_value(value)}"
    )

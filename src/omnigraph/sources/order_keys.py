"""Keys of an order column: texts that sort like its values, whatever the format of the input."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InvalidInput
from omnigraph.sources.json.json_values import display_value
from omnigraph.sources.table_values import RowErrors, Values, plain_array

_INTEGER = re.compile(r"[+-]?\d{1,18}\Z", re.ASCII)
_DIGITS = 20
_SIGN = 1 << 63


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


def order_value(key: str) -> int | float | str:
    """Return the value of a key of `order_keys`, for JSON. A time is a text of its form.

    >>> order_value(order_key("seq", -7)), order_value(order_key("seq", 0.5)), order_value(order_key("seq", "b"))
    (-7, 0.5, 'b')
    """
    kind, text = key[0], key[1:]
    if kind == "s":
        return text
    if kind == "f":
        bits = np.uint64(int(text))
        bits = bits ^ np.uint64(_SIGN) if bits >> np.uint64(63) else ~bits
        return float(np.array([bits], np.uint64).view(np.float64)[0])
    number = int(text) - _SIGN
    return number if kind == "i" else str(pa.scalar(number, pa.timestamp("us")).as_py().isoformat())

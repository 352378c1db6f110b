"""Values of the query language as Arrow columns, exactly."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import pyarrow as pa

from omnigraph.catalog.catalog import Column
from omnigraph.catalog.columns import BLOB_DATA, BLOB_URI, arrow_type
from omnigraph.errors import ErrorLocation, InvalidInput
from omnigraph.lang import ir
from omnigraph.lang.types import INT_RANGES, PropType, Scalar

BASE64 = "base64:"


def column_array(column: Column, values: Sequence[ir.Value]) -> pa.Array:
    """One column of rows; a value that the type cannot hold is `InvalidInput`."""
    prop_type = column.type
    try:
        if prop_type.scalar is Scalar.BLOB:
            return pa.array([_blob(column.name, value) for value in values], arrow_type(prop_type))
        if prop_type.scalar in (Scalar.DATE, Scalar.DATETIME):
            return _temporal(prop_type, values)
        if prop_type.scalar in INT_RANGES:
            values = [_whole(column.name, prop_type, value) for value in values]
        return pa.array([_plain(value) for value in values], arrow_type(prop_type))
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise InvalidInput(f"property '{column.name}' expects {prop_type}: {error}") from error


def _plain(value: ir.Value) -> object:
    return list(value) if isinstance(value, tuple) else value


def _whole(name: str, prop_type: PropType, value: ir.Value) -> ir.Value:
    """A float parameter may stand for an integer when it is one; anything else would be cut off silently."""
    if isinstance(value, tuple):
        return tuple(_whole(name, prop_type, item) for item in value)
    if isinstance(value, float):
        if not value.is_integer():
            raise InvalidInput(f"property '{name}' expects {prop_type}, got {value}")
        value = int(value)
    low, high = INT_RANGES[prop_type.scalar]
    if isinstance(value, int) and not low <= value <= high:
        raise InvalidInput(
            f"value {value} exceeds {prop_type.scalar.value}", location=ErrorLocation(property=name)
        )
    return value


def _temporal(prop_type: PropType, values: Sequence[ir.Value]) -> pa.Array:
    whole = pa.int32() if prop_type.scalar is Scalar.DATE else pa.int64()
    numbers = pa.array([_plain(value) for value in values], pa.list_(whole) if prop_type.is_list else whole)
    return numbers.cast(arrow_type(prop_type))


def _blob(name: str, value: ir.Value) -> dict[str, object] | None:
    """``base64:…`` is the bytes themselves, any other text the address of bytes that stay elsewhere."""
    if value is None:
        return None
    text = str(value)
    if not text.startswith(BASE64):
        return {BLOB_DATA: None, BLOB_URI: text}
    try:
        return {BLOB_DATA: base64.b64decode(text.removeprefix(BASE64), validate=True), BLOB_URI: None}
    except binascii.Error as error:
        raise InvalidInput(f"property '{name}' has a `base64:` payload that cannot be decoded") from error


def ir_values(array: pa.Array | pa.ChunkedArray) -> tuple[ir.Value, ...]:
    """Arrow scalars as the values that the IR has: dates and datetimes are integers there."""
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    return tuple(array.to_pylist())

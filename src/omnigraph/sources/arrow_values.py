"""Conversion between values of the query language and Arrow arrays."""

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
    """Build the Arrow array of a column; raise `InvalidInput` for a value that its type cannot represent."""
    prop_type = column.type
    if all(value is None for value in values):
        return pa.nulls(len(values), arrow_type(prop_type))
    try:
        if prop_type.scalar is Scalar.BLOB:
            return pa.array([_blob(column.name, value) for value in values], arrow_type(prop_type))
        if prop_type.scalar in (Scalar.DATE, Scalar.DATETIME):
            return _temporal(prop_type, values)
        if prop_type.scalar in INT_RANGES:
            values = [_integer(column.name, prop_type, value) for value in values]
        return pa.array([_plain(value) for value in values], arrow_type(prop_type))
    except (pa.ArrowException, OverflowError, TypeError) as error:
        location = ErrorLocation(property=column.name)
        raise InvalidInput(f"expected {prop_type.core}: {error}", location=location) from error


def _plain(value: ir.Value) -> object:
    return list(value) if isinstance(value, tuple) else value


def _integer(name: str, prop_type: PropType, value: ir.Value) -> ir.Value:
    """Convert a float with an integral value; Arrow would truncate other floats silently."""
    if isinstance(value, tuple):
        return tuple(_integer(name, prop_type, item) for item in value)
    location = ErrorLocation(property=name)
    if isinstance(value, float):
        if not value.is_integer():
            raise InvalidInput(f"expected {prop_type.core}, got {value}", location=location)
        value = int(value)
    low, high = INT_RANGES[prop_type.scalar]
    if isinstance(value, int) and not low <= value <= high:
        raise InvalidInput(f"value {value} exceeds {prop_type.scalar.value}", location=location)
    return value


def _temporal(prop_type: PropType, values: Sequence[ir.Value]) -> pa.Array:
    stored = pa.int32() if prop_type.scalar is Scalar.DATE else pa.int64()
    numbers = pa.array([_plain(value) for value in values], pa.list_(stored) if prop_type.is_list else stored)
    return numbers.cast(arrow_type(prop_type))


def _blob(name: str, value: ir.Value) -> dict[str, object] | None:
    """Return the struct of a Blob: bytes for ``base64:…``, else the URI of external bytes."""
    if value is None:
        return None
    text = str(value)
    if not text.startswith(BASE64):
        return {BLOB_DATA: None, BLOB_URI: text}
    try:
        return {BLOB_DATA: base64.b64decode(text.removeprefix(BASE64), validate=True), BLOB_URI: None}
    except binascii.Error as error:
        raise invalid_base64(name) from error


def invalid_base64(name: str) -> InvalidInput:
    """Return the error for a Blob property whose payload cannot be decoded."""
    return InvalidInput("invalid `base64:` payload", location=ErrorLocation(property=name))


def ir_values(array: pa.Array | pa.ChunkedArray) -> tuple[ir.Value, ...]:
    """Return the values of an array as the IR represents them: dates and datetimes are integers."""
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    return tuple(array.to_pylist())

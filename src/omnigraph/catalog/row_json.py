"""Conversion of Arrow columns to the JSON values of query rows, exports and messages."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.columns import BLOB_DATA, BLOB_URI
from omnigraph.lang.temporal import format_date, format_datetime
from omnigraph.lang.types import ColumnType, ObjectType, PropType, Scalar


def column_values(values: pa.ChunkedArray, type_: ColumnType) -> list[Any]:
    """Return the JSON values of a result column: for whole entities a dict of their fields, or None."""
    if not isinstance(type_, ObjectType):
        return json_values(values, type_)
    return [item for chunk in values.chunks for item in _entities(chunk, type_)]


def _entities(values: pa.StructArray, type_: ObjectType) -> Iterator[dict[str, Any] | None]:
    names = [name for name, _ in type_.fields]
    columns = [json_values(values.field(place), field) for place, (_, field) in enumerate(type_.fields)]
    valid = values.is_valid().to_pylist()
    for is_there, *row in zip(valid, *columns, strict=True):
        yield dict(zip(names, row, strict=True)) if is_there else None


def json_values(values: pa.Array | pa.ChunkedArray, prop_type: PropType) -> list[Any]:
    """Return the JSON values of a column: dates as text, 64-bit integers exactly, non-finite floats as text.

    >>> json_values(pa.array([19723], pa.date32()), PropType(Scalar.DATE))
    ['2024-01-01']
    """
    if prop_type.is_list or prop_type.scalar is Scalar.VECTOR:
        return _lists(values, prop_type)
    match prop_type.scalar:
        case Scalar.DATE:
            days = values.cast(pa.int32()).to_pylist()
            return [None if item is None else format_date(item) for item in days]
        case Scalar.DATETIME:
            millis = values.cast(pa.int64()).to_pylist()
            return [None if item is None else format_datetime(item) for item in millis]
        case Scalar.F32:
            # The shortest decimal for the stored width, not the digits of the value as a double.
            floats = values.to_pylist()
            return [None if item is None else json_float(float(str(np.float32(item)))) for item in floats]
        case Scalar.F64:
            return [None if item is None else json_float(item) for item in values.to_pylist()]
        case Scalar.BLOB:
            return [blob_text(item) for item in values.to_pylist()]
        case _:
            plain: list[Any] = values.to_pylist()
            return plain


def _lists(values: pa.Array | pa.ChunkedArray, prop_type: PropType) -> list[Any]:
    """Convert all elements at once and split them into lists again."""
    if isinstance(values, pa.ChunkedArray):
        return [item for chunk in values.chunks for item in _lists(chunk, prop_type)]
    item = PropType(Scalar.F32) if prop_type.scalar is Scalar.VECTOR else prop_type.item
    elements = json_values(values.flatten(), item)
    lists: list[Any] = []
    start = 0
    for length in values.value_lengths().to_pylist():
        lists.append(None if length is None else elements[start : start + length])
        start += length or 0
    return lists


def json_float(value: float) -> float | str:
    """Return a float as a JSON value; non-finite values become text.

    >>> json_float(0.5), json_float(float("-inf"))
    (0.5, '-Infinity')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def blob_text(value: dict[str, Any] | None) -> str | None:
    """Return a Blob as text: the URI of external bytes, or ``base64:`` and the encoded bytes."""
    if value is None:
        return None
    if value[BLOB_DATA] is None:
        uri: str | None = value[BLOB_URI]
        return uri
    return "base64:" + base64.b64encode(value[BLOB_DATA]).decode("ascii")

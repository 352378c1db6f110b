"""Conversion of single JSON values to stored values, one function per property, without coercion.

A Date becomes days, a DateTime milliseconds, a Blob its two fields. The functions also accept Python values
that JSON does not have: dates, datetimes, bytes and tuples.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Column
from omnigraph.catalog.columns import BLOB_DATA, BLOB_URI, arrow_type
from omnigraph.errors import ErrorLocation, InvalidInput
from omnigraph.lang.temporal import TEMPORAL_RANGES, days_of, millis_of, parse_date, parse_datetime
from omnigraph.lang.types import INT_RANGES, PropType, Scalar
from omnigraph.sources.arrow_values import BASE64, invalid_base64

Convert: TypeAlias = Callable[[Any], Any]

# Result of a converter for a value of the wrong type. A value of the right type that is out of range raises.
MISMATCH: Final = object()
# The smallest double that rounds to an infinite float32: halfway from the largest float32 to the next power of two.
F32_LIMIT: Final = (2 - 2**-24) * 2.0**127
# Longer values are truncated in messages.
_MAX_DISPLAYED = 200


# Text forms of the floats that JSON has no numbers for, as exports write them.
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def value_converter(column: Column, *, finite: bool = True) -> Convert:
    """Return the function that converts a value other than None to the stored value, or to `MISMATCH`.

    `finite` rejects infinite and NaN floats. JSON has no such numbers, so that they come from numbers out of range.
    Their text forms, as exports write them, are always accepted.

    >>> from omnigraph.lang.types import DATE
    >>> since = value_converter(Column("since", DATE, "p1"))
    >>> since("1970-01-31"), since(30), since("soon") is MISMATCH
    (30, 30, True)
    """
    if column.type.scalar is Scalar.VECTOR:
        return _vector(column)
    return _list(column, finite) if column.type.is_list else _scalar(column, finite)


def mismatch_error(column: Column, value: Any, hint: str | None = None) -> InvalidInput:
    """Return the error for a value whose conversion is `MISMATCH`."""
    named = {"property": column.name}
    if isinstance(value, list | tuple):
        if column.type.scalar is Scalar.VECTOR:
            element = next(item for item in value if not _is_number(item))
            reason = f"vector property '{column.name}' elements must be numeric, got {display_value(element)}"
            return InvalidInput(reason, details=named)
        if column.type.is_list and any(item is None for item in value):
            return InvalidInput(f"list property '{column.name}' elements must not be null", details=named)
    return InvalidInput(
        f"expected {column.type.core}, got {display_value(value)}",
        hint=hint,
        location=ErrorLocation(property=column.name),
    )


def display_value(value: Any) -> str:
    """Return a value as messages show it: as JSON, truncated when it is long.

    >>> display_value({"a": [1, None]})
    '{"a":[1,null]}'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _MAX_DISPLAYED else f"{text[:_MAX_DISPLAYED]}…"


def build_array(column: Column, values: Sequence[Any]) -> pa.Array:
    """Build the Arrow array of converted values; None is null."""
    target = arrow_type(column.type)
    if column.type.scalar in _STORED:
        stored = _STORED[column.type.scalar]
        return pa.array(values, pa.list_(stored) if column.type.is_list else stored).cast(target)
    return pa.array(values, target)


_STORED = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}


def out_of_range(column: Column, value: Any) -> InvalidInput:
    """Return the error for a number beyond the range of its type."""
    return InvalidInput(
        f"value {display_value(value)} exceeds {column.type.scalar.value}",
        location=ErrorLocation(property=column.name),
    )


def in_range(column: Column, stored: pa.Array) -> bool:
    """Return whether all dates or datetimes of an array are in the years 1 to 9999; true for other types."""
    if column.type.scalar not in _STORED:
        return True
    low, high = TEMPORAL_RANGES[column.type.scalar]
    bounds = pc.min_max(stored.cast(_STORED[column.type.scalar]))
    smallest, largest = bounds["min"].as_py(), bounds["max"].as_py()
    return smallest is None or (low <= smallest and largest <= high)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _scalar(column: Column, finite: bool) -> Convert:
    scalar = column.type.scalar
    if scalar in INT_RANGES:
        return _integer(column, *INT_RANGES[scalar])
    if scalar is Scalar.F64:
        return _float(column, math.inf, finite)
    if scalar is Scalar.F32:
        return _float(column, F32_LIMIT, finite)
    if scalar is Scalar.BOOL:
        return _boolean
    if scalar is Scalar.DATE:
        return _temporal(column, *TEMPORAL_RANGES[scalar], _date)
    if scalar is Scalar.DATETIME:
        return _temporal(column, *TEMPORAL_RANGES[scalar], _datetime)
    return _blob(column) if scalar is Scalar.BLOB else _string(column)


def _string(column: Column) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, str):
            return MISMATCH
        check_unicode(column.name, value)
        return value

    return convert


def check_unicode(name: str, value: str) -> None:
    """Raise `InvalidInput` for text with an unpaired surrogate, which cannot be stored."""
    if value.isascii():
        return
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("not valid Unicode text", location=ErrorLocation(property=name)) from error


def _boolean(value: Any) -> Any:
    return value if value is True or value is False else MISMATCH


def _integer(column: Column, low: int, high: int) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not int:
            return MISMATCH
        if low <= value <= high:
            return value
        raise out_of_range(column, value)

    return convert


def _float(column: Column, limit: float, finite: bool) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is float and -limit < value < limit:
            return value
        if not _is_number(value):
            return NOT_FINITE.get(value, MISMATCH) if isinstance(value, str) else MISMATCH
        try:
            number = float(value)
        except OverflowError as error:
            raise out_of_range(column, value) from error
        if not -limit < number < limit and (finite or math.isfinite(number)):
            raise out_of_range(column, value)
        return number

    return convert


def _temporal(column: Column, low: int, high: int, parse: Callable[[Any], int | None]) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is int:
            if low <= value <= high:
                return value
            raise out_of_range(column, value)
        try:
            parsed = parse(value)
        except InvalidInput as error:
            raise error.located(ErrorLocation(property=column.name)) from error
        return MISMATCH if parsed is None else parsed

    return convert


def _date(value: Any) -> int | None:
    if isinstance(value, str):
        return parse_date(value)
    return days_of(value) if isinstance(value, date) and not isinstance(value, datetime) else None


def _datetime(value: Any) -> int | None:
    if isinstance(value, str):
        return parse_datetime(value)
    if isinstance(value, datetime):
        # NaT of pandas, a missing time, is a datetime that does not equal itself.
        return millis_of(value) if value == value else None
    return days_of(value) * 86_400_000 if isinstance(value, date) else None


def _list(column: Column, finite: bool) -> Convert:
    item = _scalar(Column(column.name, PropType(column.type.scalar), column.physical), finite)

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return MISMATCH
        items = [item(part) for part in value]
        return MISMATCH if MISMATCH in items else items

    return convert


def _vector(column: Column) -> Convert:
    name, dim = column.name, column.type.dim

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return MISMATCH
        if len(value) != dim:
            reason = f"vector property '{name}' expects {dim} dimensions, got {len(value)}"
            raise InvalidInput(reason, details={"property": name})
        if not all(_is_number(part) for part in value):
            return MISMATCH
        # Compared before the conversion, because a huge integer cannot be converted to float.
        if not all(-F32_LIMIT < part < F32_LIMIT for part in value):
            reason = f"vector property '{name}' elements must be finite"
            raise InvalidInput(reason, details={"property": name})
        return [float(part) for part in value]

    return convert


def _blob(column: Column) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, bytes):
            return {BLOB_DATA: value, BLOB_URI: None}
        if not isinstance(value, str):
            return MISMATCH
        check_unicode(column.name, value)
        if not value.startswith(BASE64):
            return {BLOB_DATA: None, BLOB_URI: value}
        try:
            data = base64.b64decode(value.removeprefix(BASE64), validate=True)
        except (binascii.Error, ValueError) as error:
            raise invalid_base64(column.name) from error
        return {BLOB_DATA: data, BLOB_URI: None}

    return convert

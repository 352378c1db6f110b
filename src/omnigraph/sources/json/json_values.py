"""Values of records as the values that columns are built from, one function per property, without coercion.

A JSON value becomes what its column stores: a Date its days, a DateTime its milliseconds, a Blob its two fields.
The same functions take Python values where JSON has none of its own: dates, datetimes, bytes and tuples.
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
from omnigraph.sources.arrow_values import BASE64

Convert: TypeAlias = Callable[[Any], Any]

# What a converter gives for a value of the wrong type. A value of the right type that does not fit raises.
MISMATCH: Final = object()
# The least double that rounds to an infinite float32: halfway from the greatest float32 to the next power of two.
F32_LIMIT: Final = (2 - 2**-24) * 2.0**127
# Longer values are cut in messages.
_SHOWN = 200


# How what JSON has no number for is written, here and by exports.
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def converter(column: Column, *, finite: bool = True) -> Convert:
    """The function from a value that is not None to what the column stores, or `MISMATCH`.

    `finite` refuses infinite and NaN floats: JSON has none, so there they are numbers that were too great.
    Written as texts, the way exports do, they are read.

    >>> from omnigraph.lang.types import DATE
    >>> since = converter(Column("since", DATE, "p1"))
    >>> since("1970-01-31"), since(30), since("soon") is MISMATCH
    (30, 30, True)
    """
    if column.type.scalar is Scalar.VECTOR:
        return _vector(column)
    return _list(column, finite) if column.type.is_list else _scalar(column, finite)


def mismatch_message(column: Column, value: Any) -> str:
    """What to say of a value that its converter found `MISMATCH`."""
    if isinstance(value, list | tuple):
        if column.type.scalar is Scalar.VECTOR:
            odd = next(item for item in value if not _is_number(item))
            return f"vector property '{column.name}' elements must be numeric, got {display_value(odd)}"
        if column.type.is_list and any(item is None for item in value):
            return f"list property '{column.name}' elements must not be null"
    return f"property '{column.name}' expects {column.type}, got {display_value(value)}"


def display_value(value: Any) -> str:
    """A value as messages show it: JSON, cut when it is long.

    >>> display_value({"a": [1, None]})
    '{"a":[1,null]}'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def build_array(column: Column, values: Sequence[Any]) -> pa.Array:
    """Converted values, None included, as the Arrow column of rows in the making."""
    wanted = arrow_type(column.type)
    if column.type.scalar in _STORED:
        stored = _STORED[column.type.scalar]
        return pa.array(values, pa.list_(stored) if column.type.is_list else stored).cast(wanted)
    return pa.array(values, wanted)


_STORED = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}


def out_of_range(column: Column, value: Any) -> InvalidInput:
    """The refusal of a number that its type cannot hold."""
    return InvalidInput(
        f"value {display_value(value)} exceeds {column.type.scalar.value}",
        location=ErrorLocation(property=column.name),
    )


def in_range(column: Column, stored: pa.Array) -> bool:
    """Whether all the dates or datetimes of an array are of the years 1 to 9999; what is neither always is."""
    if column.type.scalar not in _STORED:
        return True
    low, high = TEMPORAL_RANGES[column.type.scalar]
    found = pc.min_max(stored.cast(_STORED[column.type.scalar]))
    least, most = found["min"].as_py(), found["max"].as_py()
    return least is None or (low <= least and most <= high)


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
    """Refuse text with a lone surrogate: it cannot be stored."""
    if value.isascii():
        return
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"property '{name}' is not valid Unicode text") from error


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
            found = float(value)
        except OverflowError as error:
            raise out_of_range(column, value) from error
        if not -limit < found < limit and (finite or math.isfinite(found)):
            raise out_of_range(column, value)
        return found

    return convert


def _temporal(column: Column, low: int, high: int, parse: Callable[[Any], int | None]) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is int:
            if low <= value <= high:
                return value
            raise out_of_range(column, value)
        found = parse(value)
        return MISMATCH if found is None else found

    return convert


def _date(value: Any) -> int | None:
    if isinstance(value, str):
        return parse_date(value)
    return days_of(value) if isinstance(value, date) and not isinstance(value, datetime) else None


def _datetime(value: Any) -> int | None:
    if isinstance(value, str):
        return parse_datetime(value)
    if isinstance(value, datetime):
        # What pandas has for a missing time is one too, and differs from itself.
        return millis_of(value) if value == value else None
    return days_of(value) * 86_400_000 if isinstance(value, date) else None


def _list(column: Column, finite: bool) -> Convert:
    item = _scalar(Column(column.name, PropType(column.type.scalar), column.physical), finite)

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return MISMATCH
        found = [item(part) for part in value]
        return MISMATCH if MISMATCH in found else found

    return convert


def _vector(column: Column) -> Convert:
    name, dim = column.name, column.type.dim

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return MISMATCH
        if len(value) != dim:
            raise InvalidInput(f"vector property '{name}' expects {dim} dimensions, got {len(value)}")
        if not all(_is_number(part) for part in value):
            return MISMATCH
        # Compared before the conversion, which a huge integer would not survive.
        if not all(-F32_LIMIT < part < F32_LIMIT for part in value):
            raise InvalidInput(f"vector property '{name}' elements must be finite")
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
            found = base64.b64decode(value.removeprefix(BASE64), validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidInput(
                f"property '{column.name}' has a `base64:` payload that cannot be decoded"
            ) from error
        return {BLOB_DATA: found, BLOB_URI: None}

    return convert

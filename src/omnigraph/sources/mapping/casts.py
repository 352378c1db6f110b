"""Casts of a mapping: conversion of values of one kind to a property of another kind.

Each cast is defined for a single value. Whole columns are cast at once only when the result is the same.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import ROUND_FLOOR, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Column
from omnigraph.catalog.columns import BLOB_DATA, BLOB_URI, arrow_type
from omnigraph.catalog.keys import float_text
from omnigraph.errors import InvalidInput
from omnigraph.lang.suggestions import suggestion
from omnigraph.lang.temporal import (
    MIN_MILLIS,
    TEMPORAL_RANGES,
    days_of,
    floor_millis,
    format_datetime,
    millis_of,
    too_precise,
)
from omnigraph.lang.types import Scalar
from omnigraph.sources.json.json_values import MISMATCH, Convert, in_range, out_of_range, value_converter
from omnigraph.sources.table_values import (
    RowErrors,
    Values,
    cell_value,
    convert_column,
    convert_text_column,
    convert_values,
    python_value,
    truncated,
)

Kind: TypeAlias = Literal["type", "format", "epoch", "json", "split", "base64"]

# Milliseconds per unit.
_EPOCHS = {
    "epoch_seconds": Decimal(1000),
    "epoch_millis": Decimal(1),
    "epoch_micros": Decimal("0.001"),
    "epoch_nanos": Decimal("0.000001"),
}
_SPLIT = "split:"
_TRUNCATE = "truncate:"
_TEMPORAL = (Scalar.DATE, Scalar.DATETIME)
_DAY = 86_400_000
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
# Directives of fixed width, with the pattern of their text.
_FIXED = {
    "Y": "[0-9]{4}",
    "m": "[0-9]{2}",
    "d": "[0-9]{2}",
    "H": "[0-9]{2}",
    "M": "[0-9]{2}",
    "S": "[0-9]{2}",
}
_DIRECTIVE = re.compile(r"%(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast: its kind, and the format, unit or separator.

    `truncates` removes digits below a millisecond from a DateTime, which are an error otherwise.
    """

    kind: Kind
    text: str
    truncates: bool = False


def read_cast(text: Any, column: Column) -> Cast:
    """Return the cast of a mapping for a property; raise `InvalidInput` for an unknown or unsuitable cast.

    >>> from omnigraph.lang.types import DATE
    >>> read_cast("%d.%m.%Y", Column("born", DATE, "p1"))
    Cast(kind='format', text='%d.%m.%Y', truncates=False)
    """
    if not isinstance(text, str) or not text:
        raise InvalidInput(f"expected a cast as text, got {text!r}")
    if text.startswith(_TRUNCATE):
        cast = read_cast(text.removeprefix(_TRUNCATE), column)
        is_suitable = column.type.scalar is Scalar.DATETIME and cast.kind in ("type", "format", "epoch")
        return _of_type(replace(cast, truncates=True), column, is_suitable)
    own = str(column.type.core)
    scalar = column.type.scalar
    names = [own, *_EPOCHS, "json", "base64", f"{_SPLIT};"]
    if text == own or (text == Scalar.STRING.value and column.type.is_enum and not column.type.is_list):
        return Cast("json" if column.type.is_list or scalar is Scalar.VECTOR else "type", text)
    if "%" in text and not text.startswith(_SPLIT):
        _check_format(text)
        return _of_type(Cast("format", text), column, scalar in _TEMPORAL and not column.type.is_list)
    if text in _EPOCHS:
        return _of_type(Cast("epoch", text), column, scalar in _TEMPORAL and not column.type.is_list)
    if text == "json":
        return Cast("json", text)
    if text == "base64":
        return _of_type(Cast("base64", text), column, scalar is Scalar.BLOB)
    if text.startswith(_SPLIT) and text != _SPLIT:
        return _of_type(Cast("split", text.removeprefix(_SPLIT)), column, column.type.is_list)
    if text in [item.value for item in Scalar]:
        raise InvalidInput(f"cast to {text}, but property '{column.name}' has type {own}")
    raise InvalidInput(
        f"unknown cast '{text}'",
        hint=suggestion(text, names) or f"use a format with %, or one of {', '.join(names)}",
    )


def _of_type(cast: Cast, column: Column, is_suitable: bool) -> Cast:
    if not is_suitable:
        raise InvalidInput(
            f"cast '{cast.text}' cannot produce {column.type.core} for property '{column.name}'"
        )
    return cast


def _check_format(text: str) -> None:
    try:
        datetime.strptime("", text)  # noqa: DTZ007
    except ValueError as error:
        if "does not match" not in str(error):
            raise InvalidInput(f"invalid date format '{text}': {error}") from error
    except re.error as error:
        raise InvalidInput(f"invalid date format '{text}': {error}") from error


def apply_cast(cast: Cast, column: Column, values: Values) -> tuple[pa.Array, RowErrors]:
    """Cast a column; values with errors become null. `column` has the name of the input column."""
    if cast.truncates and cast.kind == "type":
        return convert_column(column, truncated(column, values))
    if isinstance(values, pa.Array):
        array = _cast_array(cast, column, values)
        if array is not None:
            return array, {}
    return convert_values(column, values, _value_cast(cast, column, values))


# --- one value --------------------------------------------------------------------------------------------


def _value_cast(cast: Cast, column: Column, values: Values) -> Convert:
    match cast.kind:
        case "format":
            return _date_format(cast, column)
        case "epoch":
            return _epoch(cast, column)
        case "json":
            return _on_text(_json(column), python_value(column))
        case "split":
            return _on_text(_split(cast.text, column), python_value(column))
        case "base64":
            return _on_text(_base64, python_value(column))
    if column.type.scalar is Scalar.STRING:
        is_single = isinstance(values, pa.Array) and values.type in (pa.float32(), pa.float16())
        return _text(Scalar.F32 if is_single else Scalar.F64)
    return _boolean if column.type.scalar is Scalar.BOOL else _trimmed(column)


def _on_text(read: Convert, other: Convert) -> Convert:
    """Return a function that applies `read` to text and `other` to other values."""
    return lambda value: read(value) if isinstance(value, str) else other(value)


def _trimmed(column: Column) -> Convert:
    read = cell_value(column)
    return _on_text(lambda text: read(text.strip()), python_value(column))


def _boolean(value: Any) -> Any:
    if isinstance(value, str):
        return _BOOLEANS.get(value.strip().lower(), MISMATCH)
    return bool(value) if value in (0, 1) else MISMATCH


def _text(width: Scalar) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return float_text(value, width) if np.isfinite(value) else MISMATCH
        if isinstance(value, datetime):
            return _moment_text(value)
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, list | dict):
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
        return str(value) if isinstance(value, int | Decimal) else MISMATCH

    return convert


def _moment_text(moment: datetime) -> str:
    """Return the ISO text of a datetime in UTC, with all its digits."""
    try:
        return format_datetime(millis_of(moment))
    except InvalidInput:
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _date_format(cast: Cast, column: Column) -> Convert:
    text = cast.text
    other = python_value(column)
    is_date = column.type.scalar is Scalar.DATE
    to_millis = floor_millis if cast.truncates else millis_of

    @lru_cache(maxsize=65_536)
    def parse(value: str) -> Any:
        try:
            # A time without an offset is UTC.
            moment = datetime.strptime(value, text)  # noqa: DTZ007
            return days_of(moment.date()) if is_date else to_millis(moment)
        except (ValueError, OverflowError):
            return MISMATCH

    def convert(value: Any) -> Any:
        if isinstance(value, str):
            return parse(value.strip())
        # A column of numbers such as 20240131.
        return parse(str(value)) if isinstance(value, int) and not isinstance(value, bool) else other(value)

    return convert


def _epoch(cast: Cast, column: Column) -> Convert:
    unit = _EPOCHS[cast.text]
    is_date = column.type.scalar is Scalar.DATE
    truncates = is_date or cast.truncates
    low, high = TEMPORAL_RANGES[column.type.scalar]

    def convert(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
            return MISMATCH
        try:
            number = Decimal(value.strip() if isinstance(value, str) else str(value))
            exact = number * unit
            millis = int(exact.to_integral_value(ROUND_FLOOR))
        except (InvalidOperation, ValueError, OverflowError):
            return MISMATCH
        if exact != millis and not truncates:
            raise too_precise(str(value))
        stored = millis // _DAY if is_date else millis
        if not low <= stored <= high:
            raise out_of_range(column, value)
        return stored

    return convert


def _json(column: Column) -> Convert:
    convert = value_converter(column)

    def read(text: str) -> Any:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return MISMATCH
        return None if value is None else convert(value)

    return read


def _split(separator: str, column: Column) -> Convert:
    item = cell_value(Column(column.name, column.type.item, column.physical))

    def read(text: str) -> Any:
        items = [item(part) for part in text.split(separator)] if text else []
        return MISMATCH if MISMATCH in items else items

    return read


def _base64(text: str) -> Any:
    try:
        return {BLOB_DATA: base64.b64decode(text, validate=True), BLOB_URI: None}
    except (binascii.Error, ValueError):
        return MISMATCH


# --- whole columns ----------------------------------------------------------------------------------------


def _cast_array(cast: Cast, column: Column, values: pa.Array) -> pa.Array | None:
    """Cast a whole column; return None when its values must be cast one by one."""
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    try:
        if cast.kind == "format" and is_text:
            return _parse_dates(cast.text, column, values)
        if cast.kind == "epoch":
            return _cast_epochs(cast, column, values)
        if cast.kind == "split" and is_text and column.type.scalar is Scalar.STRING:
            return _split_texts(cast.text, column, values)
        if cast.kind == "type" and column.type.scalar is Scalar.STRING:
            direct = is_text or pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)
            return values.cast(pa.string()) if direct else None
        if cast.kind == "type" and is_text and column.type.scalar is not Scalar.BOOL:
            array, errors = convert_text_column(column, values.cast(pa.string()))
            return None if errors else array
    except pa.ArrowException:
        pass
    return None


def _parse_dates(text: str, column: Column, values: pa.Array) -> pa.Array | None:
    """Parse a format of fixed width; the parsed dates, formatted again, must equal the texts."""
    names = _DIRECTIVE.findall(text)
    if not set(names) <= _FIXED.keys() or len(set(names)) < len(names) or not {"Y", "m", "d"} <= set(names):
        return None
    pieces = _DIRECTIVE.split(text)
    pattern = "".join(_FIXED[item] if index % 2 else re.escape(item) for index, item in enumerate(pieces))
    if not pc.all(pc.match_substring_regex(values, f"^{pattern}$"), min_count=0).as_py():
        return None
    parsed = pc.strptime(values, text, "ms", error_is_null=True)
    if pc.any(pc.less(parsed.cast(pa.int64()), MIN_MILLIS)).as_py():
        # Arrow accepts the year 0.
        return None
    # Arrow formats seconds of a millisecond timestamp with a fraction.
    again = pc.strftime(parsed.cast(pa.timestamp("s")), text)
    if parsed.null_count != values.null_count or not pc.all(pc.equal(again, values), min_count=0).as_py():
        return None
    return parsed.cast(pa.date32(), safe=False) if column.type.scalar is Scalar.DATE else parsed


def _cast_epochs(cast: Cast, column: Column, values: pa.Array) -> pa.Array | None:
    unit = _EPOCHS[cast.text]
    if pa.types.is_string(values.type):
        if not pc.all(pc.match_substring_regex(values, "^-?[0-9]{1,18}$"), min_count=0).as_py():
            return None
        values = values.cast(pa.int64())
    if pa.types.is_floating(values.type):
        integers = values.cast(pa.int64())
        if pc.any(pc.greater(pc.abs(integers), 2**53)).as_py():
            return None
        values = integers
    if not pa.types.is_integer(values.type) or pa.types.is_uint64(values.type):
        return None
    numbers = values.cast(pa.int64())
    valid = numbers.is_valid().to_numpy(zero_copy_only=False)
    if unit >= 1:
        scaled = pc.multiply_checked(numbers, int(unit))
        millis = pc.fill_null(scaled, 0).to_numpy(zero_copy_only=False)
    else:
        millis, rest = np.divmod(pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False), int(1 / unit))
        if rest.any() and column.type.scalar is Scalar.DATETIME and not cast.truncates:
            return None
    if column.type.scalar is Scalar.DATE:
        days = millis // _DAY
        low, high = TEMPORAL_RANGES[Scalar.DATE]
        if ((days < low) | (days > high)).any():
            return None
        return pa.array(days.astype(np.int32), mask=~valid).cast(pa.date32())
    stored = pa.array(millis, pa.int64(), mask=~valid).cast(arrow_type(column.type))
    return stored if in_range(column, stored) else None


def _split_texts(separator: str, column: Column, values: pa.Array) -> pa.Array:
    lists = pc.split_pattern(values.cast(pa.string()), pattern=separator)
    # Arrow splits an empty text to a list of one empty text; here it becomes an empty list.
    is_empty = pc.fill_null(pc.equal(values, ""), False)
    empty_list = pa.array([[]], lists.type)
    indices = np.arange(len(values))
    indices[is_empty.to_numpy(zero_copy_only=False)] = len(values)
    return pa.concat_arrays([lists, empty_list]).take(pa.array(indices)).cast(arrow_type(column.type))

"""Casts that a mapping asks for: values of one kind read as a property of another.

Each cast is defined for one value. A whole column takes a faster way only where that gives the same.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from datetime import date, datetime
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
from omnigraph.lang.temporal import MIN_MILLIS, TEMPORAL_RANGES, days_of, format_datetime, millis_of
from omnigraph.lang.types import Scalar
from omnigraph.sources.json.json_values import MISMATCH, Convert, converter, in_range, out_of_range
from omnigraph.sources.table_values import (
    Faults,
    Values,
    cell_value,
    convert_all,
    fit_text,
    python_value,
)

Kind: TypeAlias = Literal["type", "format", "epoch", "json", "split", "base64"]

# How many of each make a millisecond, as a fraction.
_EPOCHS = {
    "epoch_seconds": Decimal(1000),
    "epoch_millis": Decimal(1),
    "epoch_micros": Decimal("0.001"),
    "epoch_nanos": Decimal("0.000001"),
}
_SPLIT = "split:"
_TEMPORAL = (Scalar.DATE, Scalar.DATETIME)
_DAY = 86_400_000
_TRUTH = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
# The directives whose text has a fixed width, by what matches it.
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
    """A cast for a property: its kind, and the format, unit or separator of that kind."""

    kind: Kind
    text: str


def read_cast(text: Any, column: Column) -> Cast:
    """The cast that a text names for a property; `InvalidInput` when there is none or it gives something else.

    >>> from omnigraph.lang.types import DATE
    >>> read_cast("%d.%m.%Y", Column("born", DATE, "p1"))
    Cast(kind='format', text='%d.%m.%Y')
    """
    if not isinstance(text, str) or not text:
        raise InvalidInput(f"a cast is a text, got {text!r}")
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
        raise InvalidInput(f"cast to {text}, but property '{column.name}' is {own}")
    raise InvalidInput(
        f"no cast '{text}'", hint=suggestion(text, names) or f"a format with %, or one of {', '.join(names)}"
    )


def _of_type(cast: Cast, column: Column, fits: bool) -> Cast:
    if not fits:
        raise InvalidInput(f"cast '{cast.text}' gives no {column.type.core} for property '{column.name}'")
    return cast


def _check_format(text: str) -> None:
    try:
        datetime.strptime("", text)  # noqa: DTZ007
    except ValueError as error:
        if "does not match" not in str(error):
            raise InvalidInput(f"'{text}' is no format of dates: {error}") from error
    except re.error as error:
        raise InvalidInput(f"'{text}' is no format of dates: {error}") from error


def apply_cast(cast: Cast, column: Column, values: Values) -> tuple[pa.Array, Faults]:
    """A column as its property has it, null where a value cannot be cast; `column` has the name of the input's."""
    if isinstance(values, pa.Array):
        found = _at_once(cast, column, values)
        if found is not None:
            return found, {}
    return convert_all(column, values, _value(cast, column, values))


# --- one value --------------------------------------------------------------------------------------------


def _value(cast: Cast, column: Column, values: Values) -> Convert:
    match cast.kind:
        case "format":
            return _formatted(cast.text, column)
        case "epoch":
            return _epoch(_EPOCHS[cast.text], column)
        case "json":
            return _on_text(_json(column), python_value(column))
        case "split":
            return _on_text(_split(cast.text, column), python_value(column))
        case "base64":
            return _on_text(_base64, python_value(column))
    if column.type.scalar is Scalar.STRING:
        is_single = isinstance(values, pa.Array) and values.type in (pa.float32(), pa.float16())
        return _text(Scalar.F32 if is_single else Scalar.F64)
    return _truth if column.type.scalar is Scalar.BOOL else _trimmed(column)


def _on_text(read: Convert, other: Convert) -> Convert:
    return lambda value: read(value) if isinstance(value, str) else other(value)


def _trimmed(column: Column) -> Convert:
    read = cell_value(column)
    return _on_text(lambda text: read(text.strip()), python_value(column))


def _truth(value: Any) -> Any:
    if isinstance(value, str):
        return _TRUTH.get(value.strip().lower(), MISMATCH)
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
            return format_datetime(millis_of(value))
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, list | dict):
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
        return str(value) if isinstance(value, int | Decimal) else MISMATCH

    return convert


def _formatted(text: str, column: Column) -> Convert:
    other = python_value(column)
    is_date = column.type.scalar is Scalar.DATE

    @lru_cache(maxsize=65_536)
    def parse(value: str) -> Any:
        try:
            # Without an offset the time is UTC, as everywhere.
            moment = datetime.strptime(value, text)  # noqa: DTZ007
            return days_of(moment.date()) if is_date else millis_of(moment)
        except (ValueError, OverflowError):
            return MISMATCH

    def convert(value: Any) -> Any:
        if isinstance(value, str):
            return parse(value.strip())
        # 20240131 in a column of numbers.
        return parse(str(value)) if isinstance(value, int) and not isinstance(value, bool) else other(value)

    return convert


def _epoch(unit: Decimal, column: Column) -> Convert:
    is_date = column.type.scalar is Scalar.DATE
    low, high = TEMPORAL_RANGES[column.type.scalar]

    def convert(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
            return MISMATCH
        try:
            number = Decimal(value.strip() if isinstance(value, str) else str(value))
            found = int((number * unit).to_integral_value(ROUND_FLOOR))
        except (InvalidOperation, ValueError, OverflowError):
            return MISMATCH
        found = found // _DAY if is_date else found
        if not low <= found <= high:
            raise out_of_range(column, value)
        return found

    return convert


def _json(column: Column) -> Convert:
    convert = converter(column)

    def read(text: str) -> Any:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return MISMATCH
        return None if found is None else convert(found)

    return read


def _split(separator: str, column: Column) -> Convert:
    item = cell_value(Column(column.name, column.type.item, column.physical))

    def read(text: str) -> Any:
        found = [item(part) for part in text.split(separator)] if text else []
        return MISMATCH if MISMATCH in found else found

    return read


def _base64(text: str) -> Any:
    try:
        return {BLOB_DATA: base64.b64decode(text, validate=True), BLOB_URI: None}
    except (binascii.Error, ValueError):
        return MISMATCH


# --- whole columns ----------------------------------------------------------------------------------------


def _at_once(cast: Cast, column: Column, values: pa.Array) -> pa.Array | None:
    """The column cast at once; None when each value has to be looked at."""
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    try:
        if cast.kind == "format" and is_text:
            return _formatted_at_once(cast.text, column, values)
        if cast.kind == "epoch":
            return _epoch_at_once(_EPOCHS[cast.text], column, values)
        if cast.kind == "split" and is_text and column.type.scalar is Scalar.STRING:
            return _split_at_once(cast.text, column, values)
        if cast.kind == "type" and column.type.scalar is Scalar.STRING:
            direct = is_text or pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)
            return values.cast(pa.string()) if direct else None
        if cast.kind == "type" and is_text and column.type.scalar is not Scalar.BOOL:
            found, faults = fit_text(column, values.cast(pa.string()))
            return None if faults else found
    except pa.ArrowException:
        pass
    return None


def _formatted_at_once(text: str, column: Column, values: pa.Array) -> pa.Array | None:
    """Formats of fixed width; what was read, written again, must be the text that was given."""
    names = _DIRECTIVE.findall(text)
    if not set(names) <= _FIXED.keys() or len(set(names)) < len(names) or not {"Y", "m", "d"} <= set(names):
        return None
    pieces = _DIRECTIVE.split(text)
    pattern = "".join(_FIXED[item] if place % 2 else re.escape(item) for place, item in enumerate(pieces))
    if not pc.all(pc.match_substring_regex(values, f"^{pattern}$"), min_count=0).as_py():
        return None
    found = pc.strptime(values, text, "ms", error_is_null=True)
    if pc.any(pc.less(found.cast(pa.int64()), MIN_MILLIS)).as_py():
        # There is a year 0 to Arrow alone.
        return None
    # Of milliseconds Arrow would write the fraction with the seconds.
    again = pc.strftime(found.cast(pa.timestamp("s")), text)
    if found.null_count != values.null_count or not pc.all(pc.equal(again, values), min_count=0).as_py():
        return None
    return found.cast(pa.date32(), safe=False) if column.type.scalar is Scalar.DATE else found


def _epoch_at_once(unit: Decimal, column: Column, values: pa.Array) -> pa.Array | None:
    if pa.types.is_string(values.type):
        if not pc.all(pc.match_substring_regex(values, "^-?[0-9]{1,18}$"), min_count=0).as_py():
            return None
        values = values.cast(pa.int64())
    if pa.types.is_floating(values.type):
        whole = values.cast(pa.int64())
        if pc.any(pc.greater(pc.abs(whole), 2**53)).as_py():
            return None
        values = whole
    if not pa.types.is_integer(values.type) or pa.types.is_uint64(values.type):
        return None
    numbers = values.cast(pa.int64())
    valid = numbers.is_valid().to_numpy(zero_copy_only=False)
    if unit >= 1:
        scaled = pc.multiply_checked(numbers, int(unit))
        millis = pc.fill_null(scaled, 0).to_numpy(zero_copy_only=False)
    else:
        millis = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False) // int(1 / unit)
    if column.type.scalar is Scalar.DATE:
        days = millis // _DAY
        low, high = TEMPORAL_RANGES[Scalar.DATE]
        if ((days < low) | (days > high)).any():
            return None
        return pa.array(days.astype(np.int32), mask=~valid).cast(pa.date32())
    found = pa.array(millis, pa.int64(), mask=~valid).cast(arrow_type(column.type))
    return found if in_range(column, found) else None


def _split_at_once(separator: str, column: Column, values: pa.Array) -> pa.Array:
    found = pc.split_pattern(values.cast(pa.string()), pattern=separator)
    # One empty part stands for a text with nothing in it.
    empty = pc.fill_null(pc.equal(values, ""), False)
    nothing = pa.array([[]], found.type)
    indices = np.arange(len(values))
    indices[empty.to_numpy(zero_copy_only=False)] = len(values)
    return pa.concat_arrays([found, nothing]).take(pa.array(indices)).cast(arrow_type(column.type))

"""Lossless conversion of table columns to the types of properties, with the errors of single rows.

A column of a suitable Arrow type is cast as a whole. When that fails, and for every other type, each value is
converted separately, by the same functions as the values of records, so that an error can name its row. Digits
below a millisecond are an error of the row, as they are in text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Column
from omnigraph.catalog.columns import BLOB_DATA, BLOB_URI, arrow_type
from omnigraph.errors import ErrorLocation, InvalidInput
from omnigraph.lang.temporal import TEMPORAL_RANGES, floor_datetime, floor_millis
from omnigraph.lang.types import FLOATS, INT_RANGES, Scalar
from omnigraph.sources.json.json_values import (
    MISMATCH,
    NOT_FINITE,
    Convert,
    build_array,
    display_value,
    in_range,
    value_converter,
)

# Errors of rows by position.
RowErrors: TypeAlias = dict[int, InvalidInput]
# A column: of one Arrow type, or Python values of any types.
Values: TypeAlias = pa.Array | list[Any]

_INTEGER = re.compile(r"-?\d{1,30}\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)
_STORED = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}
# More digits than any number of a property has; converting a decimal with a large exponent to an integer is slow.
_MAX_DIGITS = 400
# Units of time as a fraction: so many of a unit are so many milliseconds.
_DAY = 86_400_000
_UNITS = {"D": (1, _DAY), "s": (1, 1_000), "ms": (1, 1), "us": (1_000, 1), "ns": (1_000_000, 1)}
_BOOLEANS = {"true": True, "false": False}


def convert_column(column: Column, values: Values) -> tuple[pa.Array, RowErrors]:
    """Convert a column of a table to the type of its property; values with errors become null."""
    if isinstance(values, list):
        return convert_values(column, values, python_value(column))
    values = plain_array(values)
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), arrow_type(column.type)), {}
    cast = _cast(column, values)
    if cast is not None:
        return cast, {}
    return convert_values(column, _stored_items(column, values), python_value(column))


def plain_array(values: pa.Array) -> pa.Array:
    """Return the array without dictionary encoding and views, which most Arrow functions do not support."""
    if pa.types.is_dictionary(values.type):
        return plain_array(values.dictionary).take(values.indices)
    if pa.types.is_string_view(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pa.types.is_binary_view(values.type) else values


def convert_json_column(column: Column, values: Values) -> tuple[pa.Array, RowErrors]:
    """Convert JSON values, or an Arrow array parsed from JSON, with the rules of strict records."""
    if isinstance(values, pa.Array):
        cast = _cast(column, values)
        if cast is not None:
            return cast, {}
    return convert_values(column, values, value_converter(column))


def convert_text_column(column: Column, cells: Values) -> tuple[pa.Array, RowErrors]:
    """Convert text cells, as in a CSV file; null is a missing value.

    A list or a vector is a JSON array in a cell; other values are plain text.
    """
    if isinstance(cells, pa.Array):
        cast = _cast_text(column, cells)
        if cast is not None:
            return cast, {}
    return convert_values(column, cells, cell_value(column))


def convert_values(column: Column, values: Values, convert: Convert) -> tuple[pa.Array, RowErrors]:
    """Convert a column value by value; a result `MISMATCH` and an exception are errors of the row."""
    if isinstance(values, pa.Array) and pa.types.is_string(values.type):
        # Texts such as dates repeat, so that each distinct text is converted only once.
        encoded = values.dictionary_encode()
        converted, errors = _convert_items(column, encoded.dictionary.to_pylist(), convert)
        return converted.take(encoded.indices), _spread(errors, encoded.indices)
    return _convert_items(column, values if isinstance(values, list) else values.to_pylist(), convert)


def column_error(name: str, reason: str, hint: str | None = None) -> InvalidInput:
    """Return the error for a value of a column of the input."""
    return InvalidInput(reason, hint=hint, location=ErrorLocation(column=name))


def cast_hint(column: Column, value: Any) -> str | None:
    """Return a hint at the cast that would read a value of the wrong type, or None if there is none.

    >>> from omnigraph.lang.types import PropType
    >>> cast_hint(Column("age", PropType(Scalar.I32), "p1"), "12")
    'text is not converted; write the value without quotes, or use a mapping with `casts: {age: I32}`'
    """
    core = str(column.type.core)
    if not isinstance(value, str):
        is_plain = isinstance(value, int | float) and column.type.scalar is Scalar.STRING
        if not is_plain or column.type.is_list or column.type.is_enum:
            return None
        return f"values are not converted to text; use a mapping with `casts: {{{column.name}: {core}}}`"
    if column.type.is_list and column.type.scalar is not Scalar.VECTOR:
        return f'text is not a list; use a mapping with `casts: {{{column.name}: json}}` or `"split:;"`'
    try:
        is_readable = cell_value(column)(value.strip()) is not MISMATCH
    except InvalidInput:
        is_readable = False
    if column.type.scalar is Scalar.STRING or not is_readable:
        return None
    return (
        "text is not converted; write the value without quotes,"
        f" or use a mapping with `casts: {{{column.name}: {core}}}`"
    )


def _spread(errors: RowErrors, indices: pa.Array) -> RowErrors:
    """Return the errors of distinct values as errors of the rows that have these values."""
    if not errors:
        return {}
    rows = pc.fill_null(indices, -1).to_numpy(zero_copy_only=False)
    positions = np.flatnonzero(np.isin(rows, list(errors)))
    return {int(position): errors[int(rows[position])] for position in positions}


def _convert_items(column: Column, values: list[Any], convert: Convert) -> tuple[pa.Array, RowErrors]:
    converted: list[Any] = []
    errors: RowErrors = {}
    for position, value in enumerate(values):
        result = None
        if value is not None:
            try:
                result = convert(value)
            except InvalidInput as error:
                errors[position] = column_error(column.name, error.reason, error.hint)
            if result is MISMATCH:
                reason = f"expected {column.type.core}, got {display_value(value)}"
                errors[position] = column_error(column.name, reason, cast_hint(column, value))
                result = None
        converted.append(result)
    return build_array(column, converted), errors


# --- whole columns ----------------------------------------------------------------------------------------


def _cast(column: Column, values: pa.Array) -> pa.Array | None:
    """Cast a whole column; return None when its values must be converted one by one."""
    if column.type.is_list or column.type.scalar is Scalar.VECTOR:
        return _cast_lists(column, values)
    if not _is_direct(column.type.scalar, values.type):
        return None
    try:
        if column.type.scalar is Scalar.DATETIME and pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp(values.type.unit))
        # A safe cast fails for digits below a millisecond.
        cast = values.cast(arrow_type(column.type))
        if column.type.scalar is Scalar.F32 and pc.any(pc.is_inf(cast)).as_py():
            return None
    except pa.ArrowException:
        return None
    return cast if in_range(column, cast) else None


def _is_direct(scalar: Scalar, source: pa.DataType) -> bool:
    """Return whether a safe cast between these types either keeps every value or fails."""
    is_ = pa.types
    if scalar is Scalar.STRING:
        return bool(is_.is_string(source) or is_.is_large_string(source) or is_.is_string_view(source))
    if scalar in INT_RANGES or scalar in FLOATS:
        return bool(is_.is_integer(source) or is_.is_floating(source))
    if scalar is Scalar.BOOL:
        return bool(is_.is_boolean(source))
    if scalar is Scalar.DATE:
        return bool(is_.is_date32(source))
    return scalar is Scalar.DATETIME and bool(is_.is_timestamp(source) or is_.is_date32(source))


def _cast_lists(column: Column, values: pa.Array) -> pa.Array | None:
    is_ = pa.types
    if not (
        is_.is_list(values.type) or is_.is_large_list(values.type) or is_.is_fixed_size_list(values.type)
    ):
        return None
    item = Column(column.name, column.type.item, column.physical)
    if column.type.scalar is Scalar.VECTOR:
        if not (is_.is_integer(values.type.value_type) or is_.is_floating(values.type.value_type)):
            return None
    elif not _is_direct(item.type.scalar, values.type.value_type):
        return None
    elements = pc.list_flatten(values)
    if elements.null_count:
        return None
    if column.type.scalar is Scalar.VECTOR:
        return _cast_vectors(column, values, elements)
    cast = _cast(item, elements)
    if cast is None:
        return None
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, cast, arrow_type(column.type), mask=values.is_null())


def _cast_vectors(column: Column, values: pa.Array, elements: pa.Array) -> pa.Array | None:
    lengths = pc.drop_null(pc.list_value_length(values)).to_numpy(zero_copy_only=False)
    if (lengths != column.type.dim).any():
        return None
    try:
        numbers = elements.cast(pa.float32())
    except pa.ArrowException:
        return None
    if not np.isfinite(numbers.to_numpy(zero_copy_only=False)).all():
        return None
    vectors = pa.FixedSizeListArray.from_arrays(numbers, type=arrow_type(column.type))
    if not values.null_count:
        return vectors
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    return vectors.take(pa.array(np.cumsum(valid) - 1, pa.int64(), mask=~valid))


def _cast_text(column: Column, cells: pa.Array) -> pa.Array | None:
    if column.type.is_list:
        return None
    scalar = column.type.scalar
    if scalar is Scalar.STRING:
        return cells
    if scalar in _STORED:
        return _cast_stored(column, cells)
    if scalar in INT_RANGES:
        pattern = r"^-?[0-9]{1,20}$"
    elif scalar in FLOATS:
        pattern = r"^-?[0-9]{1,300}(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,2})?$"
    else:
        return None
    if not pc.all(pc.match_substring_regex(cells, pattern), min_count=0).as_py():
        return None
    try:
        numbers = cells.cast(arrow_type(column.type) if scalar is not Scalar.F32 else pa.float64())
    except pa.ArrowException:
        return None
    return _cast(column, numbers)


def _cast_stored(column: Column, cells: pa.Array) -> pa.Array | None:
    """Cast dates and datetimes whose cells all contain the stored integers; return None otherwise."""
    if not pc.all(pc.match_substring_regex(cells, r"^-?[0-9]{1,18}$"), min_count=0).as_py():
        return None
    try:
        cast = cells.cast(pa.int64()).cast(_STORED[column.type.scalar]).cast(arrow_type(column.type))
    except pa.ArrowException:
        return None
    return cast if in_range(column, cast) else None


# --- one value --------------------------------------------------------------------------------------------


def python_value(column: Column) -> Convert:
    """Return the function that converts the Python value of an Arrow scalar to the stored value."""
    convert = value_converter(column, finite=False)
    scalar = column.type.scalar
    if scalar is Scalar.BLOB:
        return _blob(convert)
    if scalar in INT_RANGES or scalar in FLOATS or scalar is Scalar.VECTOR:
        return _each(column, _number(scalar), convert)
    return _each(column, _midnight, convert) if scalar is Scalar.DATE else convert


def truncated(column: Column, values: Values) -> Values:
    """Return the values of a DateTime column without digits below a millisecond."""
    if isinstance(values, pa.Array) and pa.types.is_timestamp(values.type):
        return pc.floor_temporal(values.cast(pa.timestamp(values.type.unit)), unit="millisecond")
    items = values if isinstance(values, list) else _stored_items(column, values)
    return [_floor(item) for item in (items if isinstance(items, list) else items.to_pylist())]


def _floor(value: Any) -> Any:
    if isinstance(value, datetime):
        return floor_millis(value) if value == value else None
    millis = floor_datetime(value.strip()) if isinstance(value, str) else None
    return value if millis is None else millis


def _stored_items(column: Column, values: pa.Array) -> Values:
    """Return the values of an array for `python_value`; dates beyond the range of Python as integers."""
    if column.type.scalar not in _STORED or pa.types.is_string(values.type):
        return values
    per_day = _DAY if column.type.scalar is Scalar.DATE else 1
    return python_items(values, lambda millis: millis // per_day)


def python_items(values: pa.Array, beyond: Callable[[int], Any] = str) -> list[Any]:
    """Return the Python values of an array; `beyond` converts the milliseconds of dates that Python cannot hold."""
    try:
        items: list[Any] = values.to_pylist()
    except (OverflowError, ValueError):
        return [_python_item(item, beyond) for item in values]
    return items


def _python_item(item: pa.Scalar, beyond: Callable[[int], Any]) -> Any:
    if isinstance(item, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar) and item.is_valid:
        return [_python_item(part, beyond) for part in item.values]
    try:
        return item.as_py()
    except (OverflowError, ValueError):
        if not pa.types.is_temporal(item.type):
            return None
        of_milli, of_item = _UNITS["D" if pa.types.is_date32(item.type) else getattr(item.type, "unit", "ms")]
        millis, rest = divmod(item.value * of_item, of_milli)
        # Without pandas, Python has no value with nanoseconds.
        return item.cast(pa.string()).as_py() if rest and _has_text(millis) else beyond(millis)


def _has_text(millis: int) -> bool:
    low, high = TEMPORAL_RANGES[Scalar.DATETIME]
    return low <= millis <= high


def _each(column: Column, change: Callable[[Any], Any], convert: Convert) -> Convert:
    """Return a function that applies `change`, for lists to each element, and then `convert`."""
    if column.type.is_list or column.type.scalar is Scalar.VECTOR:
        return lambda value: convert([change(item) for item in value] if isinstance(value, list) else value)
    return lambda value: convert(change(value))


def _number(scalar: Scalar) -> Callable[[Any], Any]:
    is_integer = scalar in INT_RANGES

    def change(value: Any) -> Any:
        if isinstance(value, Decimal):
            if not value.is_finite() or value.adjusted() > _MAX_DIGITS:
                return value
            value = int(value) if value == value.to_integral_value() else float(value)
        if is_integer and isinstance(value, float) and value.is_integer():
            return int(value)
        if not is_integer and isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
            # A float may not represent the integer exactly.
            return value if int(float(value)) == value else MISMATCH
        return value

    return change


def _midnight(value: Any) -> Any:
    """Return the date of a datetime at midnight, because pandas has no type for dates."""
    if not isinstance(value, datetime):
        return value
    moment = value if value.tzinfo is None else value.astimezone(UTC)
    return moment.date() if moment.time() == time.min else value


def _blob(convert: Convert) -> Convert:
    def change(value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {BLOB_DATA, BLOB_URI}:
            return value if (value[BLOB_DATA] is None) != (value[BLOB_URI] is None) else None
        return convert(value)

    return change


def cell_value(column: Column) -> Convert:
    """Return the function that converts the text of a cell to the stored value."""
    convert = value_converter(column, finite=False)
    if column.type.is_list or column.type.scalar is Scalar.VECTOR:
        return lambda text: _array(text, convert)
    scalar = column.type.scalar
    if scalar in INT_RANGES:
        return lambda text: convert(int(text)) if _INTEGER.match(text) else MISMATCH
    if scalar in FLOATS:
        return lambda text: convert(_float(text))
    if scalar is Scalar.BOOL:
        return lambda text: _BOOLEANS.get(text.lower(), MISMATCH)
    if scalar in (Scalar.DATE, Scalar.DATETIME):
        return lambda text: convert(int(text) if _INTEGER.match(text) else text)
    return convert


def _array(text: str, convert: Convert) -> Any:
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return MISMATCH
    return convert(items)


def _float(text: str) -> Any:
    number = float(text) if _NUMBER.match(text) else NOT_FINITE.get(text, text)
    # Python parses a number out of range as infinity.
    return text if number in (math.inf, -math.inf) and text not in NOT_FINITE else number

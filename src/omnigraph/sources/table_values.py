"""Columns of tables as the columns of a graph: casts that lose nothing, or the rows that stand in the way.

A column of a suitable Arrow type is cast at once. When that fails, and for every other type, each value is
converted on its own, by the same functions as values of records, so that an error can name its row. What is below a
millisecond is cut off from a DateTime, as it is from a text.
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
from omnigraph.errors import InvalidInput
from omnigraph.lang.types import FLOATS, INT_RANGES, Scalar
from omnigraph.sources.json.json_values import (
    MISMATCH,
    NOT_FINITE,
    Convert,
    build_array,
    converter,
    display_value,
    in_range,
)

# The rows of a column that do not fit, by position, each with what is wrong.
Faults = dict[int, str]
# A column: of one Arrow type, or Python values of any types.
Values: TypeAlias = pa.Array | list[Any]

_WHOLE = re.compile(r"-?\d{1,30}\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)
_STORED = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}
# More than any number that a property takes has: as an integer, one with a great exponent would not end.
_MOST_DIGITS = 400
# How many of a unit make so many milliseconds.
_DAY = 86_400_000
_UNITS = {"D": (1, _DAY), "s": (1, 1_000), "ms": (1, 1), "us": (1_000, 1), "ns": (1_000_000, 1)}
_TRUTH = {"true": True, "false": False}


def fit(column: Column, values: Values) -> tuple[pa.Array, Faults]:
    """A column of a table in the type of its property, with null where a value does not fit."""
    if isinstance(values, list):
        return convert_all(column, values, python_value(column))
    values = plain_array(values)
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), arrow_type(column.type)), {}
    found = _cast(column, values)
    return (
        (found, {})
        if found is not None
        else convert_all(column, _listed(column, values), python_value(column))
    )


def plain_array(values: pa.Array) -> pa.Array:
    """The same values without dictionaries and views, which most functions of Arrow do not take."""
    if pa.types.is_dictionary(values.type):
        return plain_array(values.dictionary).take(values.indices)
    if pa.types.is_string_view(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pa.types.is_binary_view(values.type) else values


def fit_json(column: Column, values: Values) -> tuple[pa.Array, Faults]:
    """JSON values, or what Arrow made of them, in the type of their property, as strictly as records are read."""
    if isinstance(values, pa.Array):
        found = _cast(column, values)
        if found is not None:
            return found, {}
    return convert_all(column, values, converter(column))


def fit_text(column: Column, cells: Values) -> tuple[pa.Array, Faults]:
    """Cells of text, as a CSV file has them, in the type of their property; null is no value.

    A list or a vector is a JSON array in a cell, everything else is written as it is.
    """
    if isinstance(cells, pa.Array):
        found = _cast_text(column, cells)
        if found is not None:
            return found, {}
    return convert_all(column, cells, cell_value(column))


def convert_all(column: Column, values: Values, convert: Convert) -> tuple[pa.Array, Faults]:
    """A column through a function for one value; those that it finds `MISMATCH` or refuses are faults."""
    if isinstance(values, pa.Array) and pa.types.is_string(values.type):
        # Texts such as dates repeat: each different one is looked at once.
        encoded = values.dictionary_encode()
        found, wrong = _one_by_one(column, encoded.dictionary.to_pylist(), convert)
        return found.take(encoded.indices), _spread(wrong, encoded.indices)
    return _one_by_one(column, values if isinstance(values, list) else values.to_pylist(), convert)


def _spread(wrong: Faults, indices: pa.Array) -> Faults:
    """The faults of different values as those of the rows that have them."""
    if not wrong:
        return {}
    rows = pc.fill_null(indices, -1).to_numpy(zero_copy_only=False)
    positions = np.flatnonzero(np.isin(rows, list(wrong)))
    return {int(place): wrong[int(rows[place])] for place in positions}


def _one_by_one(column: Column, values: list[Any], convert: Convert) -> tuple[pa.Array, Faults]:
    converted: list[Any] = []
    faults: Faults = {}
    for position, value in enumerate(values):
        found = None
        if value is not None:
            try:
                found = convert(value)
            except InvalidInput as error:
                faults[position] = f"column '{column.name}': {error.reason}"
            if found is MISMATCH:
                faults[position] = f"column '{column.name}': {display_value(value)} is no {column.type.core}"
                found = None
        converted.append(found)
    return build_array(column, converted), faults


# --- whole columns ----------------------------------------------------------------------------------------


def _cast(column: Column, values: pa.Array) -> pa.Array | None:
    """The column at once; None when its values have to be looked at."""
    if column.type.is_list or column.type.scalar is Scalar.VECTOR:
        return _cast_lists(column, values)
    if not _is_direct(column.type.scalar, values.type):
        return None
    try:
        if column.type.scalar is Scalar.DATETIME and pa.types.is_timestamp(values.type):
            values = pc.floor_temporal(values.cast(pa.timestamp(values.type.unit)), unit="millisecond")
        found = values.cast(arrow_type(column.type))
        if column.type.scalar is Scalar.F32 and pc.any(pc.is_inf(found)).as_py():
            return None
    except pa.ArrowException:
        return None
    return found if in_range(column, found) else None


def _is_direct(scalar: Scalar, found: pa.DataType) -> bool:
    """Whether a safe cast between these types keeps every value or fails."""
    is_ = pa.types
    if scalar is Scalar.STRING:
        return bool(is_.is_string(found) or is_.is_large_string(found) or is_.is_string_view(found))
    if scalar in INT_RANGES:
        return bool(is_.is_integer(found) or is_.is_floating(found))
    if scalar in FLOATS:
        return bool(is_.is_integer(found) or is_.is_floating(found))
    if scalar is Scalar.BOOL:
        return bool(is_.is_boolean(found))
    if scalar is Scalar.DATE:
        return bool(is_.is_date32(found))
    return scalar is Scalar.DATETIME and bool(is_.is_timestamp(found) or is_.is_date32(found))


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
        found = cells.cast(arrow_type(column.type) if scalar is not Scalar.F32 else pa.float64())
    except pa.ArrowException:
        return None
    return _cast(column, found)


def _cast_stored(column: Column, cells: pa.Array) -> pa.Array | None:
    """Dates and datetimes as the numbers that they are stored as, when all of them are."""
    if not pc.all(pc.match_substring_regex(cells, r"^-?[0-9]{1,18}$"), min_count=0).as_py():
        return None
    try:
        found = cells.cast(pa.int64()).cast(_STORED[column.type.scalar]).cast(arrow_type(column.type))
    except pa.ArrowException:
        return None
    return found if in_range(column, found) else None


# --- one value --------------------------------------------------------------------------------------------


def python_value(column: Column) -> Convert:
    """From what Arrow gives for a value to what the column stores."""
    convert = converter(column, finite=False)
    scalar = column.type.scalar
    if scalar is Scalar.BLOB:
        return _blob(convert)
    if scalar in INT_RANGES or scalar in FLOATS or scalar is Scalar.VECTOR:
        return _each(column, _number(scalar), convert)
    return _each(column, _midnight, convert) if scalar is Scalar.DATE else convert


def _listed(column: Column, values: pa.Array) -> Values:
    """The values of an array for `python_value`, also where it holds dates that Python has none for."""
    if column.type.scalar not in _STORED or pa.types.is_string(values.type):
        return values
    per_day = _DAY if column.type.scalar is Scalar.DATE else 1
    return python_items(values, lambda millis: millis // per_day)


def python_items(values: pa.Array, beyond: Callable[[int], Any] = str) -> list[Any]:
    """The values of an array; `beyond` is given the milliseconds of a date that Python has none for."""
    try:
        found: list[Any] = values.to_pylist()
    except (OverflowError, ValueError):
        return [_python_item(item, beyond) for item in values]
    return found


def _python_item(item: pa.Scalar, beyond: Callable[[int], Any]) -> Any:
    if isinstance(item, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar) and item.is_valid:
        return [_python_item(part, beyond) for part in item.values]
    try:
        return item.as_py()
    except (OverflowError, ValueError):
        if not pa.types.is_temporal(item.type):
            return None
        of_milli, of_item = _UNITS["D" if pa.types.is_date32(item.type) else getattr(item.type, "unit", "ms")]
        return beyond(item.value * of_item // of_milli)


def _each(column: Column, change: Callable[[Any], Any], convert: Convert) -> Convert:
    """`convert` after `change`, which a list has done to each of its elements."""
    if column.type.is_list or column.type.scalar is Scalar.VECTOR:
        return lambda value: convert([change(item) for item in value] if isinstance(value, list) else value)
    return lambda value: convert(change(value))


def _number(scalar: Scalar) -> Callable[[Any], Any]:
    whole = scalar in INT_RANGES

    def change(value: Any) -> Any:
        if isinstance(value, Decimal):
            if not value.is_finite() or value.adjusted() > _MOST_DIGITS:
                return value
            value = int(value) if value == value.to_integral_value() else float(value)
        if whole and isinstance(value, float) and value.is_integer():
            return int(value)
        if not whole and isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
            # The nearest float would be another number.
            return value if int(float(value)) == value else MISMATCH
        return value

    return change


def _midnight(value: Any) -> Any:
    """A datetime without a time of day is a date: pandas has no other."""
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
    """From the text of a cell to what the column stores."""
    convert = converter(column, finite=False)
    if column.type.is_list or column.type.scalar is Scalar.VECTOR:
        return lambda text: _array(text, convert)
    scalar = column.type.scalar
    if scalar in INT_RANGES:
        return lambda text: convert(int(text)) if _WHOLE.match(text) else MISMATCH
    if scalar in FLOATS:
        return lambda text: convert(_float(text))
    if scalar is Scalar.BOOL:
        return lambda text: _TRUTH.get(text.lower(), MISMATCH)
    if scalar in (Scalar.DATE, Scalar.DATETIME):
        return lambda text: convert(int(text) if _WHOLE.match(text) else text)
    return convert


def _array(text: str, convert: Convert) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return MISMATCH
    return convert(found)


def _float(text: str) -> Any:
    found = float(text) if _NUMBER.match(text) else NOT_FINITE.get(text, text)
    # Python reads a number that is too great as infinite.
    return text if found in (math.inf, -math.inf) and text not in NOT_FINITE else found

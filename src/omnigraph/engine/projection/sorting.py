"""Sort rows by several columns and read as few values as possible.

Every sort column becomes integers in the same order: numbers and times by their bits, texts by their rank. A
later key is read only for rows that are tied in all earlier keys. With a limit, it is read only for tied rows
that can still be among the first rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.arrow_arrays import single_array
from omnigraph.engine.projection.projection_plan import InputColumn

Ints: TypeAlias = npt.NDArray[np.int64]
# A column to sort by, and whether to sort it descending.
SortColumn: TypeAlias = tuple[InputColumn, bool]

_LOWEST = np.iinfo(np.int64).min
_HIGHEST = np.iinfo(np.int64).max
_SIGN = np.uint64(1 << 63)
# The result of `sort_values` for any NaN: its bits, which are greater than those of infinity.
NAN_VALUE = int(np.array(np.nan).view(np.int64))
# At most this many rows are processed at once: narrowing them down first would cost more than it saves.
SMALL_INPUT = 256
# A lookup table with this many entries is cheaper than any sort.
SMALL_TABLE = 1024


def order_rows(
    keys: Sequence[SortColumn],
    ties: Sequence[InputColumn],
    num_rows: int,
    skip: int = 0,
    limit: int | None = None,
) -> Ints:
    """Return the rows in the order of the keys and then of the ties, without the first `skip`, at most `limit`
    rows.

    Nulls come first ascending and last descending; a NaN comes after every number. The sort is stable.

    >>> ages = pa.array([30, None, 25, 30])
    >>> order_rows([(ages, True)], [pa.array(["b", "c", "d", "a"])], 4).tolist()
    [3, 0, 2, 1]
    >>> order_rows([(ages, False)], [], 4, skip=1, limit=2).tolist()
    [2, 0]
    """
    end = num_rows if limit is None else min(num_rows, skip + limit)
    if skip >= end:
        return np.empty(0, np.int64)
    if num_rows == 1:
        return np.zeros(1, np.int64)
    wanted = [*keys, *((tie, False) for tie in ties)]
    rows = _narrow(wanted, num_rows, end) if end < num_rows > SMALL_INPUT else None
    return _arrange(wanted, rows, num_rows)[skip:end]


def _narrow(keys: Sequence[SortColumn], num_rows: int, wanted: int) -> Ints:
    """Return the rows that are among the first `wanted`, in ascending order."""
    sure: list[Ints] = []
    rows: Ints | None = None
    for column, descending in keys:
        values = sort_values(column, rows, descending=descending)
        last = np.partition(values, wanted - 1)[wanted - 1]
        before, tied = np.flatnonzero(values < last), np.flatnonzero(values == last)
        sure.append(before if rows is None else rows[before])
        rows = tied if rows is None else rows[tied]
        wanted -= len(before)
        if len(rows) == wanted:
            break
    rows = np.arange(num_rows) if rows is None else rows
    return np.sort(np.concatenate([*sure, rows[:wanted]]))


def _arrange(keys: Sequence[SortColumn], rows: Ints | None, num_rows: int) -> Ints:
    """Return the rows in sorted order; all rows if `rows` is None. Each key sorts only within the ties of earlier
    keys.
    """
    order = np.arange(num_rows) if rows is None else rows
    # Whether a row differs from the previous row in the keys so far.
    differs = np.zeros(len(order), np.bool_)
    differs[:1] = True
    tied: Ints | None = None
    for column, descending in keys:
        if tied is None:
            values = sort_values(column, rows, descending=descending)
            places = stable_argsort(values)
            order, values = order[places], values[places]
            differs[1:] = values[1:] != values[:-1]
        else:
            runs = np.cumsum(differs, dtype=np.int64)[tied]
            values = sort_values(column, order[tied], descending=descending)
            places = stable_argsort(values)
            places = places[stable_argsort(runs[places])]
            order[tied], values = order[tied][places], values[places]
            differs[tied[1:]] |= values[1:] != values[:-1]
        follows = np.append(~differs[1:], False)
        tied = np.flatnonzero(follows | ~differs)
        if not len(tied):
            break
    return order


def stable_argsort(values: Ints) -> Ints:
    """Return the positions that sort the values. The sort is stable."""
    count = len(values)
    if count < SMALL_TABLE:
        return np.argsort(values, kind="stable")
    # Sorting integers that contain their own position is several times faster than a stable argsort.
    bits = count.bit_length()
    low, high = int(values.min()), int(values.max())
    if high - low < 1 << (63 - bits):
        return np.sort((values - low) << bits | np.arange(count)) & ((1 << bits) - 1)
    places = np.argsort(values)
    ordered = values[places]
    runs = np.zeros(count, np.int64)
    np.cumsum(ordered[1:] != ordered[:-1], out=runs[1:])
    return np.sort(runs << bits | places) & ((1 << bits) - 1)


def sort_values(column: InputColumn, rows: Ints | None = None, *, descending: bool = False) -> Ints:
    """Return an integer for every row, or for each of `rows`, that compares as the value of the column does.

    Equal values have equal integers; a null has the smallest. Integers of different calls are not comparable.

    >>> sort_values(pa.array(["b", None, "a", "b"])).tolist()
    [2, 0, 1, 2]
    """
    if compares_indices(column, rows):
        entries, places = used_entries(column, rows)
        found = _ranks(entries)[places]
    else:
        array = decoded(column, rows)
        found = _numbers(array) if is_fixed_width(array.type) else _ranks(array)
    return ~found if descending else found


def compares_indices(column: InputColumn, rows: Ints | None = None) -> bool:
    """Return whether to compare a dictionary column by its indices before looking up its values."""
    if not isinstance(column, pa.DictionaryArray) or is_fixed_width(column.type.value_type):
        return False
    return len(column if rows is None else rows) > SMALL_INPUT


def used_entries(column: pa.DictionaryArray, rows: Ints | None = None) -> tuple[pa.Array, Ints]:
    """Return the dictionary entries that the rows use, each index once, and for every row the position of its
    entry.

    A row with a null index uses a null entry. Several entries may be equal.
    """
    indices = column.indices if rows is None else column.indices.take(pa.array(rows))
    dictionary = column.dictionary
    places = buffer_values(indices).astype(np.int64)
    if not indices.null_count:
        used, found = _distinct(places, len(dictionary))
        return dictionary.take(pa.array(used)), found
    places[~is_valid(indices)] = len(dictionary)
    used, found = _distinct(places, len(dictionary) + 1)
    return dictionary.take(pa.array(used, mask=used == len(dictionary))), found


def _distinct(places: Ints, bound: int) -> tuple[Ints, Ints]:
    if bound > SMALL_TABLE + 4 * len(places):
        return np.unique(places, return_inverse=True)
    seen = np.zeros(bound, np.bool_)
    seen[places] = True
    used = np.flatnonzero(seen)
    if len(used) == bound:
        return used, places
    numbers = np.empty(bound, np.int64)
    numbers[used] = np.arange(len(used))
    return used, numbers[places]


def decoded(column: InputColumn, rows: Ints | None = None) -> pa.Array:
    """Return the values of a column, or of the given rows, as one array without dictionary encoding."""
    column = single_array(column)
    if not isinstance(column, pa.DictionaryArray):
        return column if rows is None else column.take(pa.array(rows))
    indices = column.indices
    if rows is not None:
        # Arrow's take is several times slower for a few rows, but handles nulls.
        missing = indices.null_count
        indices = indices.take(pa.array(rows)) if missing else pa.array(buffer_values(indices)[rows])
    return column.dictionary.take(indices)


def is_fixed_width(kind: pa.DataType) -> bool:
    """Return whether values of the type are stored as fixed-width numbers: numbers, booleans, dates and times."""
    return bool(pa.types.is_primitive(kind))


def is_valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which rows of an array are not null."""
    found: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def buffer_values(array: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers in the buffer of a fixed-width array. The values at nulls are undefined."""
    kind, start, count = array.type, array.offset, len(array)
    if not count:
        return np.empty(0, np.int64)
    if pa.types.is_boolean(kind):
        bits = np.frombuffer(array.buffers()[1], np.uint8)
        return np.unpackbits(bits, count=start + count, bitorder="little")[start:]
    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    size = kind.bit_width // 8
    return np.frombuffer(array.buffers()[1], np.dtype(f"{letter}{size}"), count, start * size)


def _numbers(array: pa.Array) -> Ints:
    values = _ordered_bits(buffer_values(array))
    if not array.null_count:
        return values
    valid = is_valid(array)
    present = values[valid]
    found = np.full(len(values), _LOWEST)
    if len(present) and present.min() == _LOWEST:
        _, present = np.unique(present, return_inverse=True)
    found[valid] = present
    return found


def _ordered_bits(values: npt.NDArray[Any]) -> Ints:
    """Return numbers as int64 in the same order. No float becomes the lowest int64."""
    if values.dtype.kind == "f":
        # Adding zero turns negative zero into positive zero. A signaling NaN must not raise a warning.
        with np.errstate(invalid="ignore"):
            bits = (values.astype(np.float64) + 0.0).view(np.int64)
        bits[np.isnan(values)] = NAN_VALUE
        return np.where(bits < 0, bits ^ _HIGHEST, bits)
    if values.dtype == np.uint64 and len(values) and values.max() >= _SIGN:
        flipped: Ints = (values ^ _SIGN).view(np.int64)
        return flipped
    return values.astype(np.int64, copy=False)


def _ranks(array: pa.Array) -> Ints:
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.int64)
    found: Ints = pc.rank(array, tiebreaker="dense").to_numpy().astype(np.int64)
    if array.null_count:
        found[~is_valid(array)] = 0
    return found

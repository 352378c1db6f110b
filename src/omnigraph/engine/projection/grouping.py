"""Group rows by equal values.

Every column becomes integer codes that are equal where its values are equal. The codes of several columns are
combined arithmetically into one code. Groups are numbered in the order of their first rows. A dictionary column is
grouped by its indices first; only the dictionary entries in use are compared by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.engine.projection.projection_plan import InputColumn
from omnigraph.engine.projection.sorting import (
    SMALL_TABLE,
    Ints,
    buffer_values,
    compares_indices,
    decoded,
    is_fixed_width,
    is_valid,
    sort_values,
    stable_argsort,
    used_entries,
)

# A code bound below this keeps every code inside an int64.
_ROOM = 1 << 62


@dataclass(frozen=True, slots=True)
class Groups:
    """Numbered groups of rows.

    `ids` holds the group of each of `rows`. If `rows` is None, the groups cover all rows. If `ids` is None, there
    is a single group. `first` holds the first row of every group.
    """

    count: int
    first: Ints
    ids: Ints | None = None
    rows: Ints | None = None

    def only(self, chosen: Ints) -> Groups:
        """Return only the chosen groups, renumbered in the given order."""
        if self.ids is None:
            none = np.empty(0, np.int64)
            return self if len(chosen) else Groups(0, none, none, none)
        numbers = np.full(self.count, -1)
        numbers[chosen] = np.arange(len(chosen))
        ids = numbers[self.ids]
        kept = np.flatnonzero(ids >= 0)
        rows = kept if self.rows is None else self.rows[kept]
        return Groups(len(chosen), self.first[chosen], ids[kept], rows)


def group_rows(
    columns: Sequence[InputColumn], num_rows: int, distinct: Sequence[bool] | None = None
) -> Groups:
    """Group rows by equal values in all columns; groups are in the order of their first rows.

    Nulls are equal to each other, as are NaNs and the two zeros. Without columns there is one group. `distinct`
    says for each column whether it is a dictionary column without repeated dictionary values.

    >>> groups = group_rows([pa.array(["b", "a", None, "b", None])], 5)
    >>> groups.ids.tolist(), groups.first.tolist()
    ([0, 1, 2, 0, 2], [0, 1, 2])
    """
    if not columns or num_rows == 1:
        return Groups(1, np.zeros(1, np.int64))
    coded = [
        _places(column) if distinct is not None and distinct[place] else _codes(column)
        for place, column in enumerate(columns)
    ]
    codes, bound = coded[0]
    for more in coded[1:]:
        codes, bound = _combine(codes, bound, *more)
    leaders = _leaders(codes, bound)
    leads = leaders == np.arange(num_rows)
    first = np.flatnonzero(leads)
    return Groups(len(first), first, (np.cumsum(leads) - 1)[leaders])


def first_occurrences(ids: Ints | None, column: InputColumn, rows: Ints | None) -> Ints:
    """Return the positions in `rows` at which each distinct value of the column first occurs in each group."""
    codes, bound = _codes(column, rows)
    if ids is not None:
        codes, bound = _combine(codes, bound, ids, int(ids.max(initial=-1)) + 1)
    return np.flatnonzero(_leaders(codes, bound) == np.arange(len(codes)))


def _leaders(codes: Ints, bound: int) -> Ints:
    """Return for every row the first row with the same code."""
    count = len(codes)
    if bound <= SMALL_TABLE + 4 * count:
        first = np.empty(bound, np.int64)
        # Of several assignments to one index the last one wins, so writing in reverse leaves the first row.
        first[codes[::-1]] = np.arange(count - 1, -1, -1)
        return first[codes]
    places = stable_argsort(codes)
    ordered = codes[places]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    leaders = np.empty(count, np.int64)
    leaders[places] = np.repeat(places[starts], np.diff(starts, append=count))
    return leaders


def _combine(left: Ints, left_bound: int, right: Ints, right_bound: int) -> tuple[Ints, int]:
    """Combine two codes into one that is equal only where both are equal."""
    # The first row with a code identifies the code, and there are at most as many of them as rows.
    if left_bound * right_bound >= _ROOM:
        left, left_bound = _leaders(left, left_bound), len(left)
    if left_bound * right_bound >= _ROOM:
        right, right_bound = _leaders(right, right_bound), len(right)
    return left * right_bound + right, left_bound * right_bound


def _places(column: InputColumn) -> tuple[Ints, int]:
    """Return the indices of a dictionary column as codes. Requires distinct dictionary entries."""
    assert isinstance(column, pa.DictionaryArray)
    places = buffer_values(column.indices).astype(np.int64)
    if column.indices.null_count:
        places[~is_valid(column.indices)] = len(column.dictionary)
    return places, len(column.dictionary) + 1


def _codes(column: InputColumn, rows: Ints | None = None) -> tuple[Ints, int]:
    """Return a code for each row, from 0 up to a bound, that is equal where the values are equal."""
    if compares_indices(column, rows):
        entries, places = used_entries(column, rows)
        codes, bound = _codes(entries)
        return codes[places], bound
    array = decoded(column, rows)
    if pa.types.is_struct(array.type):
        found, bound = is_valid(array).astype(np.int64), 2
        for field in array.flatten():
            found, bound = _combine(found, bound, *_codes(field))
        return found, bound
    if pa.types.is_nested(array.type):
        return _list_codes(array)
    if not is_fixed_width(array.type):
        encoded = array.dictionary_encode(null_encoding="encode")
        return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
    values = sort_values(array)
    if not len(values):
        return values, 1
    low, high = int(values.min()), int(values.max())
    if high - low < _ROOM:
        return values - low, high - low + 1
    return _leaders(values, high - low + 1), len(values)


def _list_codes(array: pa.Array) -> tuple[Ints, int]:
    """Return codes for lists of variable or fixed size. Lists are equal if their elements are equal in order."""
    lists = array if pa.types.is_list(array.type) else array.cast(pa.list_(array.type.value_type))
    elements, _ = _codes(lists.flatten())
    ends = np.cumsum(lists.value_lengths().fill_null(0).to_numpy())
    numbers: dict[bytes | None, int] = {}
    found = np.empty(len(lists), np.int64)
    start = 0
    for row, (end, valid) in enumerate(zip(ends.tolist(), is_valid(lists).tolist(), strict=True)):
        content = elements[start:end].tobytes() if valid else None
        found[row] = numbers.setdefault(content, len(numbers))
        start = end
    return found, max(len(numbers), 1)

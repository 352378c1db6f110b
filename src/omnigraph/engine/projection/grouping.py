"""Groups of rows that are equal in some columns, and aggregates over them.

Every column becomes small integers that are equal where its values are, several columns become one by
arithmetic, and groups are counted off in first-seen order. A dictionary column is grouped by its places
first; only the entries in use are compared as values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.engine.projection.projection import TailColumn
from omnigraph.engine.projection.sorting import (
    SMALL_TABLE,
    Ints,
    buffer_values,
    is_fixed_width,
    is_late,
    is_valid,
    plain,
    sort_places,
    sort_values,
    used_entries,
)

# The product of two bounds below this still fits an int64.
_ROOM = 1 << 62


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows in numbered groups.

    `ids` holds the group of each of `rows`; without `rows` they are all rows there are, and without `ids`
    there is one group and all are in it. `first` is one row of every group, the one seen first.
    """

    count: int
    first: Ints
    ids: Ints | None = None
    rows: Ints | None = None

    def only(self, chosen: Ints) -> Groups:
        """Just the chosen groups, numbered in the order they are given."""
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
    columns: Sequence[TailColumn], num_rows: int, distinct: Sequence[bool] | None = None
) -> Groups:
    """The rows grouped by equal values in all columns, groups in first-seen order.

    Nulls are equal, so are NaNs, and so are the two zeros. Without columns there is one group. `distinct` says of
    each column whether it is a dictionary that holds no value twice.

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


def first_of_each(ids: Ints | None, column: TailColumn, rows: Ints | None) -> Ints:
    """Where, among `rows`, each different value of the column is first seen in each group, in row order."""
    codes, bound = _codes(column, rows)
    if ids is not None:
        codes, bound = _combine(codes, bound, ids, int(ids.max(initial=-1)) + 1)
    return np.flatnonzero(_leaders(codes, bound) == np.arange(len(codes)))


def _leaders(codes: Ints, bound: int) -> Ints:
    """For every row the first one with the same code."""
    count = len(codes)
    if bound <= SMALL_TABLE + 4 * count:
        first = np.empty(bound, np.int64)
        # Of several assignments to a place the last one stays, so going backwards leaves the first row.
        first[codes[::-1]] = np.arange(count - 1, -1, -1)
        return first[codes]
    places = sort_places(codes)
    ordered = codes[places]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    leaders = np.empty(count, np.int64)
    leaders[places] = np.repeat(places[starts], np.diff(starts, append=count))
    return leaders


def _combine(left: Ints, left_bound: int, right: Ints, right_bound: int) -> tuple[Ints, int]:
    """One code for two, the same only where both are."""
    # A leader is as good as a code, and there are no more of them than rows.
    if left_bound * right_bound >= _ROOM:
        left, left_bound = _leaders(left, left_bound), len(left)
    if left_bound * right_bound >= _ROOM:
        right, right_bound = _leaders(right, right_bound), len(right)
    return left * right_bound + right, left_bound * right_bound


def _places(column: TailColumn) -> tuple[Ints, int]:
    """The places of a dictionary column, which are codes when no two of its entries are equal."""
    assert isinstance(column, pa.DictionaryArray)
    places = buffer_values(column.indices).astype(np.int64)
    if column.indices.null_count:
        places[~is_valid(column.indices)] = len(column.dictionary)
    return places, len(column.dictionary) + 1


def _codes(column: TailColumn, rows: Ints | None = None) -> tuple[Ints, int]:
    """A number from 0 below a bound for each row, equal where the values are."""
    if is_late(column, rows):
        entries, places = used_entries(column, rows)
        codes, bound = _codes(entries)
        return codes[places], bound
    array = plain(column, rows)
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
    """Codes of lists, of any or of fixed size: two are equal when their elements are, one by one."""
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

"""Tails run with Arrow and numpy: the engine of every read whose rows fit in memory.

Rows are numbers until the end: which rows there are, in which order, is decided first, and a value is only
looked up for rows that are in the result. Sums of integers are exact before they become a float64; floats are
added up as float64, in row order within a group and pairwise where all rows are one group. Rows that compare
equal keep their order.
"""

from __future__ import annotations

from typing import Any, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.projection.grouping import Groups, first_of_each, group_rows
from omnigraph.engine.projection.projection import Fold, Matched, Projected, Tail, TailColumn, Take
from omnigraph.engine.projection.sorting import (
    NAN_VALUE,
    Ints,
    buffer_values,
    is_valid,
    order_rows,
    plain,
    sort_places,
    sort_values,
    whole,
)

_LIMITS = np.iinfo(np.int64)


def run_tail(tail: Tail, matched: Matched) -> pa.Table:
    """The rows that a tail makes of the matched ones, with the names and types of its outputs.

    >>> from omnigraph.engine.projection.projection import Key
    >>> cities = Projected("city", pa.string(), Take(0))
    >>> people = Projected("people", pa.int64(), Fold("count"))
    >>> tail = Tail((cities, people), grouped=True, order=(Key(1, descending=True, of_output=True),), limit=1)
    >>> run_tail(tail, Matched(3, (pa.array(["Rome", "Oslo", "Oslo"]),))).to_pylist()
    [{'city': 'Oslo', 'people': 2}]
    """
    arrays = _grouped(tail, matched) if tail.grouped else _projected(tail, matched)
    return pa.Table.from_arrays(arrays, names=[output.name for output in tail.outputs])


def _projected(tail: Tail, matched: Matched) -> list[pa.Array]:
    columns = matched.columns
    # Without aggregates every output is a column of the input.
    sources = [output.value.column for output in tail.outputs if output.value.column is not None]
    rows: Ints | None = None
    count = matched.num_rows
    if tail.distinct:
        known = [source in matched.distinct for source in sources]
        rows = group_rows([whole(columns[source]) for source in sources], count, known).first
        count = len(rows)
    skip, end = _span(tail, count)
    if tail.order or tail.ties:
        keys = [
            (_some(columns[sources[key.column] if key.of_output else key.column], rows), key.descending)
            for key in tail.order
        ]
        ties = [_some(columns[tie], rows) for tie in tail.ties]
        order = order_rows(keys, ties, count, skip, end - skip)
        rows = order if rows is None else rows[order]
    elif rows is not None:
        rows = rows[skip:end]
    if rows is not None:
        found = [plain(columns[source], rows) for source in sources]
    elif end - skip < count:
        found = [columns[source].slice(skip, end - skip) for source in sources]
    else:
        found = [columns[source] for source in sources]
    return [_finish(output, array) for output, array in zip(tail.outputs, found, strict=True)]


def _grouped(tail: Tail, matched: Matched) -> list[pa.Array]:
    """One row a group. The keys are all among the outputs, so that the rows are distinct as they are."""
    columns = [whole(column) for column in matched.columns]
    values = [output.value for output in tail.outputs]
    keys = [value.column for value in values if isinstance(value, Take)]
    groups = group_rows(
        [columns[key] for key in keys], matched.num_rows, [key in matched.distinct for key in keys]
    )
    weights = None if matched.weights is None else matched.weights.to_numpy().astype(np.int64, copy=False)

    def fold_groups(fold: Fold, groups: Groups) -> pa.Array:
        column = None if fold.column is None else columns[fold.column]
        return _fold(fold, column, groups, weights, matched.num_rows)

    skip, end = _span(tail, groups.count)
    # The outputs that decide which groups are wanted; all others are only computed for those.
    early: dict[int, pa.Array] = {}
    for key in tail.order:
        value = values[key.column]
        if isinstance(value, Take):
            early[key.column] = columns[value.column].take(pa.array(groups.first))
        else:
            early[key.column] = fold_groups(value, groups)
    if tail.order:
        order = [(early[key.column], key.descending) for key in tail.order]
        chosen = order_rows(order, [], groups.count, skip, end - skip)
    else:
        chosen = np.arange(skip, end)
    late = any(isinstance(value, Fold) and at not in early for at, value in enumerate(values))
    wanted = groups.only(chosen) if late and (tail.order or len(chosen) < groups.count) else groups
    found = []
    for at, value in enumerate(values):
        if isinstance(value, Take):
            found.append(plain(columns[value.column], groups.first[chosen]))
        elif at in early:
            found.append(early[at].take(pa.array(chosen)))
        else:
            found.append(fold_groups(value, wanted))
    return [_finish(output, array) for output, array in zip(tail.outputs, found, strict=True)]


def _span(tail: Tail, count: int) -> tuple[int, int]:
    """Where the wanted rows start and end among so many."""
    skip = min(tail.skip, count)
    return skip, count if tail.limit is None else min(count, skip + tail.limit)


def _some(column: TailColumn, rows: Ints | None) -> pa.Array:
    """The column as one array, or some rows of it; a dictionary stays one."""
    column = whole(column)
    return column if rows is None else column.take(pa.array(rows))


def _finish(output: Projected, column: TailColumn) -> TailColumn:
    """The values of final rows in the type of their output."""
    if isinstance(column.type, pa.DictionaryType):
        column = plain(column)
    return column if column.type == output.type else column.cast(output.type)


# --- aggregates ------------------------------------------------------------------------------------------


def _fold(
    fold: Fold, column: pa.Array | None, groups: Groups, weights: Ints | None, num_rows: int
) -> pa.Array:
    """An aggregate for every group, in their order."""
    rows, ids = groups.rows, groups.ids
    if column is not None:
        rows, ids = _without_nulls(column, rows, ids)
        if fold.distinct:
            weights = None
            places = first_of_each(ids, column, rows)
            rows = places if rows is None else rows[places]
            ids = None if ids is None else ids[places]
    if weights is not None and rows is not None:
        weights = weights[rows]
    size = num_rows if rows is None else len(rows)
    if fold.fn == "count" or column is None:
        return pa.array(_count(ids, groups.count, weights, size))
    match fold.fn:
        case "sum" | "avg":
            values = buffer_values(plain(column, rows))
            totals = _sum(values, ids, groups.count, weights)
            missing = _count(ids, groups.count, None, size) == 0
            if fold.fn == "avg":
                totals = totals / np.where(missing, 1, _count(ids, groups.count, weights, size))
            return pa.array(totals, mask=missing)
        case "min" | "max":
            best = _best(column, rows, ids, groups.count, largest=fold.fn == "max")
            return column.take(pa.array(best, mask=best < 0))
        case "collect":
            return _collect(column, rows, ids, groups.count, size)
        case _ as never:
            assert_never(never)


def _without_nulls(column: pa.Array, rows: Ints | None, ids: Ints | None) -> tuple[Ints | None, Ints | None]:
    """The rows that have a value, with their groups."""
    valid: npt.NDArray[np.bool_] | None = None
    if column.null_count:
        valid = is_valid(column)
    if isinstance(column, pa.DictionaryArray) and column.dictionary.null_count:
        has_value = plain(pa.DictionaryArray.from_arrays(column.indices, column.dictionary.is_valid()))
        valid = has_value.fill_null(False).to_numpy(zero_copy_only=False)
    if valid is None:
        return rows, ids
    kept = np.flatnonzero(valid if rows is None else valid[rows])
    return kept if rows is None else rows[kept], None if ids is None else ids[kept]


def _count(ids: Ints | None, count: int, weights: Ints | None, size: int) -> Ints:
    if ids is None:
        return np.array([size if weights is None else weights.sum()], np.int64)
    if weights is None:
        return np.bincount(ids, minlength=count)
    return _add(weights, ids, count)


def _add(values: npt.NDArray[Any], ids: Ints | None, count: int) -> npt.NDArray[Any]:
    """The sum of each group in the type of the values."""
    if ids is None:
        return np.array([values.sum()], values.dtype)
    found = np.zeros(count, values.dtype)
    np.add.at(found, ids, values)
    return found


def _sum(
    values: npt.NDArray[Any], ids: Ints | None, count: int, weights: Ints | None
) -> npt.NDArray[np.float64]:
    if values.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            values = values.astype(np.float64, copy=False)
            values = values if weights is None else values * weights
            return _add(values, ids, count)
    # Sums that may not fit an int64 are Python's integers, which have no end.
    reach = max(-int(values.min(initial=0)), int(values.max(initial=0)))
    share = len(values) if weights is None else float(weights.sum(dtype=np.float64))
    exact = np.int64 if reach * share < 2**62 else object
    values = values.astype(exact)
    values = values if weights is None else values * weights.astype(exact)
    return _add(values, ids, count).astype(np.float64)


def _best(column: pa.Array, rows: Ints | None, ids: Ints | None, count: int, *, largest: bool) -> Ints:
    """The first row of each group with its smallest or largest value, or -1 in a group without one."""
    values = sort_values(column, rows)
    if largest:
        kind = column.type.value_type if isinstance(column, pa.DictionaryArray) else column.type
        if pa.types.is_floating(kind):
            values = np.where(values == NAN_VALUE, _LIMITS.min, values)
        # The largest value is the smallest of the complements.
        values = ~values
    found = np.full(count, -1)
    if not len(values):
        return found
    if ids is None:
        hit = values.argmin()
        found[0] = hit if rows is None else rows[hit]
        return found
    least = np.full(count, _LIMITS.max)
    np.minimum.at(least, ids, values)
    hits = np.flatnonzero(values == least[ids])[::-1]
    found[ids[hits]] = hits if rows is None else rows[hits]
    return found


def _collect(column: pa.Array, rows: Ints | None, ids: Ints | None, count: int, size: int) -> pa.Array:
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(_count(ids, count, None, size), out=offsets[1:])
    if ids is not None:
        places = sort_places(ids)
        rows = places if rows is None else rows[places]
    return pa.ListArray.from_arrays(pa.array(offsets), plain(column, rows))

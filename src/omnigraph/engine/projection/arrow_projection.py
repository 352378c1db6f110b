"""Projections with Arrow and NumPy: the engine of every read whose rows fit in memory.

Materialization is late: the engine first decides which rows remain and in which order, by row number, and looks up
values only for the rows of the result. Sums of integers are exact before they are converted to float64. Counts are
exact, and an error beyond 64 bits. Floats are added as float64, in row order within a group, and pairwise when all
rows form one group. Sorting is stable.
"""

from __future__ import annotations

from typing import Any, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.arrow_arrays import single_array
from omnigraph.engine.exact_counts import INT64_MAX, Counts, add_groups, to_floats, total
from omnigraph.engine.projection.grouping import Groups, first_occurrences, group_rows
from omnigraph.engine.projection.projection_plan import (
    AggregateCall,
    InputColumn,
    InputRef,
    MatchedRows,
    OutputColumn,
    ProjectionPlan,
)
from omnigraph.engine.projection.sorting import (
    NAN_VALUE,
    Ints,
    buffer_values,
    decoded,
    is_valid,
    order_rows,
    sort_values,
    stable_argsort,
)
from omnigraph.errors import ErrorLocation, InvalidInput

_LIMITS = np.iinfo(np.int64)


def run_projection(projection: ProjectionPlan, matched: MatchedRows) -> pa.Table:
    """Return the rows of a projection over matched rows, with the names and types of its outputs.

    >>> from omnigraph.engine.projection.projection_plan import SortKey
    >>> cities = OutputColumn("city", pa.string(), InputRef(0))
    >>> people = OutputColumn("people", pa.int64(), AggregateCall("count"))
    >>> order = (SortKey(1, descending=True, of_output=True),)
    >>> projection = ProjectionPlan((cities, people), grouped=True, order=order, limit=1)
    >>> run_projection(projection, MatchedRows(3, (pa.array(["Rome", "Oslo", "Oslo"]),))).to_pylist()
    [{'city': 'Oslo', 'people': 2}]
    """
    arrays = _grouped(projection, matched) if projection.grouped else _projected(projection, matched)
    return pa.Table.from_arrays(arrays, names=[output.name for output in projection.outputs])


def _projected(projection: ProjectionPlan, matched: MatchedRows) -> list[pa.Array]:
    columns = matched.columns
    # Without aggregates every output refers to an input column.
    sources = [output.value.column for output in projection.outputs if output.value.column is not None]
    rows: Ints | None = None
    count = matched.num_rows
    if projection.distinct:
        known = [source in matched.distinct for source in sources]
        rows = group_rows([single_array(columns[source]) for source in sources], count, known).first
        count = len(rows)
    skip, end = _span(projection, count)
    if projection.order or projection.ties:
        keys = [
            (_some(columns[sources[key.column] if key.of_output else key.column], rows), key.descending)
            for key in projection.order
        ]
        ties = [_some(columns[tie], rows) for tie in projection.ties]
        order = order_rows(keys, ties, count, skip, end - skip)
        rows = order if rows is None else rows[order]
    elif rows is not None:
        rows = rows[skip:end]
    if rows is not None:
        found = [decoded(columns[source], rows) for source in sources]
    elif end - skip < count:
        found = [columns[source].slice(skip, end - skip) for source in sources]
    else:
        found = [columns[source] for source in sources]
    return [_finish(output, array) for output, array in zip(projection.outputs, found, strict=True)]


def _grouped(projection: ProjectionPlan, matched: MatchedRows) -> list[pa.Array]:
    """Return one row per group. All group keys are outputs, so the rows are already distinct."""
    columns = [single_array(column) for column in matched.columns]
    values = [output.value for output in projection.outputs]
    keys = [value.column for value in values if isinstance(value, InputRef)]
    groups = group_rows(
        [columns[key] for key in keys], matched.num_rows, [key in matched.distinct for key in keys]
    )

    def aggregate_groups(at: int, call: AggregateCall, groups: Groups) -> pa.Array:
        column = None if call.column is None else columns[call.column]
        try:
            return _aggregate(call, column, groups, matched.weights, matched.num_rows)
        except OverflowError as error:
            raise _too_large(call, projection.outputs[at]) from error

    skip, end = _span(projection, groups.count)
    # Compute first the outputs that rows are ordered by. The other outputs are computed only for the groups that
    # skip and limit leave.
    early: dict[int, pa.Array] = {}
    for key in projection.order:
        value = values[key.column]
        if isinstance(value, InputRef):
            early[key.column] = columns[value.column].take(pa.array(groups.first))
        else:
            early[key.column] = aggregate_groups(key.column, value, groups)
    if projection.order:
        order = [(early[key.column], key.descending) for key in projection.order]
        chosen = order_rows(order, [], groups.count, skip, end - skip)
    else:
        chosen = np.arange(skip, end)
    late = any(isinstance(value, AggregateCall) and at not in early for at, value in enumerate(values))
    wanted = groups.only(chosen) if late and (projection.order or len(chosen) < groups.count) else groups
    found = []
    for at, value in enumerate(values):
        if isinstance(value, InputRef):
            found.append(decoded(columns[value.column], groups.first[chosen]))
        elif at in early:
            found.append(early[at].take(pa.array(chosen)))
        else:
            found.append(aggregate_groups(at, value, wanted))
    return [_finish(output, array) for output, array in zip(projection.outputs, found, strict=True)]


def _span(projection: ProjectionPlan, count: int) -> tuple[int, int]:
    """Return the first and the end position of the rows that skip and limit leave of `count` rows."""
    skip = min(projection.skip, count)
    return skip, count if projection.limit is None else min(count, skip + projection.limit)


def _some(column: InputColumn, rows: Ints | None) -> pa.Array:
    """Return the column, or the given rows of it, as one array. A dictionary column stays dictionary-encoded."""
    column = single_array(column)
    return column if rows is None else column.take(pa.array(rows))


def _finish(output: OutputColumn, column: InputColumn) -> InputColumn:
    """Return the values of the final rows in the type of their output."""
    if isinstance(column.type, pa.DictionaryType):
        column = decoded(column)
    return column if column.type == output.type else column.cast(output.type)


# --- aggregates ------------------------------------------------------------------------------------------


def _too_large(call: AggregateCall, output: OutputColumn) -> InvalidInput:
    kind = "I64" if call.fn == "count" else "F64"
    return InvalidInput(
        f"{call.fn} exceeds {kind}",
        hint="match fewer rows, or group them, so that each result is smaller",
        details={"function": call.fn},
        location=ErrorLocation(column=output.name),
    )


def _aggregate(
    call: AggregateCall, column: pa.Array | None, groups: Groups, weights: Counts | None, num_rows: int
) -> pa.Array:
    """Compute an aggregate for every group, in the order of the groups.

    Raises `OverflowError` for a result beyond the range of its type.
    """
    rows, ids = groups.rows, groups.ids
    if column is not None:
        rows, ids = _without_nulls(column, rows, ids)
        if call.distinct:
            weights = None
            places = first_occurrences(ids, column, rows)
            rows = places if rows is None else rows[places]
            ids = None if ids is None else ids[places]
    if weights is not None and rows is not None:
        weights = weights[rows]
    size = num_rows if rows is None else len(rows)
    if call.fn == "count" or column is None:
        counts = _count(ids, groups.count, weights, size)
        if counts.dtype == object and max(counts.tolist(), default=0) > INT64_MAX:
            raise OverflowError
        return pa.array(counts.astype(np.int64, copy=False))
    match call.fn:
        case "sum" | "avg":
            values = buffer_values(decoded(column, rows))
            totals = _sum(values, ids, groups.count, weights)
            missing = _count(ids, groups.count, None, size) == 0
            if call.fn == "avg":
                totals = totals / np.where(missing, 1, to_floats(_count(ids, groups.count, weights, size)))
            return pa.array(totals, mask=missing)
        case "min" | "max":
            best = _best(column, rows, ids, groups.count, largest=call.fn == "max")
            return column.take(pa.array(best, mask=best < 0))
        case "collect":
            return _collect(column, rows, ids, groups.count, size)
        case _ as never:
            assert_never(never)


def _without_nulls(column: pa.Array, rows: Ints | None, ids: Ints | None) -> tuple[Ints | None, Ints | None]:
    """Drop the rows whose value is null."""
    valid: npt.NDArray[np.bool_] | None = None
    if column.null_count:
        valid = is_valid(column)
    if isinstance(column, pa.DictionaryArray) and column.dictionary.null_count:
        has_value = decoded(pa.DictionaryArray.from_arrays(column.indices, column.dictionary.is_valid()))
        valid = has_value.fill_null(False).to_numpy(zero_copy_only=False)
    if valid is None:
        return rows, ids
    kept = np.flatnonzero(valid if rows is None else valid[rows])
    return kept if rows is None else rows[kept], None if ids is None else ids[kept]


def _count(ids: Ints | None, count: int, weights: Counts | None, size: int) -> Counts:
    if ids is None:
        sized = size if weights is None else total(weights)
        return np.array([sized], np.int64 if sized <= INT64_MAX else object)
    if weights is None:
        return np.bincount(ids, minlength=count)
    return add_groups(weights, ids, count)


def _add(values: npt.NDArray[Any], ids: Ints | None, count: int) -> npt.NDArray[Any]:
    """Return the sum of each group, in the type of the values."""
    if ids is None:
        return np.array([values.sum()], values.dtype)
    found = np.zeros(count, values.dtype)
    np.add.at(found, ids, values)
    return found


def _sum(
    values: npt.NDArray[Any], ids: Ints | None, count: int, weights: Counts | None
) -> npt.NDArray[np.float64]:
    if values.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            values = values.astype(np.float64, copy=False)
            values = values if weights is None else values * to_floats(weights)
            return _add(values, ids, count)
    # Sums that may overflow an int64 use Python integers.
    reach = max(-int(values.min(initial=0)), int(values.max(initial=0)))
    share = len(values) if weights is None else total(weights)
    exact = np.int64 if reach * share < 2**62 else object
    values = values.astype(exact)
    values = values if weights is None else values * weights.astype(exact)
    return to_floats(_add(values, ids, count))


def _best(column: pa.Array, rows: Ints | None, ids: Ints | None, count: int, *, largest: bool) -> Ints:
    """Return the first row of each group that has its smallest or largest value, or -1 for a group without a
    value.
    """
    values = sort_values(column, rows)
    if largest:
        kind = column.type.value_type if isinstance(column, pa.DictionaryArray) else column.type
        if pa.types.is_floating(kind):
            values = np.where(values == NAN_VALUE, _LIMITS.min, values)
        # The largest value has the smallest bitwise complement.
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
        places = stable_argsort(ids)
        rows = places if rows is None else rows[places]
    return pa.ListArray.from_arrays(pa.array(offsets), decoded(column, rows))

"""Random projections over matched rows with the awkward values of every type, and what a projection means row by
row.

`projections` makes them, `naive_projection` says what they give. Dates and timestamps are their numbers of days
and of milliseconds there, because Python has no dates that far out; `rows_of` reads a table the same way, and
`comparable` makes rows that mean the same equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from omnigraph.engine.projection.projection_plan import (
    AggregateCall,
    InputColumn,
    InputRef,
    MatchedRows,
    OutputColumn,
    ProjectionPlan,
    SortKey,
)
from omnigraph.lang.ir import AggregateFn

Row: TypeAlias = tuple[Any, ...]

STRINGS = pa.list_(pa.string())
VECTOR = pa.list_(pa.float32(), 2)
_WIDE = [
    "",
    "a",
    "ab",
    "a\0",
    "b",
    "é",
    "日本",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "𝄞",
    "a𝄞",
    "\U0010ffff",
    "a" * 40,
]
# Sums of these are exact in whatever order they are added up.
_TAME = [0.0, -0.0, 0.25, -0.25, 1.5, 1024.75, -3.0, math.nan, math.inf, -math.inf]
_WILD = [*_TAME, -math.nan, 5e-324, -5e-324, 0.1, 1e22, 1.7976931348623157e308, -1.7976931348623157e308]
_WILD_SINGLE = [*_TAME, -math.nan, 2.0**-149, -(2.0**-149), 2.0**127, -(2.0**127), 1 + 2.0**-23]
POOLS: dict[pa.DataType, list[Any]] = {
    pa.string(): _WIDE,
    pa.bool_(): [False, True],
    pa.int32(): [0, 1, -1, 7, -(2**31), 2**31 - 1],
    pa.int64(): [0, 1, -1, 7, 2**53, 2**53 + 1, -(2**53) - 1, -(2**63), -(2**63) + 1, 2**63 - 1],
    pa.uint32(): [0, 1, 7, 2**31, 2**32 - 1],
    pa.uint64(): [0, 1, 7, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1],
    pa.float32(): _WILD_SINGLE,
    pa.float64(): _WILD,
    pa.date32(): [0, 1, -1, 19_000, -(2**31), 2**31 - 1],
    pa.timestamp("ms"): [0, 1, -1, 1_700_000_000_000, -(2**63), 2**63 - 1],
    STRINGS: [[], [""], ["a"], ["a", "b"], ["b", "a"], ["a", None], [None], ["𝄞", "a", "a"]],
    VECTOR: [[0.0, 1.0], [1.0, 0.0], [math.inf, -0.5]],
}
_NESTED = (STRINGS, VECTOR)


# --- making them -----------------------------------------------------------------------------------------


@st.composite
def columns(draw: st.DrawFn, kind: pa.DataType, pool: list[Any], num_rows: int) -> InputColumn:
    """A column of few different values: plain, in chunks, a slice of a longer one, or a dictionary."""
    cells = st.sampled_from([*draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4)), None])
    form = draw(st.sampled_from(["dictionary", "plain", "chunks", "slice", "dictionary slice"]))
    if form.startswith("dictionary"):
        dictionary = draw(st.lists(cells, min_size=1, max_size=6))
        before = 2 if form == "dictionary slice" else 0
        places = st.none() | st.integers(0, len(dictionary) - 1)
        indices = draw(st.lists(places, min_size=num_rows + before, max_size=num_rows + before))
        index_type = draw(st.sampled_from([pa.int32(), pa.int64(), pa.uint32()]))
        found = pa.DictionaryArray.from_arrays(pa.array(indices, index_type), pa.array(dictionary, kind))
        return found.slice(before)
    before = 3 if form == "slice" else 0
    plain = pa.array(draw(st.lists(cells, min_size=num_rows + before, max_size=num_rows + before)), kind)
    if form == "chunks":
        cut = draw(st.integers(0, num_rows))
        return pa.chunked_array([plain.slice(0, cut), plain.slice(cut)], kind)
    return plain.slice(before)


@st.composite
def projections(draw: st.DrawFn) -> tuple[ProjectionPlan, MatchedRows]:
    """A projection and the rows for it.

    Lists are only taken or collected, and compared only in a plain distinct projection; vectors are only taken.
    Sums are exact in any order. Weights come without `collect`, and may add up to more than 2**53.
    """
    num_rows = draw(st.integers(0, 12))
    # Strings more often than others: they are what is looked up late.
    kinds = draw(st.lists(st.sampled_from([*POOLS, *[pa.string()] * 6]), max_size=5))
    tame = [draw(st.booleans()) for _ in kinds]
    found = tuple(
        draw(columns(kind, _TAME if is_tame and pa.types.is_floating(kind) else POOLS[kind], num_rows))
        for kind, is_tame in zip(kinds, tame, strict=True)
    )
    grouped = not kinds or draw(st.booleans())
    distinct = draw(st.booleans())
    weighted = grouped and draw(st.integers(0, 2)) == 0
    scalars = [at for at, kind in enumerate(kinds) if kind not in _NESTED]
    takes = list(range(len(kinds)))
    if grouped:
        takes = scalars
    elif distinct:
        takes = [at for at, kind in enumerate(kinds) if kind != VECTOR]
    choices: list[Any] = [InputRef(at) for at in takes]
    if grouped:
        choices += _folds(kinds, tame, scalars, weighted=weighted, compared=distinct)
    if not choices:
        grouped, weighted, choices = True, False, [AggregateCall("count")]
    values = draw(st.lists(st.sampled_from(choices), min_size=1, max_size=5))
    outputs = tuple(OutputColumn(f"c{at}", _type_of(value, kinds), value) for at, value in enumerate(values))
    keys = [SortKey(at, of_output=True) for at, output in enumerate(outputs) if output.type in _SORTED]
    if not grouped and not distinct:
        keys += [SortKey(at) for at in scalars]
    order = draw(st.lists(st.sampled_from(keys), max_size=3)) if keys else []
    ties: list[int] = []
    if order and scalars and not grouped and not distinct:
        ties = draw(st.lists(st.sampled_from(scalars), max_size=2))
    projection = ProjectionPlan(
        outputs,
        grouped=grouped,
        distinct=distinct,
        order=tuple(SortKey(key.column, draw(st.booleans()), key.of_output) for key in order),
        ties=tuple(ties),
        skip=draw(st.sampled_from([0, 0, 0, 1, 2, num_rows, num_rows + 1])),
        limit=draw(st.none() | st.integers(0, 4) | st.just(num_rows)),
    )
    weights = None
    if weighted:
        big = 1 if _adds_floats(projection, kinds) else 2**59
        sizes = st.integers(1, 5) | st.integers(big, big + 3)
        weights = np.array(draw(st.lists(sizes, min_size=num_rows, max_size=num_rows)), np.int64)
    return projection, MatchedRows(num_rows, found, weights)


_SORTED = frozenset(kind for kind in POOLS if kind not in _NESTED)


def _folds(
    kinds: Sequence[pa.DataType],
    tame: Sequence[bool],
    scalars: Sequence[int],
    *,
    weighted: bool,
    compared: bool,
) -> list[AggregateCall]:
    found = [AggregateCall("count"), AggregateCall("count")]
    for at, kind in enumerate(kinds):
        if kind != VECTOR and not weighted and not (compared and kind == STRINGS):
            found.append(AggregateCall("collect", at))
        if at not in scalars:
            continue
        fns: list[AggregateFn] = ["count", "min", "max"]
        if pa.types.is_integer(kind) or (pa.types.is_floating(kind) and tame[at]):
            fns += ["sum", "avg"]
        found += [AggregateCall(fn, at, distinct) for fn in fns for distinct in (False, True)]
        found.append(AggregateCall("collect", at, distinct=True))
    return found


def _type_of(value: InputRef | AggregateCall, kinds: Sequence[pa.DataType]) -> pa.DataType:
    if isinstance(value, InputRef):
        return kinds[value.column]
    if value.fn == "count" or value.column is None:
        return pa.int64()
    if value.fn in ("sum", "avg"):
        return pa.float64()
    kind = kinds[value.column]
    return pa.list_(kind) if value.fn == "collect" else kind


def _adds_floats(projection: ProjectionPlan, kinds: Sequence[pa.DataType]) -> bool:
    folds = [output.value for output in projection.outputs if isinstance(output.value, AggregateCall)]
    return any(
        fold.fn in ("sum", "avg") and fold.column is not None and pa.types.is_floating(kinds[fold.column])
        for fold in folds
    )


# --- what they mean --------------------------------------------------------------------------------------


def naive_projection(projection: ProjectionPlan, matched: MatchedRows) -> list[Row]:
    """The rows that a projection gives, one plain step after the other; rows that compare equal keep their
    order.
    """
    cells = [values_of(column) for column in matched.columns]
    weights = [1] * matched.num_rows if matched.weights is None else matched.weights.tolist()
    inputs: list[Row] = [tuple(column[at] for column in cells) for at in range(matched.num_rows)]
    # Each result row with the input row it comes from; that of a group is not looked at again.
    rows: list[tuple[Row, Row]]
    if projection.grouped:
        rows = [(row, ()) for row in _grouped(projection, inputs, weights)]
    else:
        takes = [output.value.column for output in projection.outputs if output.value.column is not None]
        rows = [(tuple(row[at] for at in takes), row) for row in inputs]
    if projection.distinct:
        first: dict[Any, tuple[Row, Row]] = {}
        for row in rows:
            first.setdefault(identity(row[0]), row)
        rows = list(first.values())
    for tie in reversed(projection.ties):
        rows.sort(key=lambda row, at=tie: _rank(row[1][at]))  # type: ignore[misc]
    for key in reversed(projection.order):
        side = 0 if key.of_output else 1
        rows.sort(
            key=lambda row, side=side, at=key.column: _rank(row[side][at]),  # type: ignore[misc]
            reverse=key.descending,
        )
    stop = None if projection.limit is None else projection.skip + projection.limit
    return [row for row, _ in islice(rows, projection.skip, stop)]


def values_of(column: InputColumn) -> list[Any]:
    """The values of a column, dates and timestamps as numbers."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        places = column.indices.to_pylist()
        dictionary = values_of(column.dictionary)
        return [None if place is None else dictionary[place] for place in places]
    if pa.types.is_list(kind):
        lists = [chunk for chunk in getattr(column, "chunks", [column]) if len(chunk)]
        return [None if cell is None else values_of(cell) for chunk in lists for cell in _lists(chunk)]
    if pa.types.is_date(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found


def _lists(lists: pa.ListArray) -> list[pa.Array | None]:
    return [cell.values if cell.is_valid else None for cell in lists]


def rows_of(table: pa.Table) -> list[Row]:
    """The rows of a table as `naive_projection` writes them."""
    return list(zip(*(values_of(column) for column in table.columns), strict=True))


def comparable(rows: Sequence[Row]) -> list[Any]:
    """The rows so that ``==`` says whether they mean the same: a NaN equals itself, zeros have no sign."""
    return [identity(row) for row in rows]


def identity(value: Any) -> Any:
    """What two values that count as one have in common."""
    if isinstance(value, list | tuple):
        return tuple(identity(item) for item in value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _rank(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value)


def _grouped(projection: ProjectionPlan, inputs: list[Row], weights: list[int]) -> list[Row]:
    keys = [output.value.column for output in projection.outputs if isinstance(output.value, InputRef)]
    groups: dict[Any, list[int]] = {} if keys else {(): []}
    for at, row in enumerate(inputs):
        groups.setdefault(identity([row[key] for key in keys]), []).append(at)
    return [
        tuple(
            inputs[members[0]][output.value.column]
            if isinstance(output.value, InputRef)
            else _fold(output.value, [inputs[at] for at in members], [weights[at] for at in members])
            for output in projection.outputs
        )
        for members in groups.values()
    ]


def _fold(fold: AggregateCall, rows: list[Row], weights: list[int]) -> Any:
    if fold.column is None:
        return sum(weights)
    pairs = [(row[fold.column], weight) for row, weight in zip(rows, weights, strict=True)]
    pairs = [(value, weight) for value, weight in pairs if value is not None]
    if fold.distinct:
        first: dict[Any, tuple[Any, int]] = {}
        for value, _ in pairs:
            first.setdefault(identity(value), (value, 1))
        pairs = list(first.values())
    values = [value for value, _ in pairs]
    count = sum(weight for _, weight in pairs)
    match fold.fn:
        case "count":
            return count
        case "collect":
            return values
        case "sum" | "avg":
            total = float(sum(value * weight for value, weight in pairs)) if pairs else None
            return total if fold.fn == "sum" or total is None else total / count
        case "min" | "max":
            numbers = [value for value in values if value == value] or values
            pick = min if fold.fn == "min" else max
            return pick(numbers) if numbers else None

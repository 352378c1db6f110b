"""Projections on Arrow: random cases against a row-by-row reference, and each rule once by hand."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.projection.arrow_projection import run_projection
from omnigraph.engine.projection.projection_plan import (
    AggregateCall,
    InputColumn,
    InputRef,
    MatchedRows,
    OutputColumn,
    ProjectionPlan,
    SortKey,
)
from omnigraph.engine.projection.sorting import order_rows
from omnigraph.lang.ir import AggregateFn
from tests.engine.projections import comparable, naive_projection, projections, rows_of

NAN, INF = math.nan, math.inf
COUNT = OutputColumn("rows", pa.int64(), AggregateCall("count"))


def check(projection: ProjectionPlan, matched: MatchedRows) -> None:
    found = run_projection(projection, matched)
    found.validate(full=True)
    assert found.column_names == [output.name for output in projection.outputs]
    assert found.schema.types == [output.type for output in projection.outputs]
    assert comparable(rows_of(found)) == comparable(naive_projection(projection, matched))


@settings(max_examples=70, deadline=None)
@given(projections())
def test_a_projection_gives_the_rows_that_going_through_them_one_by_one_gives(
    case: tuple[ProjectionPlan, MatchedRows],
) -> None:
    check(*case)


@settings(max_examples=40, deadline=None)
@given(projections(), st.sampled_from([300, 1500]), st.integers(0, 2**32))
def test_it_does_over_many_rows_and_dictionaries_that_are_mostly_unused(
    case: tuple[ProjectionPlan, MatchedRows], num_rows: int, seed: int
) -> None:
    projection, matched = case
    if matched.num_rows:
        check(projection, grown(matched, num_rows, np.random.default_rng(seed)))


def grown(matched: MatchedRows, num_rows: int, chance: np.random.Generator) -> MatchedRows:
    """More rows like the given ones, from dictionaries in which every value is in many places."""
    rows = pa.array(chance.integers(0, matched.num_rows, num_rows))

    def grow(column: InputColumn) -> InputColumn:
        column = column.take(rows)
        if not isinstance(column, pa.DictionaryArray):
            return column
        size, times = len(column.dictionary), int(chance.integers(1, 3000))
        shift = pa.array(size * chance.integers(0, times, num_rows))
        indices = pa.compute.add(column.indices.cast(pa.int64()), shift)
        return pa.DictionaryArray.from_arrays(indices, pa.concat_arrays([column.dictionary] * times))

    weights = None if matched.weights is None else chance.integers(1, 5, num_rows)
    return MatchedRows(num_rows, tuple(map(grow, matched.columns)), weights)


# --- the rules by hand: how to say them -----------------------------------------------------------------------


def taken(column: InputColumn, at: int = 0) -> OutputColumn:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return OutputColumn(f"c{at}", kind, InputRef(at))


def only(table: pa.Table, name: str = "c0") -> list[Any]:
    found: list[Any] = table[name].to_pylist()
    return found


def in_order(column: pa.Array, *, descending: bool = False) -> list[int]:
    """The rows in the order of the column."""
    places = pa.array(range(len(column)))
    projection = ProjectionPlan((taken(places, 1),), order=(SortKey(0, descending),))
    return only(run_projection(projection, MatchedRows(len(column), (column, places))), "c1")


def folded(fn: AggregateFn, column: InputColumn, kind: pa.DataType, weights: Any = None, **how: bool) -> Any:
    """An aggregate of all rows of a column."""
    projection = ProjectionPlan((OutputColumn("c0", kind, AggregateCall(fn, 0, **how)),), grouped=True)
    (found,) = only(run_projection(projection, MatchedRows(len(column), (column,), weights)))
    return found


def dictionary(places: list[int | None], values: list[Any]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(values))


# --- groups and distinct rows ----------------------------------------------------------------------------


def test_groups_stand_in_first_seen_order_and_nulls_are_one_of_them() -> None:
    column = pa.array(["b", None, "a", "b", None, None])
    found = run_projection(ProjectionPlan((taken(column), COUNT), grouped=True), MatchedRows(6, (column,)))
    assert rows_of(found) == [("b", 2), (None, 3), ("a", 1)]


@pytest.mark.parametrize("times", [1, 100])
@pytest.mark.parametrize("unused", [0, 9000])
def test_equal_values_of_a_dictionary_are_one_wherever_they_stand(times: int, unused: int) -> None:
    values = ["x", None, "unused", "x", "y", *["z"] * unused]
    column = dictionary([4, 0, None, 1, 3, 0] * times, values)
    numbers = pa.array(range(6 * times))
    matched = MatchedRows(6 * times, (column, numbers))
    found = run_projection(ProjectionPlan((taken(column), COUNT), grouped=True), matched)
    assert rows_of(found) == [("y", times), ("x", 3 * times), (None, 2 * times)]
    assert only(run_projection(ProjectionPlan((taken(column),), distinct=True), matched)) == ["y", "x", None]
    assert folded("collect", column, pa.list_(pa.string()), distinct=True) == ["y", "x"]
    projection = ProjectionPlan(
        (taken(column), taken(numbers, 1)), order=(SortKey(0),), ties=(1,), limit=5 * times
    )
    rows = sorted(zip([4, 2, 1, 1, 2, 2] * times, range(6 * times), strict=True))[: 5 * times]
    assert only(run_projection(projection, matched), "c1") == [row for _, row in rows]


def test_groups_by_several_wide_keys_do_not_run_into_each_other() -> None:
    wide = pa.array([0, 2**63 - 1, -(2**63), 0, 2**63 - 1])
    wider = pa.array([2**64 - 1, 0, 0, 2**64 - 1, 2**64 - 1], pa.uint64())
    outputs = (taken(wide), taken(wider, 1), taken(wide, 2), COUNT)
    found = run_projection(ProjectionPlan(outputs, grouped=True), MatchedRows(5, (wide, wider, wide)))
    assert only(found, "rows") == [2, 1, 1, 1]
    # Put together in 64 bits without care, the second row would be the first: 16 * 2**60 is 0 there.
    high, low = pa.array([0, 16, 0]), pa.array([0, 0, 2**60 - 1])
    found = run_projection(
        ProjectionPlan((taken(high), taken(low, 1)), distinct=True), MatchedRows(3, (high, low))
    )
    assert rows_of(found) == [(0, 0), (16, 0), (0, 2**60 - 1)]


def test_two_nans_are_one_group_and_so_are_the_two_zeros() -> None:
    column = pa.array([NAN, -0.0, 0.0, -NAN, 1.0])
    found = run_projection(ProjectionPlan((taken(column), COUNT), grouped=True), MatchedRows(5, (column,)))
    assert only(found, "rows") == [2, 2, 1]


def test_distinct_keeps_the_first_of_equal_rows() -> None:
    column = pa.array([0.0, -0.0, NAN, 1.0, NAN])
    found = only(run_projection(ProjectionPlan((taken(column),), distinct=True), MatchedRows(5, (column,))))
    assert [str(value) for value in found] == ["0.0", "nan", "1.0"]


@pytest.mark.parametrize("late", [False, True])
def test_lists_are_equal_when_their_elements_are(late: bool) -> None:
    lists = pa.array([["a", "b"], ["ab"], [], None, ["a", "b"], [], None, [None], ["b", "a"]])
    column = pa.DictionaryArray.from_arrays(pa.array(range(9)), lists) if late else lists
    found = only(run_projection(ProjectionPlan((taken(column),), distinct=True), MatchedRows(9, (column,))))
    assert found == [["a", "b"], ["ab"], [], None, [None], ["b", "a"]]


def test_vectors_and_structs_are_equal_when_their_parts_are() -> None:
    vectors = pa.array(
        [[9.0, 9.0], [1.0, 2.0], None, [1.0, 3.0], [1.0, 2.0], None], pa.list_(pa.float32(), 2)
    )
    found = only(
        run_projection(ProjectionPlan((taken(vectors),), distinct=True), MatchedRows(5, (vectors.slice(1),)))
    )
    assert found == [[1.0, 2.0], None, [1.0, 3.0]]
    structs = pa.array([{"a": 1, "b": "x"}, {"a": None, "b": None}, None, {"a": 1, "b": "x"}, None])
    found = only(run_projection(ProjectionPlan((taken(structs),), distinct=True), MatchedRows(5, (structs,))))
    assert found == [{"a": 1, "b": "x"}, {"a": None, "b": None}, None]


def test_a_column_of_nothing_but_nulls_without_a_type_is_one_value() -> None:
    nulls, names = pa.nulls(3), pa.array(["b", "a", "b"])
    projection = ProjectionPlan((OutputColumn("c0", pa.int64(), InputRef(0)), taken(names, 1)), distinct=True)
    order = (SortKey(0, of_output=True), SortKey(1, of_output=True))
    found = run_projection(dataclasses.replace(projection, order=order), MatchedRows(3, (nulls, names)))
    assert rows_of(found) == [(None, "a"), (None, "b")]


def test_no_rows_are_one_group_without_keys_and_none_with_keys() -> None:
    column = pa.array([], pa.string())
    least = OutputColumn("least", pa.string(), AggregateCall("min", 0))
    total = OutputColumn("all", pa.list_(pa.string()), AggregateCall("collect", 0))
    nothing = MatchedRows(0, (column,))
    assert rows_of(run_projection(ProjectionPlan((COUNT, least, total), grouped=True), nothing)) == [
        (0, None, [])
    ]
    assert rows_of(run_projection(ProjectionPlan((taken(column), COUNT, least), grouped=True), nothing)) == []
    assert (
        rows_of(run_projection(ProjectionPlan((COUNT, least, total), grouped=True, limit=0), nothing)) == []
    )
    assert rows_of(run_projection(ProjectionPlan((COUNT, least, total), grouped=True, skip=1), nothing)) == []


# --- order -----------------------------------------------------------------------------------------------


def test_nulls_come_first_ascending_and_last_descending() -> None:
    for column in (pa.array([1, None, -(2**63), 2**63 - 1]), pa.array(["b", None, "a", "c"])):
        assert in_order(column) == [1, 2, 0, 3]
        assert in_order(column, descending=True) == [3, 0, 2, 1]


def test_a_nan_sorts_after_every_number_and_before_them_descending() -> None:
    column = pa.array([NAN, INF, None, -INF, -NAN, 0.0])
    assert in_order(column) == [2, 3, 5, 1, 0, 4]
    assert in_order(column, descending=True) == [0, 4, 1, 5, 3, 2]


def test_negative_numbers_sort_by_value() -> None:
    for kind in (pa.float32(), pa.float64(), pa.int32()):
        assert in_order(pa.array([-1, -3, 2, -2], kind)) == [1, 3, 0, 2]


def test_many_rows_with_equal_values_far_apart_keep_their_order() -> None:
    values = [1e300, 0.0, -1e300, 0.0] * 1000
    expected = sorted(range(len(values)), key=values.__getitem__)
    assert order_rows([(pa.array(values), False)], [], len(values)).tolist() == expected


def test_the_zeros_are_equal_so_that_what_follows_decides() -> None:
    zeros, names = pa.array([0.0, -0.0, 0.0]), pa.array(["c", "b", "a"])
    projection = ProjectionPlan((taken(names, 1),), order=(SortKey(0),), ties=(1,))
    assert only(run_projection(projection, MatchedRows(3, (zeros, names))), "c1") == ["a", "b", "c"]


def test_strings_sort_by_code_point() -> None:
    assert in_order(pa.array(["𝄞", "\uffff", "é", "z", "Z", "", "z\0"])) == [5, 4, 3, 6, 2, 1, 0]


def test_false_sorts_before_true_and_large_unsigned_numbers_last() -> None:
    assert in_order(pa.array([True, False, None])) == [2, 1, 0]
    assert in_order(pa.array([2**63, 0, None, 2**64 - 1, 1], pa.uint64())) == [2, 1, 4, 0, 3]


def test_ties_follow_the_order_ascending_whatever_its_direction() -> None:
    ages, ids = pa.array([1, 2, 1, 2]), dictionary([3, 1, 0, 2], ["a", "d", "c", "b"])
    projection = ProjectionPlan((taken(ids, 1),), order=(SortKey(0, descending=True),), ties=(1,))
    assert only(run_projection(projection, MatchedRows(4, (ages, ids))), "c1") == ["c", "d", "a", "b"]


def test_rows_are_ordered_by_columns_that_are_not_returned_and_by_those_that_are() -> None:
    names, ages = pa.array(["a", "b", "c"]), pa.array([2, 3, 2])
    matched = MatchedRows(3, (ages, names))
    order = (SortKey(0, descending=True), SortKey(0, descending=True, of_output=True))
    assert only(run_projection(ProjectionPlan((taken(names, 1),), order=order), matched), "c1") == [
        "b",
        "c",
        "a",
    ]


def test_groups_that_the_order_leaves_equal_stay_in_first_seen_order() -> None:
    column = pa.array(["b", "a", "c", "c"])
    projection = ProjectionPlan((taken(column), COUNT), grouped=True, order=(SortKey(1, of_output=True),))
    assert only(run_projection(projection, MatchedRows(4, (column,)))) == ["b", "a", "c"]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    ("skip", "limit", "expected"),
    [
        (0, 0, []),
        (1, 0, []),
        (3, None, []),
        (9, 9, []),
        (1, 1, ["b"]),
        (2, 5, ["c"]),
        (0, None, ["a", "b", "c"]),
    ],
)
def test_skip_and_limit_take_what_there_is(
    ordered: bool, skip: int, limit: int | None, expected: list[str]
) -> None:
    column = pa.chunked_array([["a"], ["b", "c"]])
    order = (SortKey(0, of_output=True),) if ordered else ()
    for grouped, distinct in ((False, False), (True, False), (False, True)):
        projection = ProjectionPlan((taken(column),), grouped, distinct, order, skip=skip, limit=limit)
        for form in (column, column.combine_chunks()):
            assert only(run_projection(projection, MatchedRows(3, (form,)))) == expected


@pytest.mark.parametrize("spread", [3, 2000, 2**62])
@pytest.mark.parametrize("limit", [None, 1, 700, 3000])
def test_the_first_of_many_rows_are_the_first_of_all_in_order(spread: int, limit: int | None) -> None:
    chance = random.Random(spread)
    first = [chance.choice([None, chance.randrange(-spread, spread)]) for _ in range(3000)]
    second = [chance.choice("abc") for _ in first]
    third = [chance.random() for _ in first]
    places = sorted(range(3000), key=lambda at: (second[at], third[at]))
    places.sort(key=lambda at: -INF if (value := first[at]) is None else value, reverse=True)
    found = order_rows([(pa.array(first), True)], [pa.array(second), pa.array(third)], 3000, 2, limit)
    assert found.tolist() == places[2 : None if limit is None else 2 + limit]


def test_long_values_of_a_dictionary_are_not_copied_for_every_row() -> None:
    # Written out, the strings of all rows would not even fit an Arrow array.
    count = 5000
    texts = dictionary([1, 0] * (count // 2), ["b" * 2**20, "a" * 2**20])
    numbers = pa.array(range(count))
    matched = MatchedRows(count, (texts, numbers))
    projection = ProjectionPlan((taken(numbers, 1),), order=(SortKey(0),), ties=(1,), limit=3)
    assert only(run_projection(projection, matched), "c1") == [0, 2, 4]
    projection = ProjectionPlan((taken(texts), COUNT), grouped=True, order=(SortKey(0, of_output=True),))
    assert only(run_projection(projection, matched), "rows") == [count // 2] * 2
    assert folded("max", texts, pa.string())[0] == "b"
    assert folded("count", texts, pa.int64(), distinct=True) == 2


# --- aggregates ------------------------------------------------------------------------------------------


def test_count_of_a_column_counts_its_values_and_of_none_the_rows() -> None:
    column = dictionary([0, 1, None, 2, 0], ["x", None, "y"])
    assert folded("count", column, pa.int64()) == 3
    assert folded("count", column, pa.int64(), distinct=True) == 2
    assert folded("count", dictionary([0, 1, 0], ["x", None]), pa.int64()) == 2
    assert only(
        run_projection(ProjectionPlan((COUNT,), grouped=True), MatchedRows(5, (column,))), "rows"
    ) == [5]


def test_sum_and_avg_are_floats_and_null_without_a_value() -> None:
    column = pa.array([1, None, 4])
    assert (folded("sum", column, pa.float64()), folded("avg", column, pa.float64())) == (5.0, 2.5)
    nulls = pa.array([None, None], pa.int64())
    assert (folded("sum", nulls, pa.float64()), folded("avg", nulls, pa.float64())) == (None, None)
    assert folded("sum", pa.array([1.5, 1.5, None, 2.0]), pa.float64(), distinct=True) == 3.5


@pytest.mark.parametrize(
    "values", [[2**53 + 1, 1, 1], [2**63 - 1, 2**63 - 1, -(2**63), 7], [-(2**63)] * 5, [2**53 + 1, -(2**53)]]
)
def test_a_sum_of_integers_is_rounded_once(values: list[int]) -> None:
    keys = pa.array([1] * len(values))
    total = OutputColumn("total", pa.float64(), AggregateCall("sum", 0))
    assert folded("sum", pa.array(values), pa.float64()) == float(sum(values))
    matched = MatchedRows(len(values), (pa.array(values), keys))
    assert only(run_projection(ProjectionPlan((taken(keys, 1), total), grouped=True), matched), "total") == [
        float(sum(values))
    ]
    assert folded("sum", pa.array([2**64 - 1, 2**64 - 1], pa.uint64()), pa.float64()) == 2.0**65


def test_min_and_max_keep_their_type_and_look_at_a_nan_only_when_there_is_nothing_else() -> None:
    keys = pa.array(["a", "a", "b", "a", "c"])
    column = pa.array([NAN, 2.0, NAN, -INF, None], pa.float32())
    least, most = (OutputColumn(fn, pa.float32(), AggregateCall(fn, 1)) for fn in ("min", "max"))
    found = run_projection(
        ProjectionPlan((taken(keys), least, most), grouped=True), MatchedRows(5, (keys, column))
    )
    assert comparable(rows_of(found)) == [("a", -INF, 2.0), ("b", "NaN", "NaN"), ("c", None, None)]
    assert folded("max", pa.array([-(2**63), None]), pa.int64()) == -(2**63)
    assert folded("max", pa.array(["\uffff", "𝄞"]), pa.string()) == "𝄞"


def test_collect_gathers_the_values_in_row_order_and_distinct_the_first_of_each() -> None:
    keys, column = pa.array([1, 2, 1, 1, 3]), dictionary([3, 0, 1, 2, None], ["b", "a", "a", "c"])
    kind = pa.list_(pa.string())
    outputs = (
        taken(keys),
        OutputColumn("all", kind, AggregateCall("collect", 1)),
        OutputColumn("each", kind, AggregateCall("collect", 1, distinct=True)),
    )
    found = run_projection(ProjectionPlan(outputs, grouped=True), MatchedRows(5, (keys, column)))
    assert rows_of(found) == [(1, ["c", "a", "a"], ["c", "a"]), (2, ["b"], ["b"]), (3, [], [])]


def test_a_row_with_a_weight_counts_as_that_many_rows() -> None:
    column, weights = pa.array([None, 1.5, 3.0]), np.array([2, 3, 1])
    assert folded("count", column, pa.int64(), weights) == 4
    assert folded("sum", column, pa.float64(), weights) == 7.5
    assert folded("avg", column, pa.float64(), weights) == 7.5 / 4
    assert folded("sum", column, pa.float64(), weights, distinct=True) == 4.5
    assert folded("count", column, pa.int64(), weights, distinct=True) == 2
    keys = pa.array(["a", "a", "b"])
    huge = np.array([2**60 + 1, 2**60, 2**53 + 1])
    found = run_projection(ProjectionPlan((taken(keys), COUNT), grouped=True), MatchedRows(3, (keys,), huge))
    assert only(found, "rows") == [2**61 + 1, 2**53 + 1]


def test_aggregates_of_the_groups_left_by_a_limit_are_theirs() -> None:
    keys, values = pa.array(["a", "b", "c", "b", "c", "c"]), pa.array([1, 2, 3, 4, 5, 6])
    outputs = (taken(keys), COUNT, OutputColumn("sum", pa.float64(), AggregateCall("sum", 1)))
    projection = ProjectionPlan(
        outputs, grouped=True, order=(SortKey(1, descending=True, of_output=True),), limit=2
    )
    assert rows_of(run_projection(projection, MatchedRows(6, (keys, values)))) == [
        ("c", 3, 14.0),
        ("b", 2, 6.0),
    ]


def test_a_dictionary_known_to_repeat_nothing_is_grouped_by_its_places() -> None:
    indices = np.tile(np.array([2, 0, 1, 2], np.int32), 500)
    places = pa.array(indices, mask=indices == 1)
    column = pa.DictionaryArray.from_arrays(places, pa.array(["x", "y", "z"]))
    projection = ProjectionPlan(
        (OutputColumn("v", pa.string(), InputRef(0)), OutputColumn("n", pa.int64(), AggregateCall("count"))),
        grouped=True,
    )
    told = run_projection(projection, MatchedRows(2_000, (column,), distinct=frozenset({0})))
    assert told.to_pylist() == [{"v": "z", "n": 1_000}, {"v": "x", "n": 500}, {"v": None, "n": 500}]
    assert told == run_projection(projection, MatchedRows(2_000, (column,)))

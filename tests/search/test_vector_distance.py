"""Distances are exact, follow the order asked for, and belong to a row alone."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput
from omnigraph.search import vector_distance as vectors_module
from omnigraph.search.vector_distance import nearest_distances, sum_squares

NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def column_of(rows: list[list[float | None] | None], dimension: int) -> pa.Array:
    return pa.array(rows, pa.list_(pa.float32(), dimension))


def chunked(column: pa.Array, cuts: list[int]) -> pa.ChunkedArray:
    """The same rows in chunks that are slices of a longer array."""
    longer = pa.concat_arrays([column, column])
    bounds = [0, *sorted(min(cut, len(column)) for cut in cuts), len(column)]
    pieces = [
        longer.slice(start + len(column) * (n % 2), stop - start)
        for n, (start, stop) in enumerate(pairwise(bounds))
    ]
    return pa.chunked_array(pieces, column.type)


def folded(squares: list[float]) -> float:
    """The sum as the definition has it, one number at a time."""
    while len(squares) > 1:
        half = (len(squares) + 1) // 2
        upper = squares[half:] + [0.0] * (2 * half - len(squares))
        squares = [low + high for low, high in zip(squares[:half], upper, strict=True)]
    return squares[0]


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 9), st.integers(0, 12), st.lists(st.integers(0, 12), max_size=4))
def test_distances_of_selected_rows_are_sums_of_squares_in_their_order(
    data: st.DataObject, dimension: int, count: int, cuts: list[int]
) -> None:
    vector = st.lists(NUMBERS, min_size=dimension, max_size=dimension)
    rows = data.draw(st.lists(st.none() | vector, min_size=count, max_size=count))
    query = data.draw(vector)
    wanted = data.draw(st.lists(st.integers(0, count - 1), max_size=20)) if count else []
    column = column_of([None if row is None else [*row] for row in rows], dimension)
    expected = [
        (n, folded([(x - y) * (x - y) for x, y in zip(row, query, strict=True)]))
        for n in wanted
        if (row := rows[n]) is not None
    ]
    for form in (column, chunked(column, cuts)):
        kept, distances = nearest_distances(form, np.array(wanted, np.int64), query)
        assert list(zip(kept.tolist(), distances.tolist(), strict=True)) == expected


def test_distances_of_sliced_array_use_its_offset() -> None:
    column = column_of([[9, 9], [1, 2], None, [3, 4], [8, 8]], 2).slice(1, 3)
    kept, distances = nearest_distances(column, np.arange(3), [1, 1])
    assert (kept.tolist(), distances.tolist()) == ([0, 2], [1.0, 13.0])


def test_distance_of_vector_with_null_element_is_null() -> None:
    column = column_of([[1, None], [1, 2]], 2)
    assert nearest_distances(column, np.arange(2), [0, 0])[0].tolist() == [1]


@pytest.mark.parametrize("dimension", [1, 3, 128, 1000])
def test_distance_of_a_row_is_independent_of_other_rows(
    dimension: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = np.random.default_rng(7).standard_normal((300, dimension)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), dimension)
    query = numbers[11].tolist()
    everything = nearest_distances(column, np.arange(300), query)[1]
    alone = [nearest_distances(column, np.array([n]), query)[1][0] for n in range(300)]
    monkeypatch.setattr(vectors_module, "_BATCH_NUMBERS", 7 * dimension)
    in_sevens = nearest_distances(column, np.arange(300)[::-1], query)[1][::-1]
    assert everything.tobytes() == np.array(alone).tobytes() == in_sevens.tobytes()
    assert everything[11] == 0


def test_distance_of_near_vectors_far_from_the_origin_is_exact() -> None:
    # Expanding the square would lose all digits here, as would single precision.
    column = column_of([[16777216.0, 1.0], [16777218.0, 1.0]], 2)
    assert nearest_distances(column, np.arange(2), [16777217, 1])[1].tolist() == [1.0, 1.0]


def test_distance_of_largest_floats_does_not_overflow() -> None:
    largest = float(np.finfo(np.float32).max)
    distance = nearest_distances(column_of([[largest]], 1), np.arange(1), [-largest])[1][0]
    assert distance == (2 * largest) ** 2


def test_distance_of_nan_is_nan() -> None:
    column = column_of([[math.nan, 0], [math.inf, 0], [0, 0]], 2)
    distances = nearest_distances(column, np.arange(3), [math.inf, 0])[1].tolist()
    assert [math.isnan(distances[0]), math.isnan(distances[1]), distances[2]] == [True, True, math.inf]


def test_distances_of_no_rows_are_empty() -> None:
    empty = np.array([], np.int64)
    for column in (column_of([[1, 2]], 2), pa.chunked_array([], pa.list_(pa.float32(), 2))):
        kept, distances = nearest_distances(column, empty, [1, 2])
        assert (kept.tolist(), distances.tolist()) == ([], [])


@pytest.mark.parametrize("query", [[], [1.0], [1.0, 2.0, 3.0]])
def test_distances_to_vector_of_other_dimension_are_refused(query: list[float]) -> None:
    with pytest.raises(InvalidInput, match=f"expected 2, got {len(query)}"):
        nearest_distances(column_of([[1, 2]], 2), np.arange(1), query)


def test_sum_squares_does_not_change_its_input() -> None:
    rows = np.array([[1.0, -2.0, 3.0], [0.0, 0.0, 0.5]])
    assert sum_squares(rows).tolist() == [14.0, 0.25]
    assert rows.tolist() == [[1.0, -2.0, 3.0], [0.0, 0.0, 0.5]]

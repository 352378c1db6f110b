"""Two rankings become one score by their ranks alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput
from omnigraph.search.rank_fusion import fuse

RANKINGS = st.lists(st.integers(0, 9), max_size=14)


def fused(first: list[int], second: list[int], k: float) -> dict[int, float]:
    ordinals, scores = fuse(np.array(first, np.int64), np.array(second, np.int64), k)
    assert ordinals.tolist() == sorted(ordinals.tolist())
    assert (str(ordinals.dtype), str(scores.dtype)) == ("int64", "float64")
    return dict(zip(ordinals.tolist(), scores.tolist(), strict=True))


@settings(max_examples=100, deadline=None)
@given(RANKINGS, RANKINGS, st.integers(1, 100) | st.floats(0.01, 100))
def test_a_score_is_the_sum_over_the_rankings(first: list[int], second: list[int], k: float) -> None:
    expected: dict[int, float] = {}
    for ranking in (first, second):
        for rank, entity in enumerate(dict.fromkeys(ranking)):
            expected[entity] = expected.get(entity, 0.0) + 1 / (k + rank + 1)
    assert fused(first, second, k) == pytest.approx(expected, rel=1e-12)


def test_ranks_count_from_zero_and_k_is_60_unless_given() -> None:
    ordinals, scores = fuse(np.array([4, 2]), np.array([2, 8]))
    assert dict(zip(ordinals.tolist(), scores.tolist(), strict=True)) == {
        2: 1 / 62 + 1 / 61,
        4: 1 / 61,
        8: 1 / 62,
    }


def test_an_entity_that_is_repeated_takes_one_place() -> None:
    assert fused([5, 5, 5, 6], [], 1) == {5: 1 / 2, 6: 1 / 3}


def test_nothing_fused_with_nothing_is_nothing() -> None:
    assert fused([], [], 60) == {}


@pytest.mark.parametrize("k", [0, -1, float("nan")])
def test_a_k_that_is_not_positive_is_refused(k: float) -> None:
    with pytest.raises(InvalidInput, match="above 0"):
        fuse(np.array([1]), np.array([2]), k)

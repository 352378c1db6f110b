"""Reciprocal ranks: a score depends on the rank alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput
from omnigraph.search.rank_fusion import check_k, reciprocal_ranks
from omnigraph.search.ranking import RowScores, fuse


def ranks(ranking: list[int], k: int) -> dict[int, float]:
    entities, scores = reciprocal_ranks(np.array(ranking, np.int64), k)
    assert entities.tolist() == sorted(entities.tolist())
    assert (str(entities.dtype), str(scores.dtype)) == ("int64", "float64")
    return dict(zip(entities.tolist(), scores.tolist(), strict=True))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=14), st.integers(1, 100))
def test_reciprocal_ranks_of_any_ranking_match_the_formula(ranking: list[int], k: int) -> None:
    expected = {entity: 1 / (k + rank + 1) for rank, entity in enumerate(dict.fromkeys(ranking))}
    assert ranks(ranking, k) == pytest.approx(expected, rel=1e-12)


def test_reciprocal_ranks_of_repeated_entity_take_one_rank() -> None:
    assert ranks([5, 5, 5, 6], 1) == {5: 1 / 2, 6: 1 / 3}


def test_reciprocal_ranks_of_empty_ranking_are_empty() -> None:
    assert ranks([], 60) == {}


def test_fuse_adds_contributions_and_keeps_rows_of_either_ranking() -> None:
    first = RowScores(np.array([0.5, 0.25, 9.0]), np.array([True, True, False]))
    second = RowScores(np.array([0.125, 9.0, 9.0]), np.array([True, False, False]))
    assert fuse([first, second], [1.0, 1.0]).column().to_pylist() == [0.625, 0.25, None]
    assert fuse([first, second], [2.0, 4.0]).column().to_pylist() == [1.5, 0.5, None]


@pytest.mark.parametrize("k", [0, -1, 2.5, None])
def test_check_k_not_a_positive_integer_is_rejected(k: float | None) -> None:
    with pytest.raises(InvalidInput, match="an integer k above 0"):
        check_k(k)


def test_check_k_positive_integer_is_returned() -> None:
    assert check_k(60) == 60

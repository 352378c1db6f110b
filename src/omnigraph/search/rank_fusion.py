"""Fusion of rankings: by reciprocal ranks or by normalized scores."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.errors import InvalidInput
from omnigraph.lang.ir import MAX_FUSION_DEPTH, Value

Ordinals: TypeAlias = npt.NDArray[np.int64]
Scores: TypeAlias = npt.NDArray[np.float64]


def reciprocal_ranks(ranking: Ordinals, k: int) -> tuple[Ordinals, Scores]:
    """Return the entities of a ranking, ascending, and 1 / (k + rank + 1) of each.

    The ranking is best first, and ranks count from 0. A repeated entity has its best rank; its other occurrences
    take no rank.

    >>> entities, scores = reciprocal_ranks(np.array([7, 3, 7]), 1)
    >>> entities, scores.round(4)
    (array([3, 7]), array([0.3333, 0.5   ]))
    """
    entities, places = np.unique(ranking, return_index=True)
    ranks = np.empty(len(places), np.int64)
    ranks[np.argsort(places)] = np.arange(len(places))
    return entities, 1.0 / (k + ranks + 1)


def normalized_scores(scores: Scores) -> Scores:
    """Return the scores of a ranking, best first, between 1 for the best and 0 for the worst.

    Equal scores are all 1. Infinities and NaNs are 0, and no ends of the range.

    >>> normalized_scores(np.array([1.0, 2.0, 5.0, np.nan])), normalized_scores(np.array([3.0, 3.0]))
    (array([1.  , 0.75, 0.  , 0.  ]), array([1., 1.]))
    """
    finite = np.isfinite(scores)
    result = np.zeros(len(scores))
    if finite.any():
        best, worst = scores[finite][0], scores[finite][-1]
        # Without the addition the worst of ascending distances would be -0.
        result[finite] = 1.0 if best == worst else (scores[finite] - worst) / (best - worst) + 0.0
    return result


def check_k(value: Value) -> int:
    """Return the constant k of ``rrf``; raise `InvalidInput` unless it is an integer above 0."""
    if not isinstance(value, int) or value <= 0:
        raise InvalidInput(f"`rrf` needs an integer k above 0, got {value}")
    return value


def check_depth(value: Value) -> int:
    """Return the depth of a fusion; raise `InvalidInput` unless it is an allowed integer."""
    if not isinstance(value, int) or not 1 <= value <= MAX_FUSION_DEPTH:
        raise InvalidInput(f"`depth` must be an integer from 1 to {MAX_FUSION_DEPTH:,}, got {value}")
    return value

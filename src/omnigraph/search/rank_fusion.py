"""Reciprocal rank fusion: one score out of two rankings."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.errors import InvalidInput

Ordinals: TypeAlias = npt.NDArray[np.int64]


def fuse(first: Ordinals, second: Ordinals, k: float = 60) -> tuple[Ordinals, npt.NDArray[np.float64]]:
    """All entities of two rankings, ascending, and the sum of 1 / (k + rank + 1) of each.

    Rankings stand best first and ranks count from 0. An entity that a ranking repeats has its best place and
    takes up no other; one that a ranking lacks gets nothing from it. `k` must be positive, else `InvalidInput`.

    >>> ordinals, scores = fuse(np.array([7, 3]), np.array([3]), 1)
    >>> ordinals, scores.round(4)
    (array([3, 7]), array([0.8333, 0.5   ]))
    """
    if not k > 0:
        raise InvalidInput(f"rrf needs a k above 0, not {k}")
    entities = np.unique(np.concatenate([first, second]).astype(np.int64))
    scores = np.zeros(len(entities))
    for ranking in (first, second):
        ranked = _distinct(ranking)
        scores[np.searchsorted(entities, ranked)] += 1.0 / (k + np.arange(len(ranked)) + 1)
    return entities, scores


def _distinct(ranking: Ordinals) -> Ordinals:
    _, places = np.unique(ranking, return_index=True)
    return ranking[np.sort(places)]

"""Reciprocal rank fusion."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.errors import InvalidInput
from omnigraph.lang.ir import Value

Ordinals: TypeAlias = npt.NDArray[np.int64]


def reciprocal_ranks(ranking: Ordinals, k: int) -> tuple[Ordinals, npt.NDArray[np.float64]]:
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


def check_k(value: Value) -> int:
    """Return the constant k of ``rrf``; raise `InvalidInput` unless it is an integer above 0."""
    if not isinstance(value, int) or value <= 0:
        raise InvalidInput(f"`rrf` needs an integer k above 0, got {value}")
    return value

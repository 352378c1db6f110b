"""Order the rows of a result by scores of the caller, such as those of a cross-encoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.errors import InvalidInput

Reranker: TypeAlias = Callable[[list[dict[str, Any]]], Iterable[float]]


def rerank_scores(reranker: Reranker, rows: list[dict[str, Any]]) -> npt.NDArray[np.float64]:
    """Return a score for each row. Raises `InvalidInput` unless there is one number for each.

    An error of the reranker is passed on. Without rows it is not called.
    """
    given = list(reranker(rows)) if rows else []
    if len(given) != len(rows):
        raise InvalidInput(
            f"the reranker returned {len(given):,} scores for {len(rows):,} rows",
            hint="return one number for each row, in the order of the rows",
        )
    return np.array([_score(value, place) for place, value in enumerate(given)], np.float64)


def rerank_order(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Return the rows with the highest score first. Rows with equal scores keep their order.

    >>> rerank_order(np.array([0.5, 2.0, 0.5])).tolist()
    [1, 0, 2]
    """
    return np.argsort(-scores, kind="stable")


def _score(value: Any, place: int) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise InvalidInput(f"the reranker returned {value!r} for row {place}, expected a number")
    return number

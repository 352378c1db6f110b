"""Exact distances between a query vector and the vectors of a column."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import InvalidInput
from omnigraph.lang.schema import Metric

Ordinals: TypeAlias = npt.NDArray[np.int64]
Distances: TypeAlias = npt.NDArray[np.float64]

# Numbers that are processed at a time, so that they stay in the processor's cache.
_BATCH_NUMBERS = 1 << 17


def nearest_distances(
    column: pa.Array | pa.ChunkedArray, ordinals: Ordinals, query: Sequence[float], metric: Metric = "l2"
) -> tuple[Ordinals, Distances]:
    """Return the distance of each row in `ordinals` that has a vector, in the given order.

    It is the squared L2 distance, 1 - cosine, or 1 - dot product. The cosine of a vector of length 0 is NaN.

    `column` is a fixed-size list of floats. Rows whose vector, or a number in it, is null are left out. A
    distance depends only on the vector and the query, to the last bit, and not on other rows. It is NaN if a NaN
    is involved, or infinities of the same sign. Raises `InvalidInput` if the query has another dimension than the
    column.

    >>> column = pa.array([[0, 0], None, [3, 4]], pa.list_(pa.float32(), 2))
    >>> nearest_distances(column, np.array([2, 1, 0]), [0, 1])
    (array([2, 0]), array([18.,  1.]))
    """
    dimension = column.type.list_size
    check_dimension(dimension, query)
    target = np.asarray(query, np.float64)
    requested = np.asarray(ordinals, np.int64)
    distances = np.empty(len(requested))
    kept = np.zeros(len(requested), np.bool_)
    step = max(1, _BATCH_NUMBERS // dimension)
    for chunk, positions, rows in _by_chunk(column, requested):
        for start in range(0, len(rows), step):
            vectors, whole = _take(chunk, rows[start : start + step])
            some = positions[start : start + step][whole]
            kept[some] = True
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                distances[some] = _distances(vectors, target, metric)
    return requested[kept], distances[kept]


def check_dimension(dimension: int, query: Sequence[float]) -> None:
    """Raise `InvalidInput` if a query vector has another dimension."""
    if len(query) != dimension:
        raise InvalidInput(
            f"wrong dimension of the query vector: expected {dimension}, got {len(query)}",
            details={"expected": dimension, "actual": len(query)},
        )


def _distances(
    vectors: npt.NDArray[np.floating], target: npt.NDArray[np.float64], metric: Metric
) -> npt.NDArray[np.float64]:
    # The query is in double precision, so the results are too.
    if metric == "l2":
        return sum_squares(vectors - target)
    products = _sum_rows(vectors * target)
    if metric == "cosine":
        lengths = np.sqrt(sum_squares(vectors.astype(np.float64))) * np.sqrt(sum_squares(target[np.newaxis]))
        products = products / lengths
    return 1.0 - products


def sum_squares(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the sum of squares of each row.

    >>> sum_squares(np.array([[1.0, 2.0, 3.0]]))
    array([14.])
    """
    return _sum_rows(rows * rows)


def _sum_rows(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the sum of each row, by repeatedly adding one half of the row to the other. Overwrites the numbers.

    Each addition is rounded by itself, so the result is the same on every machine and for every number of rows.
    The sums of numerical libraries are not.
    """
    width = numbers.shape[1]
    while width > 1:
        half = (width + 1) // 2
        numbers[:, : width - half] += numbers[:, half:width]
        width = half
    sums: npt.NDArray[np.float64] = numbers[:, 0]
    return sums


def _by_chunk(
    column: pa.Array | pa.ChunkedArray, ordinals: Ordinals
) -> list[tuple[pa.Array, npt.NDArray[np.intp], Ordinals]]:
    """Return each chunk that is needed, the positions in `ordinals` that refer to it, and their rows in the
    chunk.
    """
    if not isinstance(column, pa.ChunkedArray):
        return [(column, np.arange(len(ordinals)), ordinals)]
    ends = np.cumsum([len(chunk) for chunk in column.chunks], dtype=np.int64)
    of = np.searchsorted(ends, ordinals, side="right")
    order = np.argsort(of, kind="stable")
    needed, firsts = np.unique(of[order], return_index=True)
    parts = []
    for number, (first, stop) in zip(needed.tolist(), pairwise([*firsts.tolist(), len(order)]), strict=True):
        chunk, positions = column.chunk(number), order[first:stop]
        parts.append((chunk, positions, ordinals[positions] - (ends[number] - len(chunk))))
    return parts


def _take(chunk: pa.Array, rows: Ordinals) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.bool_]]:
    """Return the vectors of the rows without a null in them, and which rows these are."""
    lists = chunk.take(pa.array(rows))
    whole: npt.NDArray[np.bool_] = lists.is_valid().to_numpy(zero_copy_only=False)
    # An array returned by `take` has no offset, so its flat values belong to its lists.
    numbers = lists.values
    vectors = numbers.to_numpy(zero_copy_only=False).reshape(len(rows), -1)
    if numbers.null_count:
        whole = whole & numbers.is_valid().to_numpy(zero_copy_only=False).reshape(vectors.shape).all(axis=1)
    return vectors[whole], whole

"""The rows with the smallest distances, found without the exact distance of every row.

Distances are computed in double precision with sums in a fixed order, which costs several passes over the numbers.
A matrix product in single precision takes one, and its rounding error has a bound. A row whose distance is surely
greater than that of enough other rows is left out; the exact distances of all others decide. The result therefore
equals that of computing all distances exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.lang.schema import Metric
from omnigraph.search.vector_distance import Distances, Ordinals, nearest_distances

# Relative error of a number in single precision.
_ROUNDING: Final = 2.0**-24
# The part of the error that products too small for single precision have.
_SMALLEST: Final = 1e-30
# The squared lengths of vectors whose products neither overflow nor vanish in single precision.
_LENGTHS: Final = (1e-24, 1e30)
_NO_DISTANCES: Final[Distances] = np.zeros(0)


@dataclass
class NearestRows:
    """Collects the `count` rows that are nearest to a query, and those as near as the last of them."""

    query: Sequence[float]
    metric: Metric
    count: int
    _rows: Ordinals = field(default_factory=lambda: np.zeros(0, np.int64))
    _distances: Distances = field(default_factory=lambda: _NO_DISTANCES)
    _bound: float = math.inf

    def add(self, positions: Ordinals, vectors: pa.Array) -> None:
        """Compare rows, given their positions and vectors. Rows without a vector are left out."""
        lower = self._lower_bounds(vectors) if self.count < len(vectors) else None
        if lower is None:
            self._compare(positions, vectors, np.arange(len(vectors)))
            return
        remaining = np.ones(len(vectors), np.bool_)
        if self._bound == math.inf:
            # The rows that seem nearest bound the distances of the result.
            first = np.sort(np.argpartition(lower, self.count)[: self.count])
            self._compare(positions, vectors, first)
            remaining[first] = False
        # A NaN says nothing about a distance.
        self._compare(positions, vectors, np.flatnonzero(remaining & ~(lower > self._bound)))

    def result(self) -> tuple[Ordinals, Distances]:
        """Return the positions, ascending, and the distances."""
        order = np.argsort(self._rows)
        return self._rows[order], self._distances[order]

    def _compare(self, positions: Ordinals, vectors: pa.Array, rows: Ordinals) -> None:
        """Add rows by their exact distances."""
        if not len(rows):
            return
        found, distances = nearest_distances(vectors, rows, self.query, self.metric)
        self._rows = np.concatenate([self._rows, positions[found]])
        self._distances = np.concatenate([self._distances, distances])
        if len(self._rows) < self.count:
            return
        # NaNs are greater than all numbers, as in the order of the result.
        last = np.partition(self._distances, self.count - 1)[self.count - 1]
        if not np.isnan(last):
            kept = self._distances <= last
            self._rows, self._distances = self._rows[kept], self._distances[kept]
            self._bound = float(last)

    def _lower_bounds(self, vectors: pa.Array) -> Distances | None:
        """Return a number for each row that its distance is not below, a NaN if there is none.

        Infinity for a row without a vector. None if bounds cannot be computed.
        """
        numbers = _numbers(vectors)
        target = np.asarray(self.query, np.float64)
        length = float(target @ target)
        if numbers is None or not _LENGTHS[0] < length < _LENGTHS[1]:
            return None
        error = (2 * len(target) + 64) * _ROUNDING
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            # Threads of a matrix library cost more than they save on so few numbers.
            products = np.einsum("ij,j->i", numbers, target.astype(np.float32)).astype(np.float64)
            squares = np.einsum("ij,ij->i", numbers, numbers).astype(np.float64)
            lower: Distances
            if self.metric == "l2":
                lower = squares - 2 * products + length - 2 * error * (squares + length)
            elif self.metric == "dot":
                lower = 1 - products - error * np.sqrt(squares * length)
            else:
                lower = 1 - products / np.sqrt(squares * length) - 4 * error
                lower[(squares < _LENGTHS[0]) | (squares > _LENGTHS[1])] = np.nan
        lower -= _SMALLEST
        if vectors.null_count:
            lower[vectors.is_null().to_numpy(zero_copy_only=False)] = np.inf
        return lower


def _numbers(vectors: pa.Array) -> npt.NDArray[np.float32] | None:
    """Return vectors as the rows of a matrix; None if they have nulls or another precision."""
    values, dimension = vectors.values, vectors.type.list_size
    if values.type != pa.float32() or values.null_count:
        return None
    numbers: npt.NDArray[np.float32] = values.to_numpy().reshape(-1, dimension)
    return numbers[vectors.offset : vectors.offset + len(vectors)]

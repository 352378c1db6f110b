"""The rows of a pattern in the making: for each variable the positions of the rows it is bound to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from omnigraph.engine.memory.table_columns import Ordinals
from omnigraph.read.plan import Purpose

# A column that links the rows of an inner pattern to those of the outer one; it is never forgotten.
OUTER_ROW = "#row"
# Below this many rows forgetting duplicates costs more than keeping them.
_WORTH_MERGING = 64
# Up to this factor beyond the rows, an array over all positions is cheaper than sorting.
_DENSE = 16
_EXACT_FLOAT = 1 << 53


@dataclass(frozen=True)
class Bound:
    """Rows of bindings. A position of -1 is null; with `weights` a row stands for that many equal ones."""

    num_rows: int
    columns: Mapping[str, Ordinals] = field(default_factory=dict)
    weights: npt.NDArray[np.int64] | None = None

    def take(self, rows: Ordinals, keep: frozenset[str] | None = None) -> Bound:
        """Some of the rows, maybe repeated, and the columns that are still needed."""
        columns = {
            name: column[rows] for name, column in self.columns.items() if keep is None or name in keep
        }
        count = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        return Bound(count, columns, None if self.weights is None else self.weights[rows])

    def project(self, keep: frozenset[str]) -> Bound:
        """Only the columns that are still needed."""
        if keep.issuperset(self.columns):
            return self
        columns = {name: column for name, column in self.columns.items() if name in keep}
        return Bound(self.num_rows, columns, self.weights)

    def with_column(self, name: str, ordinals: Ordinals) -> Bound:
        """The rows with one more variable bound."""
        return Bound(self.num_rows, {**self.columns, name: ordinals}, self.weights)

    def weighted(self, factors: npt.NDArray[np.int64] | int) -> Bound:
        """The rows, each standing for so many times as many."""
        if isinstance(factors, int):
            factors = np.full(self.num_rows, factors, np.int64)
        weights = factors if self.weights is None else self.weights * factors
        return Bound(self.num_rows, self.columns, weights)


def merge_equal(bound: Bound, purpose: Purpose) -> Bound:
    """Fewer rows that serve the same purpose: equal ones once, for counts with their weights added."""
    if purpose == "rows" or bound.num_rows < _WORTH_MERGING:
        return bound
    if not bound.columns:
        weights = None if purpose == "set" else np.array([_total(bound)], np.int64)
        return Bound(1, {}, weights)
    key, sizes = _combined(list(bound.columns.values()))
    if key is None:
        return bound
    if purpose == "set":
        firsts = _distinct(key, sizes)
        return Bound(len(firsts), {name: column[firsts] for name, column in bound.columns.items()})
    return _added(bound, key, sizes)


def _combined(columns: list[Ordinals]) -> tuple[Ordinals | None, int]:
    """One number per row, equal where all columns are, and the number of values it may have."""
    key = columns[0].astype(np.int64) + 1
    size = int(key.max()) + 1
    for column in columns[1:]:
        width = int(column.max()) + 2
        if size * width >= 1 << 62:
            return None, 0
        key = key * width + (column + 1)
        size *= width
    return key, size


def _distinct(key: Ordinals, size: int) -> Ordinals:
    """The first row of each value."""
    if size <= _DENSE * len(key):
        firsts = np.full(size, -1, np.int64)
        firsts[key[::-1]] = np.arange(len(key) - 1, -1, -1)
        return firsts[firsts >= 0]
    return np.unique(key, return_index=True)[1]


def _added(bound: Bound, key: Ordinals, size: int) -> Bound:
    weights = bound.weights if bound.weights is not None else np.ones(bound.num_rows, np.int64)
    if size <= _DENSE * len(key) and _total(bound) < _EXACT_FLOAT:
        totals = np.bincount(key, weights, minlength=size).astype(np.int64)
        firsts = np.zeros(size, np.int64)
        firsts[key] = np.arange(len(key))
        values = np.flatnonzero(totals)
        rows, sums = firsts[values], totals[values]
    else:
        order = np.argsort(key, kind="stable")
        starts = np.flatnonzero(np.diff(key[order], prepend=key[order[0]] - 1))
        rows, sums = order[starts], np.add.reduceat(weights[order], starts)
    return Bound(len(rows), {name: column[rows] for name, column in bound.columns.items()}, sums)


def _total(bound: Bound) -> int:
    return bound.num_rows if bound.weights is None else int(bound.weights.sum())

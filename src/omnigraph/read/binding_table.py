"""The binding table of a pattern: for each variable, the positions of the rows it is bound to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from omnigraph.budget.query_budget import require_bytes
from omnigraph.engine.exact_counts import INT64_MAX, Counts, add_runs, multiply, total
from omnigraph.engine.memory.cached_table import Ordinals
from omnigraph.read.plan import Duplicates

# A column with the outer row of each row of an inner pattern. Every step keeps it.
OUTER_ROW = "#row"
# With fewer rows, merging duplicates costs more than keeping them.
_MIN_MERGED_ROWS = 64
# Up to this many possible keys per row, an array over all keys is cheaper than a sort.
_DENSE = 16
_BYTES_PER_POSITION = 8
# The largest integer range that a float64 holds exactly.
_EXACT_FLOAT = 1 << 53


@dataclass(frozen=True)
class BindingTable:
    """Rows of bindings. Position -1 is null. With `weights`, a row stands for that many equal rows."""

    num_rows: int
    columns: Mapping[str, Ordinals] = field(default_factory=dict)
    weights: Counts | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the columns and weights."""
        weights = 0 if self.weights is None else int(self.weights.nbytes)
        return weights + sum(int(column.nbytes) for column in self.columns.values())

    def require_bytes(self, num_rows: int, more_columns: int = 1) -> None:
        """Check the memory for a step that makes `num_rows` rows of this table, with further columns.

        Raises `ResourceLimit` before the rows are built. Row numbers and one temporary column are included.
        """
        columns = len(self.columns) + (self.weights is not None) + more_columns + 2
        require_bytes(self.nbytes + num_rows * columns * _BYTES_PER_POSITION)

    def take(self, rows: Ordinals, keep: frozenset[str] | None = None) -> BindingTable:
        """Return the given rows, which may repeat, with the columns to keep."""
        columns = {
            name: column[rows] for name, column in self.columns.items() if keep is None or name in keep
        }
        count = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        return BindingTable(count, columns, None if self.weights is None else self.weights[rows])

    def project(self, keep: frozenset[str]) -> BindingTable:
        """Return the rows with only the columns to keep."""
        if keep.issuperset(self.columns):
            return self
        columns = {name: column for name, column in self.columns.items() if name in keep}
        return BindingTable(self.num_rows, columns, self.weights)

    def with_column(self, name: str, ordinals: Ordinals) -> BindingTable:
        """Return the rows with one more bound variable."""
        return BindingTable(self.num_rows, {**self.columns, name: ordinals}, self.weights)

    def weighted(self, factors: npt.NDArray[np.int64] | int) -> BindingTable:
        """Return the rows with their weights multiplied."""
        if isinstance(factors, int):
            factors = np.full(self.num_rows, factors, np.int64)
        weights = factors if self.weights is None else multiply(self.weights, factors)
        return BindingTable(self.num_rows, self.columns, weights)


def merge_duplicates(table: BindingTable, duplicates: Duplicates) -> BindingTable:
    """Merge equal rows, unless they are kept; if they are counted, add up their weights."""
    if duplicates == "keep" or table.num_rows < _MIN_MERGED_ROWS:
        return table
    if not table.columns:
        weights = None if duplicates == "drop" else _exact_array(_total_weight(table))
        return BindingTable(1, {}, weights)
    key, size = _combined_key(list(table.columns.values()))
    if key is None:
        return table
    if duplicates == "drop":
        firsts = _first_rows(key, size)
        return BindingTable(len(firsts), {name: column[firsts] for name, column in table.columns.items()})
    return _add_weights(table, key, size)


def _combined_key(columns: list[Ordinals]) -> tuple[Ordinals | None, int]:
    """Return an integer per row that is equal where all columns are, and its upper bound; None on overflow."""
    key = columns[0].astype(np.int64) + 1
    size = int(key.max()) + 1
    for column in columns[1:]:
        width = int(column.max()) + 2
        if size * width >= 1 << 62:
            return None, 0
        key = key * width + (column + 1)
        size *= width
    return key, size


def _first_rows(key: Ordinals, size: int) -> Ordinals:
    """Return the first row of each key."""
    if size <= _DENSE * len(key):
        firsts = np.full(size, -1, np.int64)
        firsts[key[::-1]] = np.arange(len(key) - 1, -1, -1)
        return firsts[firsts >= 0]
    return np.unique(key, return_index=True)[1]


def _add_weights(table: BindingTable, key: Ordinals, size: int) -> BindingTable:
    weights = table.weights if table.weights is not None else np.ones(table.num_rows, np.int64)
    if size <= _DENSE * len(key) and _total_weight(table) < _EXACT_FLOAT:
        totals = np.bincount(key, weights, minlength=size).astype(np.int64)
        firsts = np.zeros(size, np.int64)
        firsts[key] = np.arange(len(key))
        values = np.flatnonzero(totals)
        rows, sums = firsts[values], totals[values]
    else:
        order = np.argsort(key, kind="stable")
        starts = np.flatnonzero(np.diff(key[order], prepend=key[order[0]] - 1))
        rows, sums = order[starts], add_runs(weights[order], starts)
    return BindingTable(len(rows), {name: column[rows] for name, column in table.columns.items()}, sums)


def _total_weight(table: BindingTable) -> int:
    return table.num_rows if table.weights is None else total(table.weights)


def _exact_array(count: int) -> Counts:
    return np.array([count], np.int64 if count <= INT64_MAX else object)

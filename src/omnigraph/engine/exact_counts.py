"""Exact arithmetic of row counts: 64-bit integers while they suffice, Python integers beyond.

The number of paths of a pattern grows exponentially with its length, so it can exceed 64 bits even in a small
graph. NumPy would wrap silently.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

# Counts as int64, or as Python integers in an array of objects.
Counts: TypeAlias = npt.NDArray[Any]

INT64_MAX = 2**63 - 1
# Up to this bound a sum or product that is estimated in floating point fits an int64.
_SAFE = 2.0**62


def total(counts: Counts) -> int:
    """Return the exact sum.

    >>> total(np.full(4, 2**62)), total(np.array([1, 2]))
    (18446744073709551616, 3)
    """
    return int(counts.sum()) if _sum_fits(counts) else int(counts.astype(object).sum())


def multiply(counts: Counts, factors: Counts) -> Counts:
    """Return the exact products, element by element.

    >>> multiply(np.array([3, 2**40]), np.array([2, 2**40])).tolist()
    [6, 1208925819614629174706176]
    """
    if counts.dtype == object or factors.dtype == object or _bound(counts) * _bound(factors) > _SAFE:
        exact: Counts = counts.astype(object) * factors.astype(object)
        return exact
    return counts * factors


def add_runs(counts: Counts, starts: npt.NDArray[np.int64]) -> Counts:
    """Return the exact sum of every run of consecutive counts. `starts` are the first positions of the runs."""
    return np.add.reduceat(_summable(counts), starts)


def add_groups(counts: Counts, groups: npt.NDArray[Any], number: int) -> Counts:
    """Return the exact sum of every group. ``groups[i]`` is the group of ``counts[i]``, below `number`.

    >>> add_groups(np.array([2**62, 2**62, 7]), np.array([1, 1, 0]), 2).tolist()
    [7, 9223372036854775808]
    """
    summable = _summable(counts)
    sums = np.zeros(number, summable.dtype)
    np.add.at(sums, groups, summable)
    return sums


def to_floats(counts: Counts) -> npt.NDArray[np.float64]:
    """Return the nearest floats. Raises `OverflowError` for a count beyond their range."""
    if counts.dtype != object:
        return counts.astype(np.float64, copy=False)
    return np.array([float(count) for count in counts.tolist()], np.float64)


def _summable(counts: Counts) -> Counts:
    """Return the counts in a type that holds any of their sums."""
    return counts if _sum_fits(counts) else counts.astype(object)


def _sum_fits(counts: Counts) -> bool:
    return counts.dtype != object and float(counts.sum(dtype=np.float64)) <= _SAFE


def _bound(counts: Counts) -> float:
    return float(counts.max(initial=0))

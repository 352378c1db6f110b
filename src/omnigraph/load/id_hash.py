"""Hashes of ids, to divide the rows of a load into parts by id."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def hash_ids(ids: pa.Array) -> np.ndarray[Any, Any]:
    """Return a 64-bit hash of each text. Equal texts have equal hashes in every process.

    >>> hash_ids(pa.array(["a", "b", "a"])).tolist().count(hash_ids(pa.array(["a"]))[0])
    2
    """
    array = ids.cast(pa.large_string())
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    lengths = np.diff(offsets)
    hashes: np.ndarray[Any, Any]
    with np.errstate(over="ignore"):
        weights = np.multiply.accumulate(np.full(int(lengths.max(initial=0)) + 1, _MULTIPLIER))
        places = np.arange(len(data)) - np.repeat(offsets[:-1], lengths)
        sums = np.concatenate([[np.uint64(0)], np.cumsum((data.astype(np.uint64) + 1) * weights[places])])
        hashes = sums[offsets[1:]] - sums[offsets[:-1]] + lengths.astype(np.uint64)
        hashes ^= hashes >> np.uint64(32)
        hashes *= _MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
    return hashes


def part_numbers(ids: pa.Array, parts: int) -> np.ndarray[Any, Any]:
    """Return the part of each id, from 0 to `parts` - 1."""
    upper = hash_ids(ids) >> np.uint64(32)
    numbers: np.ndarray[Any, Any] = (upper * np.uint64(parts)) >> np.uint64(32)
    return numbers

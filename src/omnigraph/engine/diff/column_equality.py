"""Compare two columns row by row."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.arrow_arrays import single_array
from omnigraph.errors import InvalidInput

Bools: TypeAlias = npt.NDArray[np.bool_]

_BITS = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def differing(left: pa.Array | pa.ChunkedArray, right: pa.Array | pa.ChunkedArray) -> Bools:
    """Return where two columns of one type and length hold different values.

    Null equals null, but neither an empty text nor an empty list. A NaN equals every NaN; other floats are equal
    if their bits are, so the two zeros differ. Lists are equal if their elements are, in order. Structs are equal
    if their fields are; the fields of a null struct are null.

    >>> differing(pa.array([1.0, None, None, float("nan"), 0.0]), pa.array([1.0, None, 0.0, float("nan"), -0.0]))
    array([False, False,  True, False,  True])
    >>> differing(pa.array([["a"], []]), pa.array([["a", "b"], None]))
    array([ True,  True])
    """
    if left.type != right.type or len(left) != len(right):
        raise InvalidInput(
            f"cannot compare {len(left)} values of {left.type} with {len(right)} values of {right.type}"
        )
    return _differing(single_array(left), single_array(right))


def _differing(left: pa.Array, right: pa.Array) -> Bools:
    kind = left.type
    if pa.types.is_struct(kind):
        found = np.zeros(len(left), bool)
        for one, other in zip(left.flatten(), right.flatten(), strict=True):
            found |= _differing(one, other)
        return found
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(left, right)
    one_null = _bools(pc.not_equal(left.is_null(), right.is_null()))
    return one_null | _values(left, right)


def _values(left: pa.Array, right: pa.Array) -> Bools:
    """Return where both values are not null and differ."""
    bits = _BITS.get(left.type)
    if bits is None:
        return _bools(pc.not_equal(left, right))
    both_nan = _bools(pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return _bools(pc.not_equal(left.view(bits), right.view(bits))) & ~both_nan


def _lists(left: pa.Array, right: pa.Array) -> Bools:
    lengths, others = _lengths(left), _lengths(right)
    found: Bools = lengths != others
    # Lists of different lengths are skipped, so that the elements of the others are aligned.
    kept = ~found & (lengths > 0)
    chosen = pa.array(kept)
    elements = _differing(left.filter(chosen).flatten(), right.filter(chosen).flatten())
    ends = np.cumsum(lengths[kept])
    counts = np.concatenate([[0], np.cumsum(elements)])
    found[kept] = counts[ends] > counts[ends - lengths[kept]]
    return found


def _lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    """Return the lengths of lists, -1 for null."""
    found: npt.NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists).cast(pa.int64()), -1).to_numpy()
    return found


def _bools(found: pa.Array) -> Bools:
    flags: Bools = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return flags

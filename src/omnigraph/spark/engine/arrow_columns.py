"""Convert Arrow columns from Spark to the types of stored tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.catalog.columns import arrow_type
from omnigraph.lang.types import PropType, Scalar


def as_stored(column: pa.Array | pa.ChunkedArray, kind: PropType) -> pa.Array | pa.ChunkedArray:
    """Convert a column to the Arrow type of a property.

    >>> as_stored(pa.array([None, [1.0, 2.0]]), PropType(Scalar.VECTOR, dim=2)).type
    FixedSizeListType(fixed_size_list<item: float>[2])
    """
    if kind.scalar is not Scalar.VECTOR:
        return column.cast(arrow_type(kind))
    return _vectors(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column, kind)


def _vectors(lists: pa.Array, kind: PropType) -> pa.Array:
    # The cast of Arrow 26 crashes for lists that are all null and have no value buffer.
    known = lists.is_valid().to_numpy(zero_copy_only=False)
    numbers = np.zeros((len(lists), kind.dim or 0), np.float32)
    if known.any():
        numbers[known] = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, kind.dim or 0)
    missing = None if known.all() else pa.array(~known)
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), type=arrow_type(kind), mask=missing)

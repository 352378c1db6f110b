"""Arrow columns as contiguous arrays."""

from __future__ import annotations

import pyarrow as pa


def single_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. A column that is one array or one chunk is not copied."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

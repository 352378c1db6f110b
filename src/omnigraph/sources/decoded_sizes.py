"""Bounded memory for columnar files: values that a file stores once may be repeated in millions of rows.

A dictionary or a run-length encoding makes a file much smaller than its rows. Batches are therefore cut by the size
of their decoded values, which is known before they are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnigraph.budget.query_budget import count_decoded, require_bytes

BATCH_BYTES: Final = 128 << 20
"""Decoded size of a batch, unless a single row is larger."""
# Encodings whose values may be longer than their data.
_SHARED_PREFIXES: Final = frozenset({"DELTA_BYTE_ARRAY"})
_DICTIONARIES: Final = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
_MIN_NESTED_ROWS: Final = 256


def parquet_batches(
    stream: BinaryIO, file: pq.ParquetFile, groups: Iterable[int], max_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of row groups, each of at most `max_rows` rows and about `BATCH_BYTES`."""
    columns = (file.schema.column(number) for number in range(len(file.schema)))
    texts = [item.path for item in columns if item.physical_type == "BYTE_ARRAY" and "." not in item.path]
    encoded = pq.ParquetFile(stream, metadata=file.metadata, read_dictionary=texts)
    sized = ((_batch_rows(encoded, group, max_rows), group) for group in groups)
    for rows, members in groupby(sized, key=lambda item: item[0]):
        yield from file.iter_batches(rows, row_groups=[group for _, group in members])


def _batch_rows(file: pq.ParquetFile, group: int, max_rows: int) -> int:
    """Return the number of rows of a group that are decoded at a time."""
    metadata = file.metadata.row_group(group)
    rows = min(max_rows, metadata.num_rows)
    found = max_rows
    for number in range(metadata.num_columns):
        column = metadata.column(number)
        size = column.total_uncompressed_size
        # No value is longer than the data of its column.
        if column.physical_type != "BYTE_ARRAY" or rows * size <= BATCH_BYTES:
            continue
        encodings = set(column.encodings)
        if encodings & _SHARED_PREFIXES:
            found = min(found, BATCH_BYTES // size)
        elif "." in column.path_in_schema:
            per_row = max(1.0, column.num_values / max(1, metadata.num_rows))
            if size < 16 * column.num_values:
                found = min(found, max(_MIN_NESTED_ROWS, int(BATCH_BYTES / (size * per_row))))
        elif encodings & _DICTIONARIES:
            longest = _longest_value(file, group, column.path_in_schema)
            found = min(found, BATCH_BYTES // max(1, longest))
    return max(1, found)


def _longest_value(encoded: pq.ParquetFile, group: int, name: str) -> int:
    """Return the length of the longest value in the dictionary of a column, by reading one row."""
    first = next(encoded.iter_batches(1, row_groups=[group], columns=[name]), None)
    if first is None:
        return 0
    column = first.column(0)
    values = column.dictionary if isinstance(column, pa.DictionaryArray) else column
    lengths = pc.max(pc.binary_length(values)).as_py()
    return int(lengths or 0)


def bounded_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches in slices whose decoded size is about `BATCH_BYTES`, and count the decoded bytes.

    Raises `ResourceLimit` if the work has a limit of decoded bytes or of memory, and exceeds it.
    """
    for batch in batches:
        sizes = _row_bytes(batch)
        if sizes is None:
            require_bytes(batch.nbytes)
            count_decoded(batch.nbytes)
            yield batch
            continue
        ends = np.cumsum(sizes)
        start = done = 0
        while start < batch.num_rows:
            stop = max(start + 1, int(np.searchsorted(ends, done + BATCH_BYTES, side="right")))
            size = int(ends[stop - 1]) - done
            require_bytes(size)
            count_decoded(size)
            yield batch.slice(start, stop - start)
            start, done = stop, int(ends[stop - 1])


def _row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
    """Return the decoded size of each row; None if no column is dictionary-encoded text."""
    encoded = [column for column in batch.columns if _is_encoded_text(column)]
    if not encoded or not batch.num_rows:
        return None
    plain = sum(column.nbytes for column in batch.columns if not _is_encoded_text(column))
    sizes = np.full(batch.num_rows, plain // batch.num_rows, np.int64)
    for column in encoded:
        lengths = pc.fill_null(pc.binary_length(column.dictionary), 0)
        sizes += pc.fill_null(lengths.take(column.indices), 0).to_numpy().astype(np.int64)
    return sizes


def _is_encoded_text(column: pa.Array) -> bool:
    if not isinstance(column, pa.DictionaryArray):
        return False
    kind = column.type.value_type
    return any(
        check(kind)
        for check in (
            pa.types.is_string,
            pa.types.is_binary,
            pa.types.is_large_string,
            pa.types.is_large_binary,
        )
    )

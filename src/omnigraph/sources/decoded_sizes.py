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

from omnigraph.budget.query_budget import check_decoded, count_decoded, require_bytes
from omnigraph.sources.arrow_messages import file_sizes, next_size
from omnigraph.sources.row_batch import BATCH_ROWS

BATCH_BYTES: Final = 128 << 20
"""Decoded size of a batch, unless a single row is larger."""
# Encodings whose values may be longer than their data.
_SHARED_PREFIXES: Final = frozenset({"DELTA_BYTE_ARRAY"})
_DICTIONARIES: Final = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})
_MIN_NESTED_ROWS: Final = 256
# As fast as whole stripes. A value of 1 MB that is repeated in each row needs 256 MB.
_ORC_ROWS: Final = 256
# Joining batches takes their size twice.
_ORC_BYTES: Final = BATCH_BYTES // 4


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


def orc_batches(stream: BinaryIO, max_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an ORC file, each of at most about `max_rows` rows and `BATCH_BYTES`.

    A stripe can have any number of rows of the same value. It is decoded in small batches, which are joined.
    """
    # The reader of a stripe in `pyarrow.orc` decodes it in one piece.
    import pyarrow.dataset as ds

    fragment = ds.OrcFileFormat().make_fragment(stream)
    scanner = fragment.scanner(
        batch_size=_ORC_ROWS, use_threads=False, batch_readahead=1, fragment_readahead=1
    )
    joined: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in scanner.to_reader():
        joined.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        require_bytes(size)
        if rows >= max_rows or size >= _ORC_BYTES:
            yield from _join(joined)
            joined, rows, size = [], 0, 0
    yield from _join(joined)


def _join(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = (
        pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []
    )
    return found


def arrow_file_batches(stream: BinaryIO, file: pa.ipc.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow file. Raises `ResourceLimit` before a batch is decompressed."""
    dictionaries, sizes = file_sizes(stream)
    for number, decoded in enumerate(sizes):
        _require(decoded.size + dictionaries.size)
        yield file.get_batch(number)


def arrow_stream_batches(
    stream: BinaryIO, reader: pa.ipc.RecordBatchStreamReader
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow stream. Raises `ResourceLimit` before a batch is decompressed."""
    while (decoded := next_size(stream)) is not None:
        _require(decoded.size)
        yield reader.read_next_batch()


def _require(size: int) -> None:
    """Check the memory of a batch that is about to be decoded, and that it fits into what may be decoded."""
    require_bytes(size)
    check_decoded(size)


def bounded_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches in slices whose decoded size is about `BATCH_BYTES`, and count the decoded bytes.

    Raises `ResourceLimit` if the work has a limit of decoded bytes or of memory, and exceeds it.
    """
    for batch in batches:
        sizes = _row_bytes(batch)
        if sizes is None:
            require_bytes(batch.nbytes)
            # Rows without any data, of the type null, count as a byte each.
            count_decoded(max(batch.nbytes, batch.num_rows))
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch if batch.num_rows <= BATCH_ROWS else batch.slice(start, BATCH_ROWS)
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

"""Encode Arrow tables and batches as IPC streams, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from omnigraph.errors import InvalidInput
from omnigraph.sources.row_batch import BATCH_ROWS


def encode_table(table: pa.Table | pa.RecordBatchReader) -> Iterator[bytes]:
    """Yield the chunks of one IPC stream.

    >>> chunks = list(encode_table(pa.table({"n": [1, 2]})))
    >>> pa.ipc.open_stream(b"".join(chunks)).read_all().num_rows
    2
    """
    batches = table.to_batches(max_chunksize=BATCH_ROWS) if isinstance(table, pa.Table) else table
    with _StreamEncoder(table.schema) as encoder:
        for batch in batches:
            yield encoder.add(batch)
        yield encoder.end()


def encode_batches(batches: Iterable[Any]) -> Iterator[bytes]:
    """Yield the chunks of consecutive IPC streams. A new stream begins where the schema changes."""
    encoder: _StreamEncoder | None = None
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise InvalidInput(f"expected record batches, got {type(batch).__name__}")
        if encoder is None or not encoder.schema.equals(batch.schema, check_metadata=True):
            if encoder is not None:
                yield encoder.end()
            encoder = _StreamEncoder(batch.schema)
        yield encoder.add(batch)
    if encoder is not None:
        yield encoder.end()


class _StreamEncoder:
    """Writes an IPC stream and returns the new bytes after each batch."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._buffer = _Buffer()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._buffer, "w"), schema)

    def __enter__(self) -> _StreamEncoder:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def add(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._buffer.take()

    def end(self) -> bytes:
        self._writer.close()
        return self._buffer.take()


class _Buffer:
    """The file that the Arrow writer writes to."""

    closed = False

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: Any) -> int:
        self._data += data
        return len(data)

    def flush(self) -> None:
        """Do nothing: the data is in memory."""

    def take(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data

"""Readers of Parquet, ORC, Arrow and Avro files, whole or a range of their row groups or stripes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq

from omnigraph.errors import InvalidInput
from omnigraph.extras import requires
from omnigraph.sources.arrow_errors import translate_arrow_errors, validated_batches
from omnigraph.sources.decoded_sizes import (
    arrow_file_batches,
    arrow_stream_batches,
    bounded_batches,
    orc_batches,
    parquet_batches,
)
from omnigraph.sources.row_batch import BATCH_ROWS, InputBatch
from omnigraph.sources.table_reader import TableInput
from omnigraph.sources.tabular import read_dict_rows, read_table


@dataclass(frozen=True, slots=True)
class PieceRange:
    """Row groups or stripes of a file from `start` up to `stop`, and the number of rows before them."""

    start: int
    stop: int
    first_row: int


def read_parquet(
    stream: BinaryIO, file: TableInput, pieces: PieceRange | None = None
) -> Iterator[InputBatch]:
    """Read the rows of a Parquet file, or of a range of its row groups, one batch in memory at a time."""
    with translate_arrow_errors(file.source):
        opened = pq.ParquetFile(stream)
    start, stop = (0, opened.num_row_groups) if pieces is None else (pieces.start, pieces.stop)
    with opened:
        batches = parquet_batches(stream, opened, range(start, stop), BATCH_ROWS)
        yield from _read(file, opened.schema_arrow, batches)


def read_orc(stream: BinaryIO, file: TableInput, pieces: PieceRange | None = None) -> Iterator[InputBatch]:
    """Read the rows of an ORC file in bounded batches, or of a range of its stripes, one stripe at a time."""
    with translate_arrow_errors(file.source):
        opened = po.ORCFile(stream)
        schema = opened.schema
    if pieces is None:
        yield from _read(file, schema, orc_batches(stream, BATCH_ROWS))
    else:
        stripes = range(pieces.start, pieces.stop)
        yield from _read(file, schema, (opened.read_stripe(number) for number in stripes))


def read_arrow(stream: BinaryIO, file: TableInput) -> Iterator[InputBatch]:
    """Read the rows of an Arrow file, a Feather file or an Arrow stream."""
    with translate_arrow_errors(file.source):
        is_file = stream.read(6) == b"ARROW1"
        stream.seek(0)
        opened = pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream)
    with opened:
        batches = arrow_file_batches(stream, opened) if is_file else arrow_stream_batches(stream, opened)
        yield from _read(file, opened.schema, batches)


def _read(file: TableInput, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[InputBatch]:
    with translate_arrow_errors(file.source):
        # Arrow decodes column names lazily, so that invalid UTF-8 in them is detected here.
        assert len(schema.names) == len(schema)
    validated = bounded_batches(validated_batches(batches, file.source))
    reader = pa.RecordBatchReader.from_batches(schema, validated)
    return read_table(
        file.key, reader, file.catalog, source=file.source, on_reject=file.on_reject, mapping=file.mapping
    )


def read_avro(stream: BinaryIO, file: TableInput) -> Iterator[InputBatch]:
    """Read the rows of an Avro file, which requires the extra ``avro``."""
    return read_dict_rows(
        file.key,
        read_avro_rows(stream, file.source),
        file.catalog,
        source=file.source,
        on_reject=file.on_reject,
        mapping=file.mapping,
        is_typed=True,
    )


def read_avro_rows(stream: BinaryIO, name: str | None) -> Iterator[Any]:
    """Yield the rows of an Avro file as dicts, which requires the extra ``avro``."""
    with requires("avro", f"`{name}` is Avro, which"):
        import fastavro
    try:
        rows = iter(fastavro.reader(stream))
        while part := list(islice(rows, 1_024)):
            yield from part
    # The library has no exception for a damaged file and raises whatever error it encounters.
    except (ValueError, EOFError, IndexError, KeyError, TypeError, AttributeError, ImportError) as error:
        raise InvalidInput(f"cannot read `{name}`: {error}", details={"source": name}) from error


# --- splitting --------------------------------------------------------------------------------------------


def parquet_pieces(stream: BinaryIO, name: str, max_rows: int) -> list[PieceRange]:
    """Return ranges of row groups of a Parquet file, each of about `max_rows` rows."""
    with translate_arrow_errors(name):
        metadata = pq.ParquetFile(stream).metadata
    return _group(metadata.num_row_groups, lambda index: metadata.row_group(index).num_rows, max_rows)


def orc_pieces(stream: BinaryIO, name: str, max_rows: int) -> list[PieceRange]:
    """Return ranges of stripes of an ORC file, each of about `max_rows` rows."""
    with translate_arrow_errors(name):
        opened = po.ORCFile(stream)
        if opened.nrows <= max_rows or not opened.schema.names:
            return [PieceRange(0, opened.nstripes, 0)] if opened.nstripes else []
        # Arrow does not expose the row counts of stripes, so that the smallest column is read for them.
        narrow = min(opened.schema, key=_width).name
        return _group(
            opened.nstripes, lambda index: opened.read_stripe(index, columns=[narrow]).num_rows, max_rows
        )


def _width(field: pa.Field) -> int:
    try:
        return int(field.type.bit_width)
    except ValueError:
        return 1 << 20


def _group(count: int, rows_of: Callable[[int], int], max_rows: int) -> list[PieceRange]:
    ranges: list[PieceRange] = []
    start = rows = before = 0
    for number in range(count):
        rows += rows_of(number)
        if rows >= max_rows or number + 1 == count:
            ranges.append(PieceRange(start, number + 1, before))
            start, before, rows = number + 1, before + rows, 0
    return ranges

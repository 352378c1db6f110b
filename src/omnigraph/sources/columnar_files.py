"""Files of typed columns or rows: Parquet, ORC, Arrow and Avro, whole or a range of their pieces."""

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
from omnigraph.sources.graph_records import BATCH_ROWS
from omnigraph.sources.row_batch import InputBatch
from omnigraph.sources.tabular import (
    TableInput,
    read_dict_rows,
    read_table,
    translate_arrow_errors,
    validated_batches,
)


@dataclass(frozen=True, slots=True)
class PieceRange:
    """Pieces of a file, such as row groups, from `start` up to `stop`, and how many rows come before them."""

    start: int
    stop: int
    first_row: int


def read_parquet(
    stream: BinaryIO, file: TableInput, pieces: PieceRange | None = None
) -> Iterator[InputBatch]:
    """The rows of a Parquet file, or of some of its row groups; one batch is held at a time."""
    with translate_arrow_errors(file.source):
        opened = pq.ParquetFile(stream)
    groups = None if pieces is None else list(range(pieces.start, pieces.stop))
    with opened:
        yield from _rows(file, opened.schema_arrow, opened.iter_batches(BATCH_ROWS, row_groups=groups))


def read_orc(stream: BinaryIO, file: TableInput, pieces: PieceRange | None = None) -> Iterator[InputBatch]:
    """The rows of an ORC file, or of some of its stripes; one stripe is held at a time."""
    with translate_arrow_errors(file.source):
        opened = po.ORCFile(stream)
        schema = opened.schema
    stripes = range(opened.nstripes) if pieces is None else range(pieces.start, pieces.stop)
    yield from _rows(file, schema, (opened.read_stripe(number) for number in stripes))


def read_arrow(stream: BinaryIO, file: TableInput) -> Iterator[InputBatch]:
    """The rows of an Arrow file, which Feather files are too, or of an Arrow stream."""
    with translate_arrow_errors(file.source):
        is_file = stream.read(6) == b"ARROW1"
        stream.seek(0)
        opened = pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream)
    with opened:
        batches = map(opened.get_batch, range(opened.num_record_batches)) if is_file else iter(opened)
        yield from _rows(file, opened.schema, batches)


def _rows(file: TableInput, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[InputBatch]:
    with translate_arrow_errors(file.source):
        # What is no text is found out when it is asked for.
        assert len(schema.names) == len(schema)
    reader = pa.RecordBatchReader.from_batches(schema, validated_batches(batches, file.source))
    return read_table(
        file.key, reader, file.catalog, source=file.source, on_reject=file.on_reject, mapping=file.mapping
    )


def read_avro(stream: BinaryIO, file: TableInput) -> Iterator[InputBatch]:
    """The rows of an Avro file, which needs the extra ``avro``."""
    rows = _avro_rows(stream, file.source)
    return read_dict_rows(
        file.key,
        rows,
        file.catalog,
        source=file.source,
        on_reject=file.on_reject,
        mapping=file.mapping,
        is_typed=True,
    )


def _avro_rows(stream: BinaryIO, name: str | None) -> Iterator[Any]:
    with requires("avro", f"`{name}` is Avro, which"):
        import fastavro
    try:
        rows = iter(fastavro.reader(stream))
        while found := list(islice(rows, 1_024)):
            yield from found
    # The library has no error of its own for a damaged file: whatever reading it hits upon is raised.
    except (ValueError, EOFError, IndexError, KeyError, TypeError, AttributeError, ImportError) as error:
        raise InvalidInput(f"`{name}` cannot be read: {error}", details={"source": name}) from error


# --- cutting ----------------------------------------------------------------------------------------------


def parquet_pieces(stream: BinaryIO, name: str, most_rows: int) -> list[PieceRange]:
    """The row groups of a Parquet file, together up to about so many rows."""
    with translate_arrow_errors(name):
        metadata = pq.ParquetFile(stream).metadata
    return _together(metadata.num_row_groups, lambda at: metadata.row_group(at).num_rows, most_rows)


def orc_pieces(stream: BinaryIO, name: str, most_rows: int) -> list[PieceRange]:
    """The stripes of an ORC file, together up to about so many rows."""
    with translate_arrow_errors(name):
        opened = po.ORCFile(stream)
        if opened.nrows <= most_rows or not opened.schema.names:
            return [PieceRange(0, opened.nstripes, 0)] if opened.nstripes else []
        # The footer has the rows of a stripe, but Arrow does not show them: the smallest column tells.
        narrow = min(opened.schema, key=_width).name
        return _together(
            opened.nstripes, lambda at: opened.read_stripe(at, columns=[narrow]).num_rows, most_rows
        )


def _width(field: pa.Field) -> int:
    try:
        return int(field.type.bit_width)
    except ValueError:
        return 1 << 20


def _together(count: int, rows_of: Callable[[int], int], most_rows: int) -> list[PieceRange]:
    found: list[PieceRange] = []
    start = rows = before = 0
    for number in range(count):
        rows += rows_of(number)
        if rows >= most_rows or number + 1 == count:
            found.append(PieceRange(start, number + 1, before))
            start, before, rows = number + 1, before + rows, 0
    return found

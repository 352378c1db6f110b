"""Rows of files as Arrow batches, before they belong to a type: the input of SQL views.

CSV columns are text. The columns of other formats have the types of the file. A file that has a column which the
schema lacks is an error, because the column would be lost silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.orc as po
import pyarrow.parquet as pq

from omnigraph.errors import InvalidInput
from omnigraph.sources.arrow_errors import translate_arrow_errors, validated_batches
from omnigraph.sources.csv_files import read_header, read_text_batches
from omnigraph.sources.decoded_sizes import bounded_batches, parquet_batches
from omnigraph.sources.input_files import InputFile, list_files, open_file
from omnigraph.sources.json.line_blocks import line_blocks, line_too_long
from omnigraph.sources.mapping.type_mapping import Format
from omnigraph.sources.row_batch import BATCH_ROWS
from omnigraph.sources.splits import ChunkStream, Split, split_file, split_lines, split_range
from omnigraph.store.storage_options import StorageOptions

_BLOCK_BYTES = 4 << 20
_DECLARE = "declare the columns of the source with `columns`"


def read_file_schema(file: InputFile, form: Format, csv_null: str = "") -> pa.Schema:
    """Return the columns of a file: the header of CSV, the schema of columnar files, or what the first lines of
    JSON have.
    """
    with open_file(file) as stream, translate_arrow_errors(file.name):
        match form:
            case "csv":
                first = next(read_text_batches(stream, file.name, csv_null), None)
                return pa.schema([]) if first is None else first.schema
            case "parquet":
                return pq.ParquetFile(stream).schema_arrow
            case "orc":
                return po.ORCFile(stream).schema
            case "arrow":
                return _open_arrow(stream).schema
            case "json":
                block = next(line_blocks(stream, _BLOCK_BYTES), None)
                return pa.schema([]) if block is None else _parse_json(block.data, None, file.name).schema
    raise InvalidInput(f"`{file.name}`: files of format {form} cannot be read here")


def split_table_file(file: InputFile, form: Format, split_bytes: int) -> list[Split]:
    """Return the splits of a file that tasks read independently."""
    splits = split_file(file, form, split_bytes)
    if any(item.form == "json" for item in splits):
        raise InvalidInput(f"`{file.name}` is a JSON array", hint="write one JSON object per line")
    return splits


def whole_file(file: InputFile, form: Format) -> Split:
    """Return a whole file as one split. Nothing is opened."""
    address = file.name if "://" in file.name else str(Path(file.name).absolute())
    return Split(0, "records" if form == "json" else form, file.name, address)


def read_split_table(
    split: Split, schema: pa.Schema, options: StorageOptions, csv_null: str = ""
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a split with the columns and types of a schema. A column that the file lacks is null."""
    (file,) = list_files(split.address, ("",), options)
    with open_file(file) as stream:
        for batch in _batches(stream, split, schema, csv_null):
            yield _conform(batch, schema, split.file)


def _batches(stream: BinaryIO, split: Split, schema: pa.Schema, csv_null: str) -> Iterator[pa.RecordBatch]:
    match split.form:
        case "csv":
            rows = stream
            if split.stop is not None:
                header = read_header(stream)
                assert header is not None, "a file without a header line is not split"
                rows = cast(BinaryIO, ChunkStream(chain([header], split_range(stream, split))))
            return read_text_batches(rows, split.file, csv_null)
        case "records":
            return _json_batches(stream, split, schema)
        case "parquet":
            with translate_arrow_errors(split.file):
                opened = pq.ParquetFile(stream)
            groups = range(split.start, opened.num_row_groups if split.stop is None else split.stop)
            batches = parquet_batches(stream, opened, groups, BATCH_ROWS)
        case "orc":
            with translate_arrow_errors(split.file):
                stripes = po.ORCFile(stream)
            numbers = range(split.start, stripes.nstripes if split.stop is None else split.stop)
            batches = (stripes.read_stripe(number) for number in numbers)
        case _:
            with translate_arrow_errors(split.file):
                batches = _arrow_batches(_open_arrow(stream))
    return bounded_batches(validated_batches(batches, split.file))


def _open_arrow(stream: BinaryIO) -> pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader:
    is_file = stream.read(6) == b"ARROW1"
    stream.seek(0)
    return pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream)


def _arrow_batches(
    opened: pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader,
) -> Iterator[pa.RecordBatch]:
    if isinstance(opened, pa.ipc.RecordBatchFileReader):
        return map(opened.get_batch, range(opened.num_record_batches))
    return iter(opened)


def _json_batches(stream: BinaryIO, split: Split, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for block in line_blocks(split_lines(stream, split), _BLOCK_BYTES):
        if block.too_long:
            raise line_too_long()
        if block.data.strip():
            yield from _parse_json(block.data, schema, split.file).to_batches(max_chunksize=BATCH_ROWS)


def _parse_json(data: bytes, schema: pa.Schema | None, name: str) -> pa.Table:
    options = None
    if schema is not None:
        options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    try:
        return pj.read_json(
            pa.BufferReader(data), pj.ReadOptions(use_threads=False, block_size=len(data) + 1), options
        )
    except pa.ArrowException as error:
        raise InvalidInput(f"cannot read `{name}`: {error}", hint=_DECLARE) from error


def _conform(batch: pa.RecordBatch, schema: pa.Schema, name: str) -> pa.RecordBatch:
    """Return a batch with the columns of a schema."""
    unknown = [item for item in batch.schema.names if item not in schema.names]
    if unknown:
        raise InvalidInput(
            f"`{name}` has the column '{unknown[0]}', which the first file of the source lacks", hint=_DECLARE
        )
    arrays = []
    for item in schema:
        if item.name not in batch.schema.names:
            arrays.append(pa.nulls(batch.num_rows, item.type))
            continue
        try:
            arrays.append(pc.cast(batch.column(item.name), item.type))
        except pa.ArrowException as error:
            raise InvalidInput(
                f"`{name}`, column '{item.name}': {error}", hint=f"{_DECLARE}, or read it as a string"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

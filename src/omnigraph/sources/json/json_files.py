"""Readers of JSON files with rows of one type: JSON lines, or one array of objects, with a field per property.

The row-by-row conversion defines the result. Arrow's parser reads whole blocks of lines where its result is the
same; blocks that Arrow rejects, and blocks with errors, are read row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np

from omnigraph.errors import InvalidInput
from omnigraph.sources.input_files import read_chunks
from omnigraph.sources.input_rows import ArrowRows, DictRows
from omnigraph.sources.json.json_array import parse_json_array
from omnigraph.sources.json.json_lines_arrow import ArrowLineParser
from omnigraph.sources.json.line_blocks import LineBlock, line_blocks, line_too_long, without_bom
from omnigraph.sources.json.ndjson import decode_line
from omnigraph.sources.row_batch import BATCH_ROWS, InputBatch
from omnigraph.sources.table_reader import RowError, TableInput, TableReader
from omnigraph.sources.table_values import RowErrors, convert_json_column
from omnigraph.sources.tabular import as_objects, invalid_rows, read_dict_rows

_BLOCK_BYTES = 16 * 1024 * 1024
_BLANK = b" \t\r"


def read_json_lines(
    stream: BinaryIO | Iterable[bytes], file: TableInput, *, block_bytes: int = _BLOCK_BYTES
) -> Iterator[InputBatch]:
    """Read the rows of a stream with one JSON object per line; errors count lines."""
    reader = TableReader.of(file, "line", convert_json_column)
    parser = ArrowLineParser(reader.mapper)
    for block in line_blocks(stream, max(1, block_bytes)):
        if block.too_long:
            reader.rejects.reject(block.first, line_too_long())
            continue
        yield from _read_block(reader, parser, block)


def _read_block(reader: TableReader, parser: ArrowLineParser, block: LineBlock) -> Iterator[InputBatch]:
    parsed = parser.parse(block)
    if parsed is not None:
        table, numbers = parsed
        parts = []
        for start in range(0, table.num_rows, BATCH_ROWS):
            rows = ArrowRows(table.slice(start, BATCH_ROWS))
            converted = reader.convert(rows)
            if converted.errors:
                break
            parts.append((converted, rows, numbers[start : start + BATCH_ROWS]))
        else:
            parser.record_success()
            for part in parts:
                yield from reader.emit(*part)
            return
        parser.record_failure()
    lines = [
        (place, line)
        for place, line in enumerate(block.data.split(b"\n"), block.first)
        if line and line.strip(_BLANK)
    ]
    for start in range(0, len(lines), BATCH_ROWS):
        yield from _read_lines(reader, lines[start : start + BATCH_ROWS])


def _read_lines(reader: TableReader, lines: list[tuple[int, bytes]]) -> Iterator[InputBatch]:
    """Read lines row by row; this defines the rows and the errors."""
    places: list[int] = []
    rows: list[Any] = []
    records: list[str] = []
    syntax_errors: list[RowError] = []
    for place, line in lines:
        record = line.decode("utf-8", "backslashreplace").removesuffix("\r")
        try:
            row = decode_line(line, place)
        except InvalidInput as error:
            syntax_errors.append(RowError(place, error, record))
            continue
        places.append(place)
        rows.append(row)
        records.append(record)
    invalid = _with_record_hints(invalid_rows(reader.mapper, rows), rows)
    dict_rows = DictRows(as_objects(rows), records=records)
    yield from reader.read(dict_rows, np.array(places, np.int64), invalid, syntax_errors)


def _with_record_hints(errors: RowErrors, rows: list[Any]) -> RowErrors:
    """Replace the hints of rows that look like graph records."""

    def is_record(row: Any) -> bool:
        return isinstance(row, dict) and "data" in row and not row.keys().isdisjoint(("type", "edge"))

    hint = "the row is a graph record; load graph records without a type"
    return {
        position: InvalidInput(error.reason, hint=hint) if is_record(rows[position]) else error
        for position, error in errors.items()
    }


def read_json_array(stream: BinaryIO, file: TableInput) -> Iterator[InputBatch]:
    """Read the rows of one JSON array of objects, one element in memory at a time; errors count its elements."""
    rows = parse_json_array(without_bom(read_chunks(stream, file.source)), file.source)
    return read_dict_rows(
        file.key, rows, file.catalog, source=file.source, on_reject=file.on_reject, mapping=file.mapping
    )


def starts_with_array(stream: BinaryIO, name: str | None) -> bool:
    """Return whether a file starts with an array; the stream is at its start again afterwards."""
    texts = (chunk.lstrip(b" \t\r\n") for chunk in without_bom(read_chunks(stream, name)))
    first = next(filter(None, texts), b"")
    stream.seek(0)
    return first.startswith(b"[")

"""Reader of CSV files with rows of one type, in UTF-8 with a header, and splitting of large ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from omnigraph.errors import InvalidInput
from omnigraph.sources.arrow_errors import translate_arrow_errors, translated_batches
from omnigraph.sources.input_rows import ArrowRows
from omnigraph.sources.row_batch import BATCH_ROWS, InputBatch
from omnigraph.sources.table_reader import RowError, TableInput, TableReader
from omnigraph.sources.table_values import convert_text_column

Numbers: TypeAlias = np.ndarray[Any, Any]

_BLOCK_BYTES = 4 * 1024 * 1024
# Arrow gets the type text for so many columns; it would infer the types of further columns.
_MAX_COLUMNS = 4_096
_TEXT_TYPES = {f"f{index}": pa.string() for index in range(_MAX_COLUMNS)}
# The header of a file to split must end within so many bytes.
_MAX_HEADER_BYTES = 1 << 20
# Names, each entirely in quotes or without quotes, on one line that is not empty.
_NAME = rb'(?:"[^"\r]*"|[^",\r]*)'
_NAMES = re.compile(rb"(?:\xef\xbb\xbf)?(?=[^\r])" + _NAME + rb"(?:," + _NAME + rb")*\r?")


def read_csv(stream: BinaryIO, file: TableInput) -> Iterator[InputBatch]:
    """Read the rows of a CSV file, one block in memory at a time.

    Values are parsed by the type of their property. A cell with the text `TableInput.csv_null` is null unless it is
    quoted; by default this is the empty cell. A list or a vector is a JSON array.
    """
    malformed: list[RowError] = []
    with translate_arrow_errors(file.source):
        opened = _open(stream, file.csv_null, malformed)
    reader = TableReader.of(file, "row", convert_text_column)
    names: list[str] | None = None
    last_number = 0
    for block in translated_batches(opened, file.source):
        batch = block
        if names is None:
            names, batch = _header(batch, file.csv_null), batch.slice(1)
            reader.check_names(names)
        batch = batch.rename_columns(names)
        numbers = _row_numbers(batch.num_rows, last_number, malformed)
        for start in range(0, batch.num_rows, BATCH_ROWS):
            part = numbers[start : start + BATCH_ROWS]
            # Arrow may have parsed rows beyond this block already.
            before = [item for item in malformed if item.place < part[-1]]
            del malformed[: len(before)]
            yield from reader.read(ArrowRows(batch.slice(start, BATCH_ROWS)), part, left_out=before)
            last_number = int(part[-1])
    reader.reject(malformed)


def read_text_batches(stream: BinaryIO, name: str, null: str = "") -> Iterator[pa.RecordBatch]:
    """Read a CSV file as batches of text columns. The first batch has the columns even if the file has no rows.

    Raises `InvalidInput` for a row with another number of cells than the header.
    """
    malformed: list[RowError] = []
    with translate_arrow_errors(name):
        opened = _open(stream, null, malformed)
    names: list[str] | None = None
    for block in translated_batches(opened, name):
        if malformed:
            raise InvalidInput(f"`{name}` row {malformed[0].place}: {malformed[0].error.reason}")
        batch = block
        if names is None:
            names, batch = _header(batch, null), batch.slice(1)
        yield batch.rename_columns(names)
    if malformed:
        raise InvalidInput(f"`{name}` row {malformed[0].place}: {malformed[0].error.reason}")


def _open(stream: BinaryIO, null: str, malformed: list[RowError]) -> pv.CSVStreamingReader:
    """Open a file with all cells as text; Arrow calls back for rows with a wrong number of cells."""

    def skip(row: pv.InvalidRow) -> str:
        # Arrow swallows exceptions of the callback.
        malformed.append(_wrong_cell_count(row))
        return "skip"

    return pv.open_csv(
        stream,
        # Arrow numbers rows only when it reads without threads. The header is read as a row, because types are set
        # by column name, and the names are not known before.
        pv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, autogenerate_column_names=True),
        pv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
        pv.ConvertOptions(
            column_types=_TEXT_TYPES,
            strings_can_be_null=True,
            null_values=[null],
            quoted_strings_can_be_null=False,
        ),
    )


def _header(batch: pa.RecordBatch, null: str) -> list[str]:
    if batch.num_columns > _MAX_COLUMNS:
        raise InvalidInput(
            f"expected at most {_MAX_COLUMNS:,} columns in a CSV file, got {batch.num_columns:,}"
        )
    # The header is read like a row, so that a name which equals the text for null arrives as null.
    return [null if (name := column[0].as_py()) is None else name for column in batch.columns]


def _wrong_cell_count(row: pv.InvalidRow) -> RowError:
    expected = "1 cell" if row.expected_columns == 1 else f"{row.expected_columns} cells"
    # Arrow counts the header as a row.
    return RowError(row.number - 1, InvalidInput(f"expected {expected}, got {row.actual_columns}"), row.text)


def _row_numbers(count: int, last_number: int, malformed: Sequence[RowError]) -> Numbers:
    """Return the numbers of the next rows of a file, without those of malformed rows."""
    span = np.arange(last_number + 1, last_number + count + len(malformed) + 1)
    return span[~np.isin(span, [item.place for item in malformed])][:count]


# --- splitting --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CsvPart:
    """A byte range of complete lines of a file, and the number of rows before it."""

    start: int
    stop: int
    first_row: int


def split_csv(stream: BinaryIO, size: int, part_bytes: int) -> list[CsvPart] | None:
    """Return parts of about `part_bytes` of a file, after its header; None when it cannot be split safely.

    A quoted cell may contain a line end, so that a file is split only when no row has a quote. For row numbers
    every line must be one row: no line is empty, and none ends in a carriage return alone. The check reads the
    file once, up to the first obstacle.
    """
    header = read_header(stream)
    if header is None:
        return None
    parts: list[CsvPart] = []
    start = position = len(header)
    first_row = rows = lone_returns = 0
    last = b"\n"
    stream.seek(position)
    while block := stream.read(_BLOCK_BYTES):
        joined = last + block
        if b'"' in block or b"\n\n" in joined:
            return None
        if b"\r" in joined:
            if b"\n\r" in joined:
                return None
            lone_returns += block.count(b"\r") - joined.count(b"\r\n")
        counted = 0
        while start + part_bytes <= position + len(block):
            end = block.find(b"\n", max(counted, start + part_bytes - 1 - position)) + 1
            if not end:
                break
            rows += block.count(b"\n", counted, end)
            parts.append(CsvPart(start, position + end, first_row))
            start, first_row, counted = position + end, rows, end
        rows += block.count(b"\n", counted)
        position += len(block)
        last = block[-1:]
    if lone_returns or position != size:
        return None
    if start < position or not parts:
        parts.append(CsvPart(start, position, first_row))
    return parts


def read_header(stream: BinaryIO) -> bytes | None:
    """Return the first line of a file with its line end; None when the header may extend over several lines."""
    stream.seek(0)
    head = stream.read(_MAX_HEADER_BYTES)
    line, end, _ = head.partition(b"\n")
    return line + end if end and _NAMES.fullmatch(line) else None

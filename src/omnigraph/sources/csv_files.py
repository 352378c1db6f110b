"""CSV files of one type, in UTF-8 with a header; and where one can be cut without reading quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from omnigraph.errors import InvalidInput
from omnigraph.sources.graph_records import BATCH_ROWS
from omnigraph.sources.input_rows import ArrowRows
from omnigraph.sources.row_batch import InputBatch
from omnigraph.sources.table_values import fit_text
from omnigraph.sources.tabular import (
    Refusal,
    TableInput,
    TableReader,
    translate_arrow_errors,
    translated_batches,
)

Numbers: TypeAlias = np.ndarray[Any, Any]

_BLOCK = 4 * 1024 * 1024
# Arrow is told for each column that it is text; for more columns than this it would guess.
_MOST_COLUMNS = 4_096
_TEXTS = {f"f{place}": pa.string() for place in range(_MOST_COLUMNS)}
# A header is expected to end within so many bytes of a file that is to be cut.
_HEADER = 1 << 20
# Names, each in quotes as a whole or without any, on one line that is not empty.
_NAME = rb'(?:"[^"\r]*"|[^",\r]*)'
_NAMES = re.compile(rb"(?:\xef\xbb\xbf)?(?=[^\r])" + _NAME + rb"(?:," + _NAME + rb")*\r?")


def read_csv(stream: BinaryIO, file: TableInput) -> Iterator[InputBatch]:
    """The rows of a CSV file; one block is held at a time.

    Values are read by the type of their property. An empty cell is null, a quoted empty cell is the empty text, a
    list or a vector is a JSON array.
    """
    odd: list[Refusal] = []
    with translate_arrow_errors(file.source):
        opened = _open(stream, odd)
    reader = TableReader.of(file, "row", fit_text)
    names: list[str] | None = None
    seen = 0
    for found in translated_batches(opened, file.source):
        batch = found
        if names is None:
            names, batch = _named(batch), batch.slice(1)
            reader.check_names(names)
        batch = batch.rename_columns(names)
        numbers = _numbers(batch.num_rows, seen, odd)
        for start in range(0, batch.num_rows, BATCH_ROWS):
            part = numbers[start : start + BATCH_ROWS]
            # Arrow may have looked at rows beyond this block already.
            before = [item for item in odd if item.place < part[-1]]
            del odd[: len(before)]
            yield from reader.read(ArrowRows(batch.slice(start, BATCH_ROWS)), part, left_out=before)
            seen = int(part[-1])
    reader.refuse(odd)


def _open(stream: BinaryIO, odd: list[Refusal]) -> pv.CSVStreamingReader:
    """The header and the rows of a file as text; those with too few or too many cells go to `odd`."""

    def keep_out(row: pv.InvalidRow) -> str:
        # An exception would be lost in Arrow.
        odd.append(_refusal(row))
        return "skip"

    return pv.open_csv(
        stream,
        # Arrow numbers the rows only when it reads them one after the other. The header is a row like the others:
        # types are given by the names of columns, which nobody knows before it was read.
        pv.ReadOptions(use_threads=False, block_size=_BLOCK, autogenerate_column_names=True),
        pv.ParseOptions(newlines_in_values=True, invalid_row_handler=keep_out),
        pv.ConvertOptions(
            column_types=_TEXTS,
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )


def _named(batch: pa.RecordBatch) -> list[str]:
    if batch.num_columns > _MOST_COLUMNS:
        raise InvalidInput(
            f"a CSV file has at most {_MOST_COLUMNS:,} columns, this has {batch.num_columns:,}"
        )
    return [column[0].as_py() or "" for column in batch.columns]


def _refusal(row: pv.InvalidRow) -> Refusal:
    message = f"{row.expected_columns} cells expected, got {row.actual_columns}"
    # The header is a row to Arrow.
    return Refusal(row.number - 1, InvalidInput(message), row.text)


def _numbers(count: int, seen: int, odd: Sequence[Refusal]) -> Numbers:
    """The numbers of the next rows of a file, where some rows were left out."""
    span = np.arange(seen + 1, seen + count + len(odd) + 1)
    return span[~np.isin(span, [item.place for item in odd])][:count]


# --- cutting ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CsvPart:
    """Whole lines of a file, by bytes, and how many rows come before them."""

    start: int
    stop: int
    first_row: int


def cut_csv(stream: BinaryIO, size: int, part_bytes: int) -> list[CsvPart] | None:
    """Parts of about so many bytes of a file, after its header; None when it cannot be cut safely.

    A line end may stand inside quotes, so it is safe only when no row has a quote at all. Every line must be one
    row too, so that rows can be counted: none is empty, and none ends in a carriage return alone. Finding that out
    reads the file once, up to the first thing that is in the way.
    """
    header = read_header(stream)
    if header is None:
        return None
    parts: list[CsvPart] = []
    start = position = len(header)
    first_row = rows = alone = 0
    last = b"\n"
    stream.seek(position)
    while piece := stream.read(_BLOCK):
        joined = last + piece
        if b'"' in piece or b"\n\n" in joined:
            return None
        if b"\r" in joined:
            if b"\n\r" in joined:
                return None
            alone += piece.count(b"\r") - joined.count(b"\r\n")
        seen = 0
        while start + part_bytes <= position + len(piece):
            end = piece.find(b"\n", max(seen, start + part_bytes - 1 - position)) + 1
            if not end:
                break
            rows += piece.count(b"\n", seen, end)
            parts.append(CsvPart(start, position + end, first_row))
            start, first_row, seen = position + end, rows, end
        rows += piece.count(b"\n", seen)
        position += len(piece)
        last = piece[-1:]
    if alone or position != size:
        return None
    if start < position or not parts:
        parts.append(CsvPart(start, position, first_row))
    return parts


def read_header(stream: BinaryIO) -> bytes | None:
    """The first line of a file with its end; None when it is not clear that the header ends there."""
    stream.seek(0)
    head = stream.read(_HEADER)
    line, end, _ = head.partition(b"\n")
    return line + end if end and _NAMES.fullmatch(line) else None

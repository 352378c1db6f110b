"""JSON files of one type: an object a line, or one array of objects, each a row with a field per property.

What a row means is what is read of it one by one. Whole blocks of lines go through Arrow's parser where that gives
the same: whatever Arrow refuses, and whatever is wrong with a row, is left to the other way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from omnigraph.errors import ErrorLocation, InvalidInput, ResourceLimit
from omnigraph.lang.types import Scalar
from omnigraph.sources.graph_records import BATCH_ROWS
from omnigraph.sources.input_files import read_chunks
from omnigraph.sources.input_rows import ArrowRows, DictRows
from omnigraph.sources.json.line_blocks import LINE_BYTES, Block, blocks, without_bom
from omnigraph.sources.json.ndjson import decode_line
from omnigraph.sources.json.ndjson_columns import parse_type
from omnigraph.sources.mapping.casts import Cast
from omnigraph.sources.mapping.column_filling import Filling
from omnigraph.sources.row_batch import InputBatch
from omnigraph.sources.table_values import Faults, fit_json
from omnigraph.sources.tabular import Refusal, TableInput, TableReader, objects_of, odd_rows, read_dict_rows

_BLOCK = 16 * 1024 * 1024
# An array is held as a whole.
_ARRAY_BYTES = 1 << 30
# After so many blocks in a row that Arrow could not read, it is not worth trying.
_PATIENCE = 3
_BLANK = b" \t\r"
_GRAPH = "graph records are given without a type"


def read_json_lines(
    stream: BinaryIO | Iterable[bytes], file: TableInput, *, block_bytes: int = _BLOCK
) -> Iterator[InputBatch]:
    """The rows of a stream of JSON objects, one a line; messages count lines."""
    reader = TableReader.of(file, "line", fit_json)
    lane = _Lane(reader.filling)
    for block in blocks(stream, max(1, block_bytes)):
        if block.too_long:
            limit = {"resource": "graph_batch_line_bytes", "limit": LINE_BYTES}
            error = ResourceLimit(f"the line is longer than {LINE_BYTES:,} bytes", details=limit)
            reader.places.refuse(block.first, error)
            continue
        yield from _read_block(reader, lane, block)


def _read_block(reader: TableReader, lane: _Lane, block: Block) -> Iterator[InputBatch]:
    found = lane.read(block)
    if found is not None:
        table, numbers = found
        parts = []
        for start in range(0, table.num_rows, BATCH_ROWS):
            given = ArrowRows(table.slice(start, BATCH_ROWS))
            filled = reader.fill(given)
            if filled.wrong:
                break
            parts.append((filled, given, numbers[start : start + BATCH_ROWS]))
        else:
            lane.doubts = 0
            for part in parts:
                yield from reader.finish(*part)
            return
        lane.doubts += 1
    lines = [
        (place, line)
        for place, line in enumerate(block.data.split(b"\n"), block.first)
        if line and line.strip(_BLANK)
    ]
    for start in range(0, len(lines), BATCH_ROWS):
        yield from _read_lines(reader, lines[start : start + BATCH_ROWS])


def _read_lines(reader: TableReader, lines: list[tuple[int, bytes]]) -> Iterator[InputBatch]:
    """Lines one by one, which is what defines the rows and the errors."""
    places: list[int] = []
    rows: list[Any] = []
    records: list[str] = []
    broken: list[Refusal] = []
    for place, line in lines:
        record = line.decode("utf-8", "backslashreplace").removesuffix("\r")
        try:
            found = decode_line(line, place)
        except InvalidInput as error:
            broken.append(Refusal(place, error, record))
            continue
        places.append(place)
        rows.append(found)
        records.append(record)
    odd = _hinted(odd_rows(reader.filling, rows), rows)
    given = DictRows(objects_of(rows), records=records)
    yield from reader.read(given, np.array(places, np.int64), odd, broken)


def _hinted(odd: Faults, rows: list[Any]) -> Faults:
    """Records of a graph, given for a type, are told to be such."""

    def is_record(row: Any) -> bool:
        return isinstance(row, dict) and "data" in row and not row.keys().isdisjoint(("type", "edge"))

    return {at: f"{message}: {_GRAPH}" if is_record(rows[at]) else message for at, message in odd.items()}


def read_json_array(stream: BinaryIO, file: TableInput) -> Iterator[InputBatch]:
    """The rows of one JSON array of objects, which is held as a whole; messages count its elements."""
    data = bytearray()
    for piece in without_bom(read_chunks(stream, file.source)):
        data += piece
        if len(data) > _ARRAY_BYTES:
            raise ResourceLimit(
                f"`{file.source}` is an array of more than {_ARRAY_BYTES:,} bytes",
                hint="write one object a line, which needs no more memory for more rows",
                details={"resource": "json_array_bytes", "limit": _ARRAY_BYTES, "source": file.source},
            )
    rows = _array(bytes(data), file.source)
    return read_dict_rows(
        file.key, rows, file.catalog, source=file.source, on_reject=file.on_reject, mapping=file.mapping
    )


def _array(data: bytes, source: str | None) -> list[Any]:
    try:
        found: list[Any] = decode_line(data, 1)
    except InvalidInput as error:
        cause = error.__cause__
        line = cause.lineno if isinstance(cause, json.JSONDecodeError) else 1
        raise error.located(ErrorLocation(source=source, line=line)) from error
    return found


def holds_array(stream: BinaryIO, name: str | None) -> bool:
    """Whether the first thing in a file is an array; the stream is at its beginning again afterwards."""
    texts = (piece.lstrip(b" \t\r\n") for piece in without_bom(read_chunks(stream, name)))
    first = next(filter(None, texts), b"")
    stream.seek(0)
    return first.startswith(b"[")


class _Lane:
    """Arrow's parser, told the types of the fields that are read. What it gives is right or does not fit."""

    def __init__(self, filling: Filling) -> None:
        self._filling = filling
        mapping = filling.mapping
        self._dotted = frozenset(path for path in filling.paths if "." in path)
        # Fields that are not read are parsed too, so that what is no JSON is seen.
        self._infers = mapping.ignores_others or bool(mapping.ignore) or bool(self._dotted)
        schemas = [_parse_schema(filling, temporal) for temporal in (pa.string(), pa.int64())]
        self._schemas = [schema for schema in schemas if schema is not None]
        if schemas[0] == schemas[1]:
            del self._schemas[1:]
        self.doubts = 0 if self._schemas else _PATIENCE

    def read(self, block: Block) -> tuple[pa.RecordBatch, np.ndarray[Any, Any]] | None:
        """The lines of a block and their numbers; None when they have to be looked at one by one."""
        if self.doubts >= _PATIENCE:
            return None
        found = self._parse(block)
        self.doubts += found is None
        return found

    def _parse(self, block: Block) -> tuple[pa.RecordBatch, np.ndarray[Any, Any]] | None:
        data = block.data
        numbers = _object_lines(data)
        if numbers is None or b"\0" in data:
            return None
        try:
            data.decode()
        except UnicodeDecodeError:
            return None
        table = self._table(data) if len(numbers) else pa.table({})
        if table is None or table.num_rows != len(numbers):
            return None
        if self._filling.unknown(table.column_names) or self._dotted & set(table.column_names):
            return None
        batch = table.combine_chunks().to_batches()[0] if len(numbers) else pa.record_batch({})
        return None if any(map(_is_odd, batch.columns)) else (batch, numbers + block.first)

    def _table(self, data: bytes) -> pa.Table | None:
        for place, schema in enumerate(self._schemas):
            behaviour = "infer" if self._infers else "error"
            options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=behaviour)
            reading = pj.ReadOptions(use_threads=True, block_size=len(data) + 1)
            try:
                found = pj.read_json(pa.BufferReader(data), reading, options)
            except pa.ArrowException:
                continue
            # Whether dates come as texts or as numbers is found out once.
            self._schemas.insert(0, self._schemas.pop(place))
            return found
        return None


def _object_lines(data: bytes) -> np.ndarray[Any, Any] | None:
    """Which lines are not blank, from 0; None unless each of them begins and ends with a brace.

    No JSON text has ``{`` right after ``}``, so that no object then crosses a line end.
    """
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(codes))
    starts = np.concatenate([[0], ends[:-1] + 1])
    last = ends - 1
    last = last - (codes[np.maximum(last, 0)] == ord("\r"))
    full = last >= starts
    if (codes[starts[full]] == ord("{")).all() and (codes[last[full]] == ord("}")).all():
        return np.flatnonzero(full)
    return None


def _parse_schema(filling: Filling, temporal: pa.DataType) -> pa.Schema | None:
    """The fields that are read, or None when two readings of a field differ."""
    fields: dict[str, Any] = {}
    for item in filling.inputs:
        *outer, name = item.path.split(".")
        place = fields
        for part in outer:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                return None
        kind = _cast_type(item.cast) if item.cast is not None else parse_type(item.column, temporal)
        if place.setdefault(name, kind) != kind:
            return None
    return pa.schema(_fields(fields))


def _fields(fields: Mapping[str, Any]) -> list[pa.Field]:
    return [
        pa.field(name, pa.struct(_fields(kind)) if isinstance(kind, dict) else kind)
        for name, kind in fields.items()
    ]


def _cast_type(cast: Cast) -> pa.DataType:
    is_number = cast.kind == "epoch" or (cast.kind == "type" and cast.text == Scalar.STRING.value)
    return pa.int64() if is_number else pa.string()


def _is_odd(values: pa.Array) -> bool:
    """Whether there are floats that JSON writes in no way, or in two: ``-0`` is the integer 0 when read alone."""
    if pa.types.is_list(values.type) or pa.types.is_struct(values.type):
        parts = values.flatten()
        return any(map(_is_odd, parts if isinstance(parts, list) else [parts]))
    if not pa.types.is_floating(values.type):
        return False
    numbers = pc.fill_null(values, 1.0).to_numpy(zero_copy_only=False)
    return bool(((numbers == 0) & np.signbit(numbers)).any() or not np.isfinite(numbers).all())

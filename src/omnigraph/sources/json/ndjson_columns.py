"""The column lane of the strict reader: Arrow's JSON parser, wherever it provably reads what the record lane reads.

Arrow is given the exact fields of one type and told to refuse others, so unknown fields, repeated members, wrong
JSON types, integers with a fraction and numbers out of range all make it fail; then the record lane decides. What
it lets pass although the record lane would not, or reads differently, is looked for here:

- several objects on a line, an object over several lines: every line must begin with ``{`` and end with ``}``, and
  there are as many rows as lines (no JSON text has ``{`` right after ``}``, so no object crosses a line end);
- bytes that are not UTF-8, and NUL, where Arrow stops reading;
- NaN and Infinity, and ``-0`` in a float property, which is the integer 0 to the record lane;
- null where it may be left out but not be null: ``data``, ``data.id``;
- required values, null in lists, vector lengths, ids that do not follow from the key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from omnigraph.catalog.catalog import Column
from omnigraph.catalog.columns import arrow_type, logical_schema
from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.errors import InvalidInput
from omnigraph.lang.types import FLOATS, Scalar
from omnigraph.sources.graph_records import BATCH_ROWS, Sheet, Sheets
from omnigraph.sources.json.json_values import MISMATCH, build_array, converter, in_range
from omnigraph.sources.json.line_blocks import Block
from omnigraph.sources.row_batch import InputBatch

_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
# So many different beginnings of lines are no longer taken for so many types.
_MOST_HEADS = 64
# After so many blocks in a row that were left to the record lane, it is not worth trying.
_PATIENCE = 3
_NEGATIVE_ZERO = re.compile(rb"-0(?![0-9.eE])")
_TEMPORAL = frozenset({Scalar.DATE, Scalar.DATETIME})
_TEXTS, _NUMBERS = pa.string(), pa.int64()


class _Doubt(Exception):
    """The record lane must look at this."""


class ColumnLane:
    """Reads blocks, or leaves them alone."""

    def __init__(self, sheets: Sheets, source: str | None) -> None:
        self._sheets = sheets
        self._source = source
        self._doubts = 0
        # Whether a table's dates come as texts or as numbers is found out once.
        self._temporal: dict[str, pa.DataType] = {}

    def read(self, block: Block) -> list[InputBatch] | None:
        """The batches of a block; None when the record lane has to read it."""
        if self._doubts >= _PATIENCE:
            return None
        try:
            found = [batch for group in self._by_table(block) for batch in self._read_group(*group)]
        except _Doubt:
            self._doubts += 1
            return None
        self._doubts = 0
        return found

    def _by_table(self, block: Block) -> Iterator[tuple[Sheet, str, bytes, pa.Array]]:
        """The lines of a block per table, in input order."""
        tables: dict[str, tuple[Sheet, str, list[tuple[int, bytes]]]] = {}
        for group in _groups(block):
            if isinstance(group, _Whole):
                yield *self._sheet(group.data), group.data, group.places
                return
            sheet, tag = self._sheet(group[0][1])
            tables.setdefault(sheet.table.key, (sheet, tag, []))[2].extend(group)
        for sheet, tag, lines in tables.values():
            # A table may come from lines that begin in several ways.
            lines.sort()
            places = pa.array([place for place, _ in lines], pa.int64())
            yield sheet, tag, b"\n".join([line for _, line in lines]), places

    def _read_group(self, sheet: Sheet, tag: str, data: bytes, places: pa.Array) -> Iterator[InputBatch]:
        found = self._parse(sheet, tag, data, len(places))
        rows = self._rows(sheet, tag, data, found)
        for start in range(0, rows.num_rows, BATCH_ROWS):
            part = rows.slice(start, BATCH_ROWS)
            yield InputBatch(sheet.table.key, part, places.slice(start, BATCH_ROWS), self._source)

    def _sheet(self, data: bytes) -> tuple[Sheet, str]:
        """The table that the first line names."""
        try:
            record = json.loads(data[: data.find(b"\n") + 1 or None].decode())
        except (ValueError, RecursionError) as error:
            raise _Doubt from error
        tag = "type" if "type" in record else "edge"
        name = record.get(tag)
        sheet = self._sheets.find(tag, name) if isinstance(name, str) else None
        if sheet is None:
            raise _Doubt
        return sheet, tag

    def _parse(self, sheet: Sheet, tag: str, data: bytes, count: int) -> pa.Table:
        first = self._temporal.get(sheet.table.key, _TEXTS)
        dated = any(column.type.scalar in _TEMPORAL for column in sheet.columns.values())
        for temporal in (first, _NUMBERS if first is _TEXTS else _TEXTS) if dated else (first,):
            options = pj.ParseOptions(
                explicit_schema=_parse_schema(sheet, tag, temporal), unexpected_field_behavior="error"
            )
            reading = pj.ReadOptions(use_threads=True, block_size=len(data) + 1)
            try:
                found = pj.read_json(pa.BufferReader(data), reading, options)
            except pa.ArrowException:
                continue
            if found.num_rows != count:
                raise _Doubt
            self._temporal[sheet.table.key] = temporal
            return found.combine_chunks()
        raise _Doubt

    def _rows(self, sheet: Sheet, tag: str, data: bytes, found: pa.Table) -> pa.Table:
        for name in pc.unique(found[tag]).to_pylist():
            if name is None or self._sheets.find(tag, name) is not sheet:
                raise _Doubt
        given = _given(found, data)
        arrays: dict[str, pa.Array] = {}
        for column in sheet.table.columns:
            if column.name in sheet.columns:
                arrays[column.name] = _column(column, given[column.name], data)
            elif column.name == "id":
                arrays["id"] = _explicit_ids(given["id"], data)
            else:
                arrays[column.name] = _no_nulls(_one(found["from" if column.name == "src" else "to"]))
        if sheet.key is not None:
            derived = derive_ids(sheet.key, arrays)
            if pc.any(pc.not_equal(arrays["id"], derived)).as_py():
                raise _Doubt
            arrays["id"] = derived
        return pa.Table.from_arrays(list(arrays.values()), schema=logical_schema(sheet.table))


@dataclass(frozen=True, slots=True)
class _Whole:
    """A block whose lines are taken to be of one table."""

    data: bytes
    places: pa.Array


def _groups(block: Block) -> Iterator[_Whole | list[tuple[int, bytes]]]:
    """The non-blank lines of a block by how they begin, each with its number."""
    data = block.data
    if b"\0" in data:
        raise _Doubt
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise _Doubt from error
    full = _full_lines(data)
    if not full.any():
        return
    places = pa.array(np.flatnonzero(full) + block.first, pa.int64())
    whole = data.lstrip(b"\r\n")
    if whole.count(_head(whole[: whole.find(b"\n") + 1 or None])) == len(places):
        yield _Whole(whole, places)
        return
    groups: dict[bytes, list[tuple[int, bytes]]] = {}
    for place, line in enumerate(data.split(b"\n"), block.first):
        if line and line != b"\r":
            groups.setdefault(_head(line), []).append((place, line))
    if len(groups) > _MOST_HEADS:
        yield _Whole(whole, places)
        return
    yield from groups.values()


def _head(line: bytes) -> bytes:
    return line[: line.find(b",") + 1 or None]


def _full_lines(data: bytes) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which lines are not blank; each of these begins and ends with a brace."""
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(codes == _NEWLINE)
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(codes))
    starts = np.concatenate([[0], ends[:-1] + 1])
    last = ends - 1
    last = last - (codes[np.maximum(last, 0)] == _RETURN)
    full: np.ndarray[Any, np.dtype[np.bool_]] = last >= starts
    if not ((codes[starts[full]] == _OPEN).all() and (codes[last[full]] == _CLOSE).all()):
        raise _Doubt
    return full


def _parse_schema(sheet: Sheet, tag: str, temporal: pa.DataType) -> pa.Schema:
    data = [pa.field("id", pa.string())]
    data += [pa.field(name, parse_type(column, temporal)) for name, column in sheet.columns.items()]
    ends = ["from", "to"] if tag == "edge" else []
    return pa.schema(
        [*(pa.field(name, pa.string()) for name in (tag, *ends)), pa.field("data", pa.struct(data))]
    )


def parse_type(column: Column, temporal: pa.DataType) -> pa.DataType:
    """What Arrow is told to read a property as; dates and moments come as texts or as numbers."""
    scalar = column.type.scalar
    if scalar in _TEMPORAL:
        found = temporal
    elif scalar in FLOATS or scalar is Scalar.VECTOR:
        # Through float64 in either lane, so that a number is rounded the same way.
        found = pa.float64()
    elif scalar is Scalar.BLOB:
        found = pa.string()
    else:
        found = arrow_type(column.type.item)
    return pa.list_(found) if column.type.is_list or scalar is Scalar.VECTOR else found


def _one(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


def _no_nulls(array: pa.Array) -> pa.Array:
    if array.null_count:
        raise _Doubt
    return array


def _given(found: pa.Table, data: bytes) -> Mapping[str, pa.Array]:
    """The fields of ``data``, also where it was left out; where it may have been null is in doubt."""
    struct = _one(found["data"])
    if struct.null_count and (b'"data"' in data or b"\\u" in data):
        raise _Doubt
    parts = struct.flatten()
    return {struct.type.field(index).name: part for index, part in enumerate(parts)}


def _explicit_ids(ids: pa.Array, data: bytes) -> pa.Array:
    if ids.null_count and (b'"id"' in data or b"\\u" in data):
        raise _Doubt
    return ids


def _column(column: Column, array: pa.Array, data: bytes) -> pa.Array:
    """What Arrow read as the column stores it."""
    scalar = column.type.scalar
    if not column.type.nullable:
        _no_nulls(array)
    if column.type.is_list:
        items = _no_nulls(array.flatten())
        if scalar in FLOATS or scalar in _TEMPORAL:
            item = Column(column.name, column.type.item, column.physical)
            offsets = pa.array(np.concatenate([[0], np.cumsum(_lengths(array))]), pa.int32())
            return pa.ListArray.from_arrays(
                offsets, _column(item, items, data), arrow_type(column.type), mask=array.is_null()
            )
        return array
    if scalar is Scalar.VECTOR:
        return _vectors(column, array, data)
    if scalar in FLOATS:
        return _floats(array, arrow_type(column.type), data)
    if scalar in _TEMPORAL or scalar is Scalar.BLOB:
        return _distinct(column, array)
    return array


def _lengths(array: pa.Array) -> np.ndarray[Any, Any]:
    lengths: np.ndarray[Any, Any] = pc.fill_null(pc.list_value_length(array), 0).to_numpy(
        zero_copy_only=False
    )
    return lengths


def _floats(array: pa.Array, wanted: pa.DataType, data: bytes) -> pa.Array:
    numbers = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
    if not np.isfinite(numbers).all():
        raise _Doubt
    if (np.signbit(numbers) & (numbers == 0)).any() and _NEGATIVE_ZERO.search(data):
        raise _Doubt
    found = array.cast(wanted)
    if wanted == pa.float32() and pc.any(pc.is_inf(found)).as_py():
        raise _Doubt
    return found


def _vectors(column: Column, array: pa.Array, data: bytes) -> pa.Array:
    dim = column.type.dim
    present = array.drop_null()
    if (_lengths(present) != dim).any():
        raise _Doubt
    numbers = _floats(_no_nulls(present.flatten()), pa.float32(), data)
    vectors = pa.FixedSizeListArray.from_arrays(numbers, type=arrow_type(column.type))
    if not array.null_count:
        return vectors
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return vectors.take(pa.array(np.cumsum(valid) - 1, pa.int64(), mask=~valid))


def _distinct(column: Column, array: pa.Array) -> pa.Array:
    """Each different value through the same function as in the record lane."""
    if pa.types.is_integer(array.type):
        stored = pa.int32() if column.type.scalar is Scalar.DATE else pa.int64()
        try:
            found = array.cast(stored).cast(arrow_type(column.type))
        except pa.ArrowException as error:
            raise _Doubt from error
        if not in_range(column, found):
            raise _Doubt
        return found
    encoded = array.dictionary_encode()
    convert = converter(column)
    try:
        values = [convert(value) for value in encoded.dictionary.to_pylist()]
    except InvalidInput as error:
        raise _Doubt from error
    if MISMATCH in values:
        raise _Doubt
    return build_array(column, values).take(encoded.indices)

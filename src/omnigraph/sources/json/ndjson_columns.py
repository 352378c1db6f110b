"""Fast path of the strict reader: Arrow's JSON parser, where it provably returns the rows of the slow path.

Arrow gets the exact fields of one type and rejects others. Unknown fields, duplicate members, wrong JSON types,
integers with a fraction and numbers out of range all make it fail, and the slow path decides. This module
detects the inputs that Arrow accepts although the slow path rejects them, or that it reads differently:

- several objects on a line, or an object over several lines: every line must start with ``{`` and end with
  ``}``, and the number of rows must equal the number of lines (no JSON text contains ``{`` directly after
  ``}``, so that no object extends over a line end);
- invalid UTF-8, and NUL, where Arrow stops reading;
- NaN and Infinity, and ``-0`` in a float property, which is the integer 0 in the slow path;
- null where a member may be missing but not null: ``data``, ``data.id``;
- missing required values, null in lists, vector lengths, ids that do not match the key.
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

from omnigraph.catalog.catalog import Column
from omnigraph.catalog.columns import ENDPOINT_NAMES, arrow_type, logical_schema
from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.errors import InvalidInput
from omnigraph.lang.types import FLOATS, Scalar
from omnigraph.sources.graph_records import RecordConverter, RecordConverters
from omnigraph.sources.json.arrow_json import (
    MAX_FAILURES,
    TEMPORAL,
    is_utf8_without_nul,
    object_lines,
    parse_lines,
    parse_type,
)
from omnigraph.sources.json.json_values import MISMATCH, build_array, in_range, value_converter
from omnigraph.sources.json.line_blocks import LineBlock
from omnigraph.sources.row_batch import BATCH_ROWS, InputBatch

# With more distinct line starts, grouping by line start does not separate types.
_MAX_GROUPS = 64
_NEGATIVE_ZERO = re.compile(rb"-0(?![0-9.eE])")
_TEXT, _INTEGER = pa.string(), pa.int64()


@dataclass(frozen=True, slots=True)
class _Form:
    """How the rows of a table are written: dates as text or integers, with or without ids."""

    temporal: pa.DataType
    has_ids: bool


class _NotSupported(Exception):
    """The slow path must read this block."""


class ColumnarReader:
    """Reads blocks of lines with Arrow, or leaves them to the slow path."""

    def __init__(self, converters: RecordConverters, source: str | None) -> None:
        self._converters = converters
        self._source = source
        self._failures = 0
        # Whether the dates of a table are text or integers, and whether its rows have ids, as in its last block.
        self._forms: dict[str, _Form] = {}

    def read(self, block: LineBlock) -> list[InputBatch] | None:
        """Return the batches of a block; None when the slow path must read it."""
        if self._failures >= MAX_FAILURES:
            return None
        try:
            batches = [batch for group in self._by_table(block) for batch in self._read_group(*group)]
        except _NotSupported:
            self._failures += 1
            return None
        self._failures = 0
        return batches

    def _by_table(self, block: LineBlock) -> Iterator[tuple[RecordConverter, str, bytes, pa.Array]]:
        """Yield the lines of a block per table, in input order."""
        tables: dict[str, tuple[RecordConverter, str, list[tuple[int, bytes]]]] = {}
        for group in _groups(block):
            if isinstance(group, _WholeBlock):
                yield *self._converter(group.data), group.data, group.places
                return
            converter, tag = self._converter(group[0][1])
            tables.setdefault(converter.table.key, (converter, tag, []))[2].extend(group)
        for converter, tag, lines in tables.values():
            # The lines of a table may have several starts.
            lines.sort()
            places = pa.array([place for place, _ in lines], pa.int64())
            yield converter, tag, b"\n".join([line for _, line in lines]), places

    def _read_group(
        self, converter: RecordConverter, tag: str, data: bytes, places: pa.Array
    ) -> Iterator[InputBatch]:
        parsed = self._parse(converter, tag, data, len(places))
        rows = self._rows(converter, tag, data, parsed)
        for start in range(0, rows.num_rows, BATCH_ROWS):
            part = rows.slice(start, BATCH_ROWS)
            yield InputBatch(converter.table.key, part, places.slice(start, BATCH_ROWS), self._source)

    def _converter(self, data: bytes) -> tuple[RecordConverter, str]:
        """Return the converter of the type of the first line."""
        try:
            record = json.loads(data[: data.find(b"\n") + 1 or None].decode())
        except (ValueError, RecursionError) as error:
            raise _NotSupported from error
        tag = "type" if "type" in record else "edge"
        name = record.get(tag)
        found = self._converters.find(tag, name) if isinstance(name, str) else None
        if found is None:
            raise _NotSupported
        return found, tag

    def _parse(self, converter: RecordConverter, tag: str, data: bytes, count: int) -> pa.Table:
        for form in self._possible_forms(converter):
            table = parse_lines(data, _parse_schema(converter, tag, form))
            if table is None:
                continue
            if table.num_rows != count:
                raise _NotSupported
            self._forms[converter.table.key] = form
            return table.combine_chunks()
        raise _NotSupported

    def _possible_forms(self, converter: RecordConverter) -> list[_Form]:
        """Return the forms that the rows of a block may have, the likely one first.

        Arrow rejects an id that it does not expect, so ids are only looked for where some rows have one.
        """
        key = converter.table.key
        first = self._forms.get(key, _Form(_TEXT, has_ids=False))
        has_dates = any(column.type.scalar in TEMPORAL for column in converter.columns.values())
        other = _INTEGER if first.temporal is _TEXT else _TEXT
        temporals = (first.temporal, other) if has_dates else (first.temporal,)
        ids = (True,) if first.has_ids else (False, True)
        return [_Form(temporal, has_ids=has_ids) for has_ids in ids for temporal in temporals]

    def _rows(self, converter: RecordConverter, tag: str, data: bytes, parsed: pa.Table) -> pa.Table:
        for name in pc.unique(parsed[tag]).to_pylist():
            if name is None or self._converters.find(tag, name) is not converter:
                raise _NotSupported
        fields = _data_fields(parsed, data)
        arrays: dict[str, pa.Array] = {}
        for column in converter.table.columns:
            if column.name in converter.columns:
                arrays[column.name] = _column(column, fields[column.name], data)
            elif column.name == "id":
                ids = fields.get("id")
                arrays["id"] = pa.nulls(len(parsed), pa.string()) if ids is None else _explicit_ids(ids, data)
            else:
                arrays[column.name] = _without_nulls(_combined(parsed[ENDPOINT_NAMES[column.name]]))
        if converter.key is not None:
            derived = derive_ids(converter.key, arrays)
            if pc.any(pc.not_equal(arrays["id"], derived)).as_py():
                raise _NotSupported
            arrays["id"] = derived
        return pa.Table.from_arrays(list(arrays.values()), schema=logical_schema(converter.table))


@dataclass(frozen=True, slots=True)
class _WholeBlock:
    """A block whose lines appear to be of one table."""

    data: bytes
    places: pa.Array


def _groups(block: LineBlock) -> Iterator[_WholeBlock | list[tuple[int, bytes]]]:
    """Yield the non-blank lines of a block, grouped by their start, each with its number."""
    data = block.data
    if not is_utf8_without_nul(data):
        raise _NotSupported
    numbers = object_lines(data)
    if numbers is None:
        raise _NotSupported
    if not len(numbers):
        return
    places = pa.array(numbers + block.first, pa.int64())
    whole = data.lstrip(b"\r\n")
    if whole.count(_line_start(whole[: whole.find(b"\n") + 1 or None])) == len(places):
        yield _WholeBlock(whole, places)
        return
    groups: dict[bytes, list[tuple[int, bytes]]] = {}
    for place, line in enumerate(data.split(b"\n"), block.first):
        if line and line != b"\r":
            groups.setdefault(_line_start(line), []).append((place, line))
    if len(groups) > _MAX_GROUPS:
        yield _WholeBlock(whole, places)
        return
    yield from groups.values()


def _line_start(line: bytes) -> bytes:
    return line[: line.find(b",") + 1 or None]


def _parse_schema(converter: RecordConverter, tag: str, form: _Form) -> pa.Schema:
    data = [pa.field("id", pa.string())] if form.has_ids else []
    data += [pa.field(name, parse_type(column, form.temporal)) for name, column in converter.columns.items()]
    endpoints = ["from", "to"] if tag == "edge" else []
    return pa.schema(
        [*(pa.field(name, pa.string()) for name in (tag, *endpoints)), pa.field("data", pa.struct(data))]
    )


def _combined(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.chunk(0) if isinstance(array, pa.ChunkedArray) else array


def _without_nulls(array: pa.Array) -> pa.Array:
    if array.null_count:
        raise _NotSupported
    return array


def _data_fields(parsed: pa.Table, data: bytes) -> Mapping[str, pa.Array]:
    """Return the fields of ``data``; a missing ``data`` is allowed, a null one is not."""
    struct = _combined(parsed["data"])
    if struct.null_count and (b'"data"' in data or _has_escaped_character(data)):
        raise _NotSupported
    parts = struct.flatten()
    return {struct.type.field(index).name: part for index, part in enumerate(parts)}


def _explicit_ids(ids: pa.Array, data: bytes) -> pa.Array:
    if ids.null_count and (b'"id"' in data or _has_escaped_character(data)):
        raise _NotSupported
    return ids


def _has_escaped_character(data: bytes) -> bool:
    """Whether a name may be written with ``\\u`` escapes. A search for one byte is far faster than for two."""
    return b"\\" in data and b"\\u" in data


def _column(column: Column, array: pa.Array, data: bytes) -> pa.Array:
    """Convert a parsed column to its stored type."""
    scalar = column.type.scalar
    if column.is_required:
        _without_nulls(array)
    if column.type.is_list:
        items = _without_nulls(array.flatten())
        if scalar in FLOATS or scalar in TEMPORAL:
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
    if scalar in TEMPORAL or scalar is Scalar.BLOB:
        return _converted(column, array)
    return array


def _lengths(array: pa.Array) -> np.ndarray[Any, Any]:
    lengths: np.ndarray[Any, Any] = pc.fill_null(pc.list_value_length(array), 0).to_numpy(
        zero_copy_only=False
    )
    return lengths


def _floats(array: pa.Array, target: pa.DataType, data: bytes) -> pa.Array:
    numbers = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
    if not np.isfinite(numbers).all():
        raise _NotSupported
    if (np.signbit(numbers) & (numbers == 0)).any() and _NEGATIVE_ZERO.search(data):
        raise _NotSupported
    floats = array.cast(target)
    if target == pa.float32() and pc.any(pc.is_inf(floats)).as_py():
        raise _NotSupported
    return floats


def _vectors(column: Column, array: pa.Array, data: bytes) -> pa.Array:
    dim = column.type.dim
    present = array.drop_null()
    if (_lengths(present) != dim).any():
        raise _NotSupported
    numbers = _floats(_without_nulls(present.flatten()), pa.float32(), data)
    vectors = pa.FixedSizeListArray.from_arrays(numbers, type=arrow_type(column.type))
    if not array.null_count:
        return vectors
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return vectors.take(pa.array(np.cumsum(valid) - 1, pa.int64(), mask=~valid))


def _converted(column: Column, array: pa.Array) -> pa.Array:
    """Convert each distinct value with the function of the slow path."""
    if pa.types.is_integer(array.type):
        stored = pa.int32() if column.type.scalar is Scalar.DATE else pa.int64()
        try:
            dates = array.cast(stored).cast(arrow_type(column.type))
        except pa.ArrowException as error:
            raise _NotSupported from error
        if not in_range(column, dates):
            raise _NotSupported
        return dates
    encoded = array.dictionary_encode()
    convert = value_converter(column)
    try:
        values = [convert(value) for value in encoded.dictionary.to_pylist()]
    except InvalidInput as error:
        raise _NotSupported from error
    if MISMATCH in values:
        raise _NotSupported
    return build_array(column, values).take(encoded.indices)

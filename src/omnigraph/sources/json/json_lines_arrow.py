"""Fast path for JSON lines with rows of one type: Arrow's parser with the types of the mapped fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.types import Scalar
from omnigraph.sources.json.arrow_json import (
    MAX_FAILURES,
    is_utf8_without_nul,
    object_lines,
    parse_lines,
    parse_type,
)
from omnigraph.sources.json.line_blocks import LineBlock
from omnigraph.sources.mapping.casts import Cast
from omnigraph.sources.mapping.column_mapper import ColumnMapper


class ArrowLineParser:
    """Parses blocks of JSON lines with Arrow; its results are exact, or conversion of them reports errors.

    After several consecutive failures it stops trying.
    """

    def __init__(self, mapper: ColumnMapper) -> None:
        self._mapper = mapper
        mapping = mapper.mapping
        self._dotted = frozenset(path for path in mapper.paths if "." in path)
        # Fields that are not read are parsed too, so that invalid JSON in them is detected.
        self._infers = mapping.ignores_others or bool(mapping.ignore) or bool(self._dotted)
        schemas = [_parse_schema(mapper, temporal) for temporal in (pa.string(), pa.int64())]
        self._schemas = [schema for schema in schemas if schema is not None]
        if schemas[0] == schemas[1]:
            del self._schemas[1:]
        # Arrow does not tell a missing field from a null, which differ in a patch.
        is_exact = bool(self._schemas) and mapping.operations is None
        self._failures = 0 if is_exact else MAX_FAILURES

    def record_success(self) -> None:
        """Record that the rows of a block were converted without errors."""
        self._failures = 0

    def record_failure(self) -> None:
        """Record that the rows of a block have errors."""
        self._failures += 1

    def parse(self, block: LineBlock) -> tuple[pa.RecordBatch, np.ndarray[Any, Any]] | None:
        """Return the rows of a block and their line numbers; None when it must be read row by row."""
        if self._failures >= MAX_FAILURES:
            return None
        parsed = self._parse(block)
        self._failures += parsed is None
        return parsed

    def _parse(self, block: LineBlock) -> tuple[pa.RecordBatch, np.ndarray[Any, Any]] | None:
        data = block.data
        numbers = object_lines(data)
        if numbers is None or not is_utf8_without_nul(data):
            return None
        table = self._table(data) if len(numbers) else pa.table({})
        if table is None or table.num_rows != len(numbers):
            return None
        if self._mapper.unknown(table.column_names) or self._dotted & set(table.column_names):
            return None
        batch = table.combine_chunks().to_batches()[0] if len(numbers) else pa.record_batch({})
        return None if any(map(_has_ambiguous_floats, batch.columns)) else (batch, numbers + block.first)

    def _table(self, data: bytes) -> pa.Table | None:
        for index, schema in enumerate(self._schemas):
            table = parse_lines(data, schema, infer_other_fields=self._infers)
            if table is not None:
                # Later blocks try the schema that matched first: dates as text, or dates as integers.
                self._schemas.insert(0, self._schemas.pop(index))
                return table
        return None


def _parse_schema(mapper: ColumnMapper, temporal: pa.DataType) -> pa.Schema | None:
    """Return the fields to parse, or None when a field would have two types."""
    fields: dict[str, Any] = {}
    for item in mapper.inputs:
        *outer, name = item.path.split(".")
        parent = fields
        for part in outer:
            parent = parent.setdefault(part, {})
            if not isinstance(parent, dict):
                return None
        kind = _cast_type(item.cast) if item.cast is not None else parse_type(item.column, temporal)
        if parent.setdefault(name, kind) != kind:
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


def _has_ambiguous_floats(values: pa.Array) -> bool:
    """Return whether there are floats that JSON cannot express, or ``-0``, which row by row is the integer 0."""
    if pa.types.is_list(values.type) or pa.types.is_struct(values.type):
        parts = values.flatten()
        return any(map(_has_ambiguous_floats, parts if isinstance(parts, list) else [parts]))
    if not pa.types.is_floating(values.type):
        return False
    numbers = pc.fill_null(values, 1.0).to_numpy(zero_copy_only=False)
    return bool(((numbers == 0) & np.signbit(numbers)).any() or not np.isfinite(numbers).all())

"""Helpers for Arrow's JSON parser, shared by the readers that use it as a fast path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from omnigraph.catalog.catalog import Column
from omnigraph.catalog.columns import arrow_type
from omnigraph.lang.types import FLOATS, Scalar

TEMPORAL = frozenset({Scalar.DATE, Scalar.DATETIME})

# Readers stop using the fast path after so many consecutive blocks that it could not read.
MAX_FAILURES = 3

_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"


def parse_type(column: Column, temporal: pa.DataType) -> pa.DataType:
    """Return the Arrow type to parse a property as; dates and datetimes are `temporal`, text or integers."""
    scalar = column.type.scalar
    if scalar in TEMPORAL:
        item = temporal
    elif scalar in FLOATS or scalar is Scalar.VECTOR:
        # The slow path converts to float64 first too, so that numbers are rounded in the same way.
        item = pa.float64()
    elif scalar is Scalar.BLOB:
        item = pa.string()
    else:
        item = arrow_type(column.type.item)
    return pa.list_(item) if column.type.is_list or scalar is Scalar.VECTOR else item


def parse_lines(data: bytes, schema: pa.Schema, *, infer_other_fields: bool = False) -> pa.Table | None:
    """Parse JSON lines with Arrow; return None when Arrow rejects them."""
    behavior = "infer" if infer_other_fields else "error"
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=behavior)
    try:
        return pj.read_json(
            pa.BufferReader(data), pj.ReadOptions(use_threads=True, block_size=len(data) + 1), options
        )
    except pa.ArrowException:
        return None


def object_lines(data: bytes) -> np.ndarray[Any, Any] | None:
    """Return the indexes of the lines that are not blank; None unless each of them starts and ends with a brace.

    No JSON text contains ``{`` directly after ``}``, so that no object then extends over a line end.
    """
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(codes == _NEWLINE)
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(codes))
    starts = np.concatenate([[0], ends[:-1] + 1])
    last = ends - 1
    last = last - (codes[np.maximum(last, 0)] == _RETURN)
    full = last >= starts
    if (codes[starts[full]] == _OPEN).all() and (codes[last[full]] == _CLOSE).all():
        return np.flatnonzero(full)
    return None


def is_utf8_without_nul(data: bytes) -> bool:
    """Return whether the bytes are UTF-8 without NUL, where Arrow stops reading."""
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True

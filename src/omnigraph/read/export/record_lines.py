"""Encode rows as lines of graph records. The JSON is assembled by columns, with the same result as row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Column, Table
from omnigraph.catalog.row_json import json_values
from omnigraph.lang.types import FLOATS, PropType, Scalar

# The texts of a batch may exceed two gigabytes, the limit of `pa.string`.
_TEXT = pa.large_string()
_QUOTE, _NOTHING = pa.scalar('"', _TEXT), pa.scalar("", _TEXT)
# Dates and timestamps are written as the numbers that are stored.
_NUMBERS = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}
# The backslash is escaped first, because the other escapes add backslashes.
_ESCAPES = ("\\", '"', "\n", "\r", "\t")
_CONTROL = r"[\x00-\x1f]"


def encode_records(table: Table, rows: pa.Table | pa.RecordBatch) -> bytes:
    """Encode rows with the table's physical columns as records, one line each.

    A node is ``{"type":…,"data":{…}}``, an edge ``{"edge":…,"from":…,"to":…,"data":{…}}``. The data has the id
    first, then the properties by name, including nulls.
    """
    if not rows.num_rows:
        return b""
    pieces = []
    for label, column in _labels(table):
        values = rows[column.physical]
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        texts = json_texts(values, column.type)
        pieces += [pa.scalar(label, _TEXT), pc.fill_null(texts, "null") if texts.null_count else texts]
    lines = pc.binary_join_element_wise(*pieces, pa.scalar("}}\n", _TEXT), _NOTHING)
    # The lines are contiguous in the buffer.
    return bytes(lines.buffers()[2])


def _labels(table: Table) -> Iterator[tuple[str, Column]]:
    """Yield the columns in the order of a record, each with the text before its value."""
    name = json.dumps(table.name)
    data = list(table.columns)
    if table.kind == "edge":
        id_, src, dst, *properties = data
        yield f'{{"edge":{name},"from":', src
        yield ',"to":', dst
        head, data = ',"data":{', [id_, *properties]
    else:
        head = f'{{"type":{name},"data":{{'
    for column in data:
        yield f"{head}{json.dumps(column.name)}:", column
        head = ","


def json_texts(values: pa.Array, prop_type: PropType) -> pa.Array:
    """Return the values of a column as JSON texts, null where the value is null.

    >>> json_texts(pa.array(['say "so"', None]), PropType(Scalar.STRING)).to_pylist()
    ['"say \\\\"so\\\\""', None]
    """
    scalar = prop_type.scalar
    if prop_type.is_list or scalar is Scalar.VECTOR:
        return _list_texts(values, prop_type)
    if scalar is Scalar.STRING:
        return _string_texts(values)
    if scalar in FLOATS:
        return _float_texts(values)
    if scalar is Scalar.BLOB:
        return _string_texts(pa.array(json_values(values, prop_type), _TEXT))
    number = _NUMBERS.get(scalar)
    return (values if number is None else values.cast(number)).cast(_TEXT)


def _string_texts(values: pa.Array) -> pa.Array:
    values = values.cast(_TEXT)
    found = _characters(values)
    escaped = values
    for sign in _ESCAPES:
        if (found == ord(sign)).any():
            escaped = pc.replace_substring(escaped, sign, json.dumps(sign)[1:-1])
    texts = pc.binary_join_element_wise(_QUOTE, escaped, _QUOTE, _NOTHING)
    if not (found < ord(" ")).any():
        return texts
    rare = pc.match_substring_regex(escaped, _CONTROL)
    spelled = [json.dumps(item, ensure_ascii=False) for item in values.filter(rare).to_pylist()]
    return pc.replace_with_mask(texts, pc.fill_null(rare, False), pa.array(spelled, _TEXT))


def _characters(values: pa.Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of large strings. In UTF-8 an ASCII byte is never part of another character."""
    _, offsets, data = values.buffers()
    if data is None:
        return np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]


def _float_texts(values: pa.Array) -> pa.Array:
    if pa.types.is_float32(values.type):
        # The shortest decimal for the stored width, not the digits of the double that it is widened to.
        values = values.cast(_TEXT).cast(pa.float64())
    # All values in one call: the text of a number contains no comma.
    found = json.dumps(values.to_pylist(), separators=(",", ":"))[1:-1].split(",") if len(values) else []
    texts = pa.array(found, _TEXT)
    odd = pc.fill_null(pc.invert(pc.is_finite(values)), False)
    if pc.any(odd).as_py():
        # JSON has no NaN and infinities; they are strings with the names that `json` uses.
        texts = pc.if_else(odd, pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, _NOTHING), texts)
    return pc.if_else(values.is_valid(), texts, None)


def _list_texts(values: pa.Array, prop_type: PropType) -> pa.Array:
    """Encode all elements at once and join them by list."""
    item = PropType(Scalar.F32) if prop_type.scalar is Scalar.VECTOR else prop_type.item
    lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    lists = pa.LargeListArray.from_arrays(offsets, json_texts(pc.list_flatten(values), item))
    joined = pc.binary_join(lists, pa.scalar(",", _TEXT))
    texts = pc.binary_join_element_wise(pa.scalar("[", _TEXT), joined, pa.scalar("]", _TEXT), _NOTHING)
    return pc.if_else(values.is_valid(), texts, None)

"""Rows as lines of graph records: JSON that is put together by columns, the same text as row by row."""

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

# The texts of a batch may be more than the two gigabytes that the smaller type holds.
_TEXT = pa.large_string()
_QUOTE, _NOTHING = pa.scalar('"', _TEXT), pa.scalar("", _TEXT)
# Dates and moments are written as the numbers they are stored as.
_NUMBERS = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}
# The backslash comes first, for the others bring new ones.
_ESCAPES = ("\\", '"', "\n", "\r", "\t")
_CONTROL = r"[\x00-\x1f]"


def encode_records(table: Table, rows: pa.Table | pa.RecordBatch) -> bytes:
    """The records of rows that have the table's physical columns, a line each.

    A node is ``{"type":…,"data":{…}}``, an edge ``{"edge":…,"from":…,"to":…,"data":{…}}``. The data begins with the
    id, the properties follow by name, nulls included.
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
    # The lines lie one after the other.
    return bytes(lines.buffers()[2])


def _labels(table: Table) -> Iterator[tuple[str, Column]]:
    """The columns in the order of a record, each with the text that stands before its value."""
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
    """The values of a column as texts of JSON, null where there is none.

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
    """The bytes of large strings, one after the other; those of ASCII signs stand for nothing else in UTF-8."""
    _, offsets, data = values.buffers()
    if data is None:
        return np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]


def _float_texts(values: pa.Array) -> pa.Array:
    if pa.types.is_float32(values.type):
        # The shortest decimal of the stored width, not the digits of the double that it widens to.
        values = values.cast(_TEXT).cast(pa.float64())
    # All of them in one call: no comma is in the text of a number.
    found = json.dumps(values.to_pylist(), separators=(",", ":"))[1:-1].split(",") if len(values) else []
    texts = pa.array(found, _TEXT)
    odd = pc.fill_null(pc.invert(pc.is_finite(values)), False)
    if pc.any(odd).as_py():
        # JSON lacks them, so they are strings of the names that `json` gives them.
        texts = pc.if_else(odd, pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, _NOTHING), texts)
    return pc.if_else(values.is_valid(), texts, None)


def _list_texts(values: pa.Array, prop_type: PropType) -> pa.Array:
    """All elements at once, dealt out again."""
    item = PropType(Scalar.F32) if prop_type.scalar is Scalar.VECTOR else prop_type.item
    lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    lists = pa.LargeListArray.from_arrays(offsets, json_texts(pc.list_flatten(values), item))
    joined = pc.binary_join(lists, pa.scalar(",", _TEXT))
    texts = pc.binary_join_element_wise(pa.scalar("[", _TEXT), joined, pa.scalar("]", _TEXT), _NOTHING)
    return pc.if_else(values.is_valid(), texts, None)

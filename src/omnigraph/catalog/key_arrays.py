"""Derivation of ids from whole key columns."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.columns import arrow_type
from omnigraph.catalog.keys import TypeKey, float_text, join_texts, missing_key
from omnigraph.errors import InvalidInput
from omnigraph.lang.types import FLOATS, PropType, Scalar

# Characters that JSON escapes; the backslash is first, so that the backslashes of other escapes are not doubled.
_ESCAPED = ("\\", '"', *(chr(code) for code in range(0x20)))
_CONTROL = "[\\x00-\\x1f]"

# Dates and datetimes are written as their stored integers.
_INTEGERS = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}


def derive_ids(key: TypeKey, columns: Mapping[str, pa.Array | pa.ChunkedArray] | pa.Table) -> pa.Array:
    """Return the ids of nodes or edges with these key columns, as one string array.

    Results and errors are those of `keys.derive_id` for each row.
    """
    texts = [_texts(key, column.name, column.type, columns[column.name]) for column in key.columns]
    if len(texts) == 1:
        return texts[0]
    parts: list[pa.Array | str] = ['["']
    for position, (column, text) in enumerate(zip(key.columns, texts, strict=True)):
        if position:
            parts.append('","')
        parts.append(_escape(text) if column.type.scalar is Scalar.STRING else text)
    return pc.binary_join_element_wise(*parts, '"]', "")


def _texts(key: TypeKey, name: str, prop_type: PropType, column: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.null_count:
        raise InvalidInput(missing_key(key))
    expected = arrow_type(prop_type)
    if array.type != expected:
        try:
            array = array.cast(expected)
        except pa.ArrowException as error:
            raise InvalidInput(f"key property '{name}' expects {prop_type}: {error}") from error
    if prop_type.scalar in FLOATS:
        # Arrow formats floats with exponents, and the digits must not depend on the library. Float keys are
        # rare, so that each value is formatted separately.
        texts = [float_text(value, prop_type.scalar, name) for value in array.to_pylist()]
        return pa.array(texts, pa.string())
    if prop_type.scalar in _INTEGERS:
        array = array.cast(_INTEGERS[prop_type.scalar])
    return array.cast(pa.string())


def _escape(texts: pa.Array) -> pa.Array:
    controls = pc.any(pc.match_substring_regex(texts, _CONTROL)).as_py()
    for char in _ESCAPED if controls else _ESCAPED[:2]:
        texts = pc.replace_substring(texts, char, join_texts([char])[2:-2])
    return texts

"""What a property is as an Arrow field, a Spark column and a JSON value, all from the one table `TYPE_NAMES`.

Two types need more than their entry there. A vector is a fixed-size list of its entry. A Blob holds either
bytes or the URI of bytes that stay elsewhere, so it is a struct of both, ``struct<data, uri>``, exactly one
of them set: which one is visible without reading the bytes, a URI needs no escape scheme inside the bytes,
and Lance's own blob type begins with the same two fields. A value that is absent is a null struct; a struct
of two nulls reads as absent too.

Elements of lists and vectors are nullable in Arrow although they never are null: engines hand lists around
that way, and a stricter type would only force casts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa

from omnigraph.catalog.catalog import Column, Table
from omnigraph.lang.types import INT_RANGES, TYPE_NAMES, PropType, Scalar

BLOB_DATA = "data"
BLOB_URI = "uri"
# The endpoints of an edge: as records and mutations name them, and as columns name them.
ENDPOINTS = {"from": "src", "to": "dst"}
# The columns of each kind of table that always have an index, so that lookups by key never scan.
INDEXED_COLUMNS = {"node": ("id",), "edge": ("id", "src", "dst")}

_FORMATS = {Scalar.DATE: "date", Scalar.DATETIME: "date-time"}


@lru_cache(maxsize=1_024)
def arrow_type(prop_type: PropType) -> pa.DataType:
    """The Arrow type of a property.

    >>> str(arrow_type(PropType(Scalar.VECTOR, dim=3))), str(arrow_type(PropType(Scalar.DATETIME)))
    ('fixed_size_list<item: float>[3]', 'timestamp[ms]')
    """
    found = _arrow_scalar(prop_type.scalar)
    if prop_type.scalar is Scalar.BLOB:
        found = pa.struct([(BLOB_DATA, found), (BLOB_URI, _arrow_scalar(Scalar.STRING))])
    if prop_type.scalar is Scalar.VECTOR:
        found = pa.list_(found, prop_type.dim)
    return pa.list_(found) if prop_type.is_list else found


def _arrow_scalar(scalar: Scalar) -> pa.DataType:
    name = TYPE_NAMES[scalar].arrow
    factory = getattr(pa, name, None)
    return pa.type_for_alias(name) if factory is None else factory()


def arrow_field(column: Column, *, physical: bool = False) -> pa.Field:
    """The Arrow field of a column, under its logical or its physical name."""
    name = column.physical if physical else column.name
    return pa.field(name, arrow_type(column.type), nullable=column.type.nullable)


def arrow_schema(table: Table, *, physical: bool = False) -> pa.Schema:
    """The Arrow schema of a table: ``id``, for edges ``src`` and ``dst``, then properties by name."""
    return pa.schema([arrow_field(column, physical=physical) for column in table.columns])


def logical_schema(table: Table) -> pa.Schema:
    """The Arrow schema of rows before validation, by logical column; every field is nullable.

    Validation reports missing required values with their place in the input, which Arrow could not.
    """
    return pa.schema([item.with_nullable(True) for item in arrow_schema(table)])


def spark_type(prop_type: PropType) -> str:
    """The Spark DDL type of a property.

    >>> spark_type(PropType(Scalar.U32, is_list=True)), spark_type(PropType(Scalar.BLOB))
    ('ARRAY<BIGINT>', 'STRUCT<data: BINARY, uri: STRING>')
    """
    found = TYPE_NAMES[prop_type.scalar].spark
    if prop_type.scalar is Scalar.BLOB:
        found = f"STRUCT<{BLOB_DATA}: {found}, {BLOB_URI}: {TYPE_NAMES[Scalar.STRING].spark}>"
    return f"ARRAY<{found}>" if prop_type.is_list or prop_type.scalar is Scalar.VECTOR else found


def spark_ddl(table: Table) -> str:
    """The Spark DDL of a table under its logical names."""
    return ", ".join(
        f"`{column.name}` {spark_type(column.type)}{'' if column.type.nullable else ' NOT NULL'}"
        for column in table.columns
    )


def json_schema(prop_type: PropType) -> dict[str, Any]:
    """The JSON Schema of the values of a property as queries return and records hold them.

    >>> json_schema(PropType(Scalar.I32, nullable=True))
    {'type': ['integer', 'null'], 'minimum': -2147483648, 'maximum': 2147483647}
    """
    found = _json_array(prop_type) or _json_scalar(prop_type)
    if prop_type.nullable:
        found["type"] = [found["type"], "null"]
        if "enum" in found:
            found["enum"] = [*found["enum"], None]
    return found


def _json_array(prop_type: PropType) -> dict[str, Any] | None:
    if prop_type.is_list:
        return {"type": "array", "items": _json_scalar(prop_type.item)}
    if prop_type.scalar is Scalar.VECTOR:
        dim = prop_type.dim
        return {"type": "array", "items": {"type": "number"}, "minItems": dim, "maxItems": dim}
    return None


def _json_scalar(prop_type: PropType) -> dict[str, Any]:
    found: dict[str, Any] = {"type": TYPE_NAMES[prop_type.scalar].json}
    if prop_type.enum_values is not None:
        found["enum"] = list(prop_type.enum_values)
    if prop_type.scalar in INT_RANGES:
        found["minimum"], found["maximum"] = INT_RANGES[prop_type.scalar]
    if prop_type.scalar in _FORMATS:
        found["format"] = _FORMATS[prop_type.scalar]
    return found

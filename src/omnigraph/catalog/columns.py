"""Arrow, Spark and JSON types of properties, all derived from `TYPE_NAMES`.

Two types need more than their entry there. A vector is a fixed-size list of its entry. A Blob contains either
bytes or the URI of external bytes. It is stored as ``struct<data, uri>`` with exactly one member set: readers can
tell the two cases apart without reading the bytes, URIs need no escaping inside the bytes, and the blob type of
Lance starts with the same two fields. A missing value is a null struct; a struct of two nulls reads as missing
too.

Elements of lists and vectors are nullable in Arrow although they are never null. Engines exchange lists in that
form, and a stricter type would force casts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa

from omnigraph.catalog.catalog import Column, Table
from omnigraph.lang.types import INT_RANGES, TYPE_NAMES, ColumnType, ObjectType, PropType, Scalar

BLOB_DATA = "data"
BLOB_URI = "uri"
# Columns of the endpoints of an edge by their names in records and mutations, and the reverse.
ENDPOINT_COLUMNS = {"from": "src", "to": "dst"}
ENDPOINT_NAMES = {column: name for name, column in ENDPOINT_COLUMNS.items()}
# Columns of each kind of table that always have an index, so that lookups by key never scan.
INDEXED_COLUMNS = {"node": ("id",), "edge": ("id", "src", "dst")}

_FORMATS = {Scalar.DATE: "date", Scalar.DATETIME: "date-time"}


@lru_cache(maxsize=1_024)
def arrow_type(prop_type: PropType) -> pa.DataType:
    """Return the Arrow type of a property.

    >>> str(arrow_type(PropType(Scalar.VECTOR, dim=3))), str(arrow_type(PropType(Scalar.DATETIME)))
    ('fixed_size_list<item: float>[3]', 'timestamp[ms]')
    """
    item = _arrow_scalar(prop_type.scalar)
    if prop_type.scalar is Scalar.BLOB:
        item = pa.struct([(BLOB_DATA, item), (BLOB_URI, _arrow_scalar(Scalar.STRING))])
    if prop_type.scalar is Scalar.VECTOR:
        item = pa.list_(item, prop_type.dim)
    return pa.list_(item) if prop_type.is_list else item


def column_arrow_type(type_: ColumnType) -> pa.DataType:
    """Return the Arrow type of a result column: a struct for whole entities."""
    if isinstance(type_, ObjectType):
        return pa.struct([(name, arrow_type(field)) for name, field in type_.fields])
    return arrow_type(type_)


def _arrow_scalar(scalar: Scalar) -> pa.DataType:
    name = TYPE_NAMES[scalar].arrow
    factory = getattr(pa, name, None)
    return pa.type_for_alias(name) if factory is None else factory()


def arrow_field(column: Column, *, physical: bool = False) -> pa.Field:
    """Return the Arrow field of a column with its logical or its physical name."""
    type_ = arrow_type(column.type)
    if not physical:
        return pa.field(column.name, type_, nullable=column.type.nullable)
    if column.type.scalar is Scalar.BLOB:
        # Uncompressed bytes can be read in ranges.
        data = type_.field(BLOB_DATA).with_metadata({"lance-encoding:compression": "none"})
        type_ = pa.struct([data, type_.field(BLOB_URI)])
    return pa.field(column.physical, type_, nullable=column.type.nullable)


@lru_cache(maxsize=1_024)
def arrow_schema(table: Table, *, physical: bool = False) -> pa.Schema:
    """Return the Arrow schema of a table: ``id``, for edges ``src`` and ``dst``, then properties by name."""
    return pa.schema([arrow_field(column, physical=physical) for column in table.columns])


@lru_cache(maxsize=1_024)
def logical_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of rows before validation, with logical names; every field is nullable.

    Validation reports missing required values with their location in the input, which Arrow cannot.
    """
    return pa.schema([item.with_nullable(True) for item in arrow_schema(table)])


def spark_type(prop_type: PropType) -> str:
    """Return the Spark DDL type of a property.

    >>> spark_type(PropType(Scalar.U32, is_list=True)), spark_type(PropType(Scalar.BLOB))
    ('ARRAY<BIGINT>', 'STRUCT<data: BINARY, uri: STRING>')
    """
    item = TYPE_NAMES[prop_type.scalar].spark
    if prop_type.scalar is Scalar.BLOB:
        item = f"STRUCT<{BLOB_DATA}: {item}, {BLOB_URI}: {TYPE_NAMES[Scalar.STRING].spark}>"
    return f"ARRAY<{item}>" if prop_type.is_list or prop_type.scalar is Scalar.VECTOR else item


def column_spark_type(type_: ColumnType) -> str:
    """Return the Spark DDL type of a result column: a struct for whole entities."""
    if isinstance(type_, ObjectType):
        return f"STRUCT<{', '.join(f'`{name}`: {spark_type(field)}' for name, field in type_.fields)}>"
    return spark_type(type_)


def spark_ddl(table: Table) -> str:
    """Return the Spark DDL of a table with logical names."""
    return ", ".join(
        f"`{column.name}` {spark_type(column.type)}{'' if column.type.nullable else ' NOT NULL'}"
        for column in table.columns
    )


def json_schema(prop_type: PropType) -> dict[str, Any]:
    """Return the JSON Schema of the values of a property in query results and records.

    >>> json_schema(PropType(Scalar.I32, nullable=True))
    {'type': ['integer', 'null'], 'minimum': -2147483648, 'maximum': 2147483647}
    """
    schema = _json_array(prop_type) or _json_scalar(prop_type)
    if prop_type.nullable:
        schema["type"] = [schema["type"], "null"]
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    return schema


def _json_array(prop_type: PropType) -> dict[str, Any] | None:
    if prop_type.is_list:
        return {"type": "array", "items": _json_scalar(prop_type.item)}
    if prop_type.scalar is Scalar.VECTOR:
        dim = prop_type.dim
        return {"type": "array", "items": {"type": "number"}, "minItems": dim, "maxItems": dim}
    return None


def _json_scalar(prop_type: PropType) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": TYPE_NAMES[prop_type.scalar].json}
    if prop_type.enum_values is not None:
        schema["enum"] = list(prop_type.enum_values)
    if prop_type.scalar in INT_RANGES:
        schema["minimum"], schema["maximum"] = INT_RANGES[prop_type.scalar]
    if prop_type.scalar in _FORMATS:
        schema["format"] = _FORMATS[prop_type.scalar]
    return schema

"""Arrow, Spark and JSON types of properties."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from omnigraph.catalog.columns import arrow_schema, arrow_type, json_schema, spark_ddl, spark_type
from omnigraph.lang.types import TYPE_NAMES, PropType, Scalar
from tests.catalog.strategies import prop_types
from tests.catalog.test_identity import catalog_of

BLOB = pa.struct([("data", pa.large_binary()), ("uri", pa.string())])

SCALARS: list[tuple[Scalar, pa.DataType, str, str]] = [
    (Scalar.STRING, pa.string(), "STRING", "string"),
    (Scalar.BLOB, BLOB, "STRUCT<data: BINARY, uri: STRING>", "string"),
    (Scalar.BOOL, pa.bool_(), "BOOLEAN", "boolean"),
    (Scalar.I32, pa.int32(), "INT", "integer"),
    (Scalar.I64, pa.int64(), "BIGINT", "integer"),
    (Scalar.U32, pa.uint32(), "BIGINT", "integer"),
    (Scalar.U64, pa.uint64(), "DECIMAL(20,0)", "integer"),
    (Scalar.F32, pa.float32(), "FLOAT", "number"),
    (Scalar.F64, pa.float64(), "DOUBLE", "number"),
    (Scalar.DATETIME, pa.timestamp("ms"), "TIMESTAMP_NTZ", "string"),
    (Scalar.DATE, pa.date32(), "DATE", "string"),
]


@pytest.mark.parametrize(("scalar", "arrow", "spark", "json_type"), SCALARS, ids=lambda item: str(item))
def test_a_scalar_maps_to_its_types(scalar: Scalar, arrow: pa.DataType, spark: str, json_type: str) -> None:
    found = PropType(scalar)
    assert (arrow_type(found), spark_type(found), json_schema(found)["type"]) == (arrow, spark, json_type)


def test_every_scalar_is_tried() -> None:
    assert {scalar for scalar, *_ in SCALARS} == set(TYPE_NAMES) - {Scalar.VECTOR}


def test_lists_and_vectors() -> None:
    vector, numbers = PropType(Scalar.VECTOR, dim=3), PropType(Scalar.U32, is_list=True)
    assert arrow_type(vector) == pa.list_(pa.float32(), 3)
    assert arrow_type(numbers) == pa.list_(pa.uint32())
    assert (spark_type(vector), spark_type(numbers)) == ("ARRAY<FLOAT>", "ARRAY<BIGINT>")


def test_a_table_has_its_logical_and_its_physical_schema() -> None:
    text = "node A { b: String @key  a: I32? }  edge E: A -> A { w: F32  day: Date? }"
    edge = catalog_of(text).table("edge", "E")
    expected = [("id", False), ("src", False), ("dst", False), ("day", True), ("w", False)]
    assert [(field.name, field.nullable) for field in arrow_schema(edge)] == expected
    assert arrow_schema(edge, physical=True).names == ["id", "src", "dst", "day_5", "w_6"]
    assert arrow_schema(edge, physical=True).types == arrow_schema(edge).types
    assert spark_ddl(edge) == (
        "`id` STRING NOT NULL, `src` STRING NOT NULL, `dst` STRING NOT NULL, `day` DATE, `w` FLOAT NOT NULL"
    )


@pytest.mark.parametrize(
    ("prop_type", "expected"),
    [
        (PropType(Scalar.BOOL), {"type": "boolean"}),
        (PropType(Scalar.U32), {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}),
        (PropType(Scalar.DATE, nullable=True), {"type": ["string", "null"], "format": "date"}),
        (PropType(Scalar.DATETIME), {"type": "string", "format": "date-time"}),
        (
            PropType(Scalar.STRING, nullable=True, enum_values=("a", "b")),
            {"type": ["string", "null"], "enum": ["a", "b", None]},
        ),
        (
            PropType(Scalar.VECTOR, dim=2),
            {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        ),
        (
            PropType(Scalar.STRING, nullable=True, is_list=True),
            {"type": ["array", "null"], "items": {"type": "string"}},
        ),
    ],
    ids=str,
)
def test_json_schema_fragments(prop_type: PropType, expected: dict[str, Any]) -> None:
    assert json_schema(prop_type) == expected


@given(prop_types())
def test_every_type_has_every_mapping(prop_type: PropType) -> None:
    assert pa.array([None], arrow_type(prop_type)).null_count == 1
    assert spark_type(prop_type)
    assert json_schema(prop_type)["type"]

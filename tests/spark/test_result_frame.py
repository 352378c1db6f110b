"""Rows that came from elsewhere are the DataFrame that a query on Spark gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnigraph as og
from omnigraph.spark.engine.result_frame import result_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Starting Spark on a busy machine takes a minute.
pytestmark = pytest.mark.spark

SCHEMA = (
    "node Thing { name: String @key  i: I32?  u: U32?  w: U64?  f: F64?  ok: Bool?  day: Date?  at: DateTime?"
    "  tags: [String]?  v: Vector(2)? }"
)
ALL = (
    "query all() { match { $t: Thing } return { $t.name, $t.i, $t.u, $t.w as w, $t.f, $t.ok, $t.day, $t.at,"
    " $t.tags, $t.v as v, $t.* as thing } order { $t.name asc } }"
)
FULL = {
    "name": "full",
    "i": -1,
    "u": 2**32 - 1,
    "w": 2**64 - 1,
    "f": 0.5,
    "ok": True,
    "day": "1969-07-20",
    "at": "2024-05-01T12:30:00.123Z",
    "tags": ["a", "b"],
    "v": [1.0, 2.0],
}


def test_result_rows_as_dataframe_equal_the_frame_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "things.omni"), schema=SCHEMA)
    for rows in ([], [{"name": "empty"}], [FULL]):
        if rows:
            graph.load({"Thing": rows})
        found = graph.query(ALL)
        frame, expected = result_frame(spark, found.table, found.types), graph.dataframe(ALL, spark=spark)
        assert [(field.name, field.dataType) for field in frame.schema] == [
            (field.name, field.dataType) for field in expected.schema
        ]
        assert frame.collect() == expected.collect()

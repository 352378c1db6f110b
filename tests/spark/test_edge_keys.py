"""Edges with a key on Spark: loads, the data source and a stream derive the ids that other writes derive."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Starting Spark on a busy machine takes a minute.
pytestmark = pytest.mark.spark

SCHEMA = """
node Customer { name: String @key }
node Order { number: I64 @key }
edge Rated: Customer -> Order { day: Date  stars: I32?  @key(src, dst, day) }
"""
ID = '["ana","7","30"]'


@pytest.fixture
def graph(tmp_path: Path) -> og.LocalGraph:
    made = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    made.load({"Customer": [{"name": "ana"}], "Order": [{"number": 7}, {"number": 8}]}, "append")
    made.load({"Rated": [{"from": "ana", "to": 7, "day": "1970-01-31", "stars": 1}]}, "append")
    return made


def stars(graph: og.LocalGraph) -> dict[str, int]:
    out = StringIO()
    graph.export(out, types=["Rated"])
    records: list[dict[str, Any]] = [json.loads(line)["data"] for line in out.getvalue().splitlines()]
    return {item["id"]: item["stars"] for item in records}


def rated(spark: SparkSession, *rows: tuple[str, int, str, int]) -> Any:
    return spark.createDataFrame(list(rows), "src STRING, dst BIGINT, day STRING, stars INT").selectExpr(
        "src", "CAST(dst AS STRING) AS dst", "CAST(day AS DATE) AS day", "stars"
    )


def test_spark_load_of_files_merges_edges_by_key(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "rated.csv"
    file.write_text("who,what,day,stars\nana,7,1970-01-31,5\nana,8,1970-01-31,4\n")

    graph.load(
        {"Rated": str(file)},
        "merge",
        engine="spark",
        spark=spark,
        mapping={"Rated": {"key": ["who", "what", "day"]}},
    )

    assert stars(graph) == {ID: 5, '["ana","8","30"]': 4}


def test_spark_load_of_two_edges_of_one_key_names_the_second_row(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "rated.csv"
    file.write_text("from,to,day,stars\nana,8,1970-01-31,5\nana,8,1970-01-31,4\n")

    with pytest.raises(ConstraintViolation, match=r"Rated\.\(src, dst, day\)") as caught:
        graph.load({"Rated": str(file)}, "merge", engine="spark", spark=spark)

    assert caught.value.violations[0]["line"] == 2
    assert stars(graph) == {ID: 1}


def test_data_source_and_stream_in_merge_mode_update_the_edge_of_a_key(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    options = {"uri": graph.uri, "type": "Rated", "mode": "merge"}
    rated(spark, ("ana", 7, "1970-01-31", 3), ("ana", 8, "1970-02-01", 2)).write.format("omnigraph").options(
        **options
    ).mode("append").save()
    assert stars(graph) == {ID: 3, '["ana","8","31"]': 2}

    (tmp_path / "in").mkdir()
    record = {"src": "ana", "dst": "7", "day": "1970-01-31", "stars": 4}
    (tmp_path / "in" / "1.json").write_text(json.dumps(record))
    stream = spark.readStream.schema("src STRING, dst STRING, day DATE, stars INT").json(str(tmp_path / "in"))
    options["checkpointLocation"] = str(tmp_path / "checkpoint")
    query = stream.writeStream.format("omnigraph").options(**options).trigger(availableNow=True).start()
    query.awaitTermination()

    assert stars(graph) == {ID: 4, '["ana","8","31"]': 2}

"""Loads that leave their index segments to the next optimize: in tasks, by the data source and in a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnigraph as og

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = """
node City { name: String @key  kind: String? }
edge Road: City -> City { @key(src, dst) }
"""
NEAR = "query near($n: String) { match { $a: City { name: $n }  $a road $b } return { $b.name as name } }"


def covered(graph: og.LocalGraph, key: str) -> bool:
    """Whether the index of the ids covers every row of a type."""
    snapshot = graph._repository.snapshot("main")
    return not snapshot.tables.unindexed_fragments(snapshot.pin(key), "id", "BTREE")


def test_spark_load_with_index_later_reads_the_same_and_optimize_completes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    cities = tmp_path / "cities.csv"
    cities.write_text("name,kind\n" + "".join(f"c{n},k\n" for n in range(50)), encoding="utf-8")
    roads = spark.createDataFrame(
        [(f"c{n}", f"c{(n * 7) % 50}") for n in range(50)], "`from` string, `to` string"
    )

    loaded = graph.load({"City": cities, "Road": roads}, spark=spark, index="later")
    assert loaded.unindexed == loaded.report()["unindexed"] == {"City": 50, "Road": 50}
    assert not covered(graph, "node:City")
    assert not covered(graph, "edge:Road")
    before = graph.query(NEAR, {"n": "c3"}).rows()
    assert before == [{"name": "c21"}]

    assert graph.optimize().commit is not None
    assert covered(graph, "node:City")
    assert covered(graph, "edge:Road")
    assert graph.query(NEAR, {"n": "c3"}).rows() == before

    write = spark.createDataFrame([("c3", "z"), ("new", "z")], "name string, kind string").write
    options = {"uri": graph.uri, "type": "City", "mode": "merge"}
    write.format("omnigraph").options(**options, index="later").mode("append").save()
    assert not covered(graph, "node:City")
    assert (graph.get("City", "c3"), graph.get("City", "new")) == (
        {"id": "c3", "name": "c3", "kind": "z"},
        {"id": "new", "name": "new", "kind": "z"},
    )
    indexed = graph.load({"City": spark.createDataFrame([("more", "k")], "name string, kind string")})
    assert indexed.unindexed == {}

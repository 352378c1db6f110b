"""The types of a graph as SQL views: one commit for all of them, until they are refreshed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

import omnigraph as og
import omnigraph.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"


def test_registered_graph_is_read_by_sql_at_one_commit_until_refresh(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph = og.init(tmp_path / "it's.omni", schema=SCHEMA)
    people = [{"name": f"p{number}", "age": number} for number in range(10)]
    graph.load({"Person": people, "Knows": [{"from": "p1", "to": "p2"}]})
    tables = omnigraph.spark.register(spark, graph=str(tmp_path / "it's.omni"), name="friends")
    try:
        joined = spark.sql("select p.age from friends_Person p join friends_knows k on p.id = k.src")
        assert [row.age for row in joined.collect()] == [1]
        graph.load({"Person": [{"name": "new"}]})
        assert spark.table("friends_Person").count() == 10
        assert tables.refresh().commit == graph.commits(limit=1)[0].id
        assert spark.table("friends_Person").count() == 11
        pinned = omnigraph.spark.register(
            spark, graph=graph.uri, name="friends", commit=graph.commits(limit=2)[1].id
        )
        assert (
            spark.table("friends_Person").count()
            == pinned.refresh().spark.table("friends_Person").count()
            == 10
        )
        pinned.drop()
    finally:
        tables.drop()
    assert not spark.catalog.tableExists("friends_Person")


def test_partitions_of_one_fragment_hold_rows_per_partition(spark: SparkSession, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", schema=SCHEMA)
    graph.load({"Person": [{"name": f"p{number}", "age": number} for number in range(10)]})
    graph.mutate('query gone() { delete Person where name = "p4" }')
    frame = spark.read.format("omnigraph").options(uri=graph.uri, type="Person", rowsPerPartition=3).load()
    parts = frame.selectExpr("spark_partition_id() as part", "age").collect()
    counts = [sum(row.part == part for row in parts) for part in sorted({row.part for row in parts})]
    assert sorted(row.age for row in parts) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert max(counts) <= 3


def test_temporary_view_in_sql_reads_a_type_and_a_table_is_refused_with_that_hint(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph = og.init(tmp_path / "g.omni", schema=SCHEMA)
    graph.load({"Person": [{"name": "Ana", "age": 7}, {"name": "Bo"}]})
    options = f"USING omnigraph OPTIONS (uri '{graph.uri}', type 'Person', columns 'name', where 'age = 7')"
    spark.sql(f"CREATE TEMPORARY VIEW sevens {options}")
    try:
        assert [tuple(row) for row in spark.sql("SELECT * FROM sevens").collect()] == [("Ana",)]
    finally:
        spark.catalog.dropTempView("sevens")
    with pytest.raises(AnalysisException, match=r"CREATE TEMPORARY VIEW name USING omnigraph OPTIONS"):
        spark.sql(f"CREATE TABLE people {options}")

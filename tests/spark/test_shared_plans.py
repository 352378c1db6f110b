"""What several DataFrames of a load share is computed once, and is not persisted afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omnigraph as og
from omnigraph.spark.engine.shared_plans import SETTING, common_plans, shared_plans

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: I64? }
node City { name: String @key }
edge Lives: Person -> City { @key(src, dst) }
"""
ROWS = 40


def counted(spark: SparkSession, folder: Path) -> DataFrame:
    """Rows of a source that leaves a file for each partition whenever it is read."""
    folder.mkdir()

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import uuid

        (folder / uuid.uuid4().hex).touch()
        yield from batches

    numbers = spark.range(0, ROWS, 1, 2).selectExpr(
        "concat('p', id) AS person", "id AS age", "concat('c', id % 3) AS city"
    )
    return numbers.mapInArrow(read, numbers.schema)


def sources(rows: DataFrame) -> dict[str, Any]:
    return {
        "Person": rows.selectExpr("person AS name", "age"),
        "City": rows.selectExpr("city AS name").distinct(),
        "Lives": rows.selectExpr("person AS `from`", "city AS `to`"),
    }


def reads(folder: Path) -> int:
    return len(list(folder.iterdir()))


def persisted(spark: SparkSession) -> int:
    return int(spark._jsc.sc().getPersistentRDDs().size())


def plans(frames: list[DataFrame]) -> list[str]:
    """The subplans that would be persisted."""
    return [frame._jdf.queryExecution().analyzed().toString() for frame in common_plans(frames)]


def test_load_of_dataframes_that_share_a_source_reads_it_once(spark: SparkSession, tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    before = persisted(spark)
    rows = counted(spark, tmp_path / "reads")
    receipt = graph.load(sources(rows), spark=spark)
    assert (receipt.nodes, receipt.edges) == ({"City": 3, "Person": ROWS}, {"Lives": ROWS})
    # One task for each of the two partitions.
    assert reads(tmp_path / "reads") == 2
    assert persisted(spark) == before

    # A load that fails leaves nothing behind either.
    with pytest.raises(og.errors.ConstraintViolation):
        graph.load(sources(rows), spark=spark)
    assert reads(tmp_path / "reads") == 4
    assert persisted(spark) == before

    # The same DataFrame for several types, each with its columns.
    columns = {
        "Person": {"columns": {"name": "person"}, "ignore": True},
        "Lives": {"from": "person", "to": "city", "ignore": True},
    }
    graph.load({"Person": rows, "Lives": rows}, "merge", mapping=columns, spark=spark)
    assert reads(tmp_path / "reads") == 6


def test_shared_plans_leaves_alone_what_is_cheap_persisted_or_turned_off(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = counted(spark, tmp_path / "reads")
    found = list(sources(rows).values())
    spark.conf.set(SETTING, "false")
    try:
        with shared_plans(found) as number:
            assert number == 0
    finally:
        spark.conf.unset(SETTING)
    rows.persist()
    try:
        with shared_plans(found) as number:
            assert number == 0
        assert rows.storageLevel.useMemory
    finally:
        rows.unpersist()
    spark.range(5).write.parquet(str(tmp_path / "rows.parquet"))
    scan = spark.read.parquet(str(tmp_path / "rows.parquet"))
    for cheap in (scan, spark.range(5)):
        assert plans([cheap.where("id > 1"), cheap.select("id")]) == []
    summed = scan.groupBy("id").count()
    (found_plan,) = plans([summed.where("id > 1"), summed.where("id < 1"), scan])
    assert found_plan.startswith("Aggregate")

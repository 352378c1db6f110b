"""Use OmniGraph from a PySpark script: load DataFrames, query, write, and stream into a graph.

``python examples/spark/pipeline.py FOLDER`` creates the graph in that folder. ``--master spark://host:7077`` runs
the jobs on a cluster, which must be able to access the folder. Run it with the Python that has omnigraph installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import omnigraph as og
import omnigraph.spark

SCHEMA = """
node Sensor {
  name: String @key
  site: String @index
}
node Reading {
  value: F64
  at: DateTime
}
edge Took: Sensor -> Reading
edge Near: Sensor -> Sensor {
  metres: F64?
  @unique(src, dst)
}
"""
HOT = """
query hot($least: F64) {
  match { $s: Sensor  $s took $r  $r.value >= $least }
  return { $s.site as site, count($r) as readings, max($r.value) as highest }
  order { site }
}
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--master", default="local[2]")
    arguments = options.parse_args()
    spark = (
        SparkSession.builder.master(arguments.master)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", 4)
        .getOrCreate()
    )
    omnigraph.spark.register(spark)
    uri = str(arguments.folder / "plant.omni")
    graph = og.init(uri, schema=SCHEMA)

    # Load DataFrames of several types as one commit. Edges are checked against all loaded nodes.
    sensors = spark.range(60).select(
        sf.format_string("s%02d", "id").alias("name"),
        sf.format_string("site %d", sf.col("id") % 3).alias("site"),
    )
    readings = spark.range(6_000).select(
        sf.format_string("r%05d", "id").alias("id"),
        (sf.col("id") % 100).cast("double").alias("value"),
        sf.timestamp_millis(sf.lit(1_750_000_000_000) + sf.col("id") * 1000)
        .cast("timestamp_ntz")
        .alias("at"),
    )
    took = spark.range(6_000).select(
        sf.format_string("s%02d", sf.col("id") % 60).alias("from"),
        sf.format_string("r%05d", "id").alias("to"),
    )
    done = graph.load(
        {"Sensor": sensors, "Reading": readings, "Took": took}, message="the plant", spark=spark
    )
    print(f"loaded {done.total} records in {sum(done.seconds.values()):.1f} s")

    # Write a DataFrame as rows of one type, on a new branch.
    near = spark.range(59).select(
        sf.format_string("s%02d", "id").alias("from"),
        sf.format_string("s%02d", sf.col("id") + 1).alias("to"),
        (sf.col("id") * 1.5).alias("metres"),
    )
    target = {"uri": uri, "type": "Near", "branch": "survey", "createFrom": "main"}
    near.write.format("omnigraph").options(**target).mode("append").save()

    # Run the same query on the branch: in this process, and on Spark.
    here = graph.query(HOT, {"least": 95.0}, branch="survey").rows()
    there = graph.query(HOT, {"least": 95.0}, branch="survey", engine="spark", spark=spark).rows()
    print(f"equal results: {here}" if here == there else f"results differ: {here} and {there}")

    # Stream into the graph: every micro-batch is one commit, exactly once even if Spark retries it.
    landing = arguments.folder / "landing"
    landing.mkdir()
    for number in range(2):
        (landing / f"{number}.json").write_text(
            f'{{"name": "s{number:02}", "site": "moved"}}\n', encoding="utf-8"
        )
    (
        spark.readStream.schema("name string, site string")
        .option("maxFilesPerTrigger", 1)
        .json(str(landing))
        .writeStream.format("omnigraph")
        .options(
            uri=uri, type="Sensor", mode="merge", checkpointLocation=str(arguments.folder / "checkpoint")
        )
        .trigger(availableNow=True)
        .start()
        .awaitTermination(120)
    )
    moved = spark.read.format("omnigraph").options(uri=uri, type="Sensor", where='site = "moved"').load()
    print(f"moved: {sorted(row['name'] for row in moved.select('name').collect())}")
    print(f"commits on main: {[commit.operation for commit in graph.commits()]}")
    spark.stop()


if __name__ == "__main__":
    main()

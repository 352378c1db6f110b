"""Patches, deletes and change logs on Spark: DataFrames, the data source, and streams of several types."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.load.sink import SinkStream
from omnigraph.spark.datasource.datasource import data_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

pytestmark = pytest.mark.spark

SCHEMA = """
node City { name: String @key  kind: String  inhabitants: I64? }
node Person { name: String @key  age: I32? }
edge Lives: Person -> City { since: I32?  @key(src, dst) }
edge Visits: Person -> City { since: I32? }
"""
FIELDS = (
    "entity STRING, op STRING, seq LONG, name STRING, kind STRING, age INT, "
    "`from` STRING, `to` STRING, since INT"
)
# Each file is a micro-batch: repeated and late rows, several types, a node deleted with its edge.
BATCHES: list[list[dict[str, Any]]] = [
    [
        {"entity": "City", "op": "c", "seq": 1, "name": "Bern", "kind": "a"},
        {"entity": "City", "op": "u", "seq": 3, "name": "Bern", "kind": "c"},
        {"entity": "City", "op": "u", "seq": 2, "name": "Bern", "kind": "b"},
        {"entity": "City", "op": "r", "seq": 4, "name": "Rome", "kind": "x"},
        {"entity": "Person", "op": "c", "seq": 5, "name": "Ana", "age": 3},
        {"entity": "Lives", "op": "c", "seq": 6, "from": "Ana", "to": "Bern", "since": 1},
        {"entity": "edge:Lives", "op": "c", "seq": 6, "from": "Ana", "to": "Rome", "since": 1},
        # An edge without a key: a batch that is applied again inserts it again.
        {"entity": "Visits", "op": "c", "seq": 6, "from": "Ana", "to": "Rome", "since": 3},
    ],
    [
        {"entity": "City", "op": "d", "seq": 7, "name": "Bern"},
        {"entity": "Lives", "op": "u", "seq": 8, "from": "Ana", "to": "Rome", "since": 2},
        {"entity": "Lives", "op": "c", "seq": 6, "from": "Ana", "to": "Rome", "since": 1},
        {"entity": "Person", "op": "d", "seq": 9, "name": "Nobody"},
    ],
]
EXPECTED = {
    ("City", "Rome"): {"kind": "x"},
    ("Person", "Ana"): {"age": 3},
    ("Lives", '["Ana","Rome"]'): {"since": 2},
    ("Visits", "Ana Rome 1"): {"since": 3},
}


def rows(graph: og.Graph, branch: str = "main") -> dict[tuple[str, str], dict[str, Any]]:
    """Values of all rows by type and id, without nulls. An edge without a key has a number among equal ones."""
    stream = io.StringIO()
    graph.export(stream, branch=branch)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for line in stream.getvalue().splitlines():
        record = json.loads(line)
        data = record.get("data", {})
        values = {
            name: value for name, value in data.items() if value is not None and name not in ("id", "name")
        }
        name = record.get("type") or record["edge"]
        id_ = data.get("id") or data.get("name")
        if name == "Visits":
            ends = f"{record['from']} {record['to']}"
            id_ = f"{ends} {1 + sum(key[1].startswith(ends) for key in found)}"
        found[name, id_] = values
    return found


@pytest.fixture
def graph(tmp_path: Path) -> og.LocalGraph:
    return og.init(str(tmp_path / "graph"), schema=SCHEMA)


def test_spark_patch_and_change_log_of_frames_equal_local_loads(
    graph: og.LocalGraph, spark: SparkSession
) -> None:
    graph.load({"City": [{"name": f"c{n}", "kind": "a", "inhabitants": n} for n in range(9)]})
    graph.branches.create("local")
    patch = [{"name": f"c{n}", "inhabitants": 100 + n} for n in range(0, 9, 2)]
    log = [
        {"name": f"c{n % 5}", "kind": f"k{n}", "op": "D" if n % 4 == 3 else "U", "seq": (7 * n) % 12}
        for n in range(12)
    ]
    steps: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
        (patch, {"mode": "patch"}),
        (log, {"mode": "patch", "op_column": "op", "order_by": "seq"}),
        ([{"name": "c8"}, {"name": "none"}], {"mode": "delete"}),
    ]
    for items, options in steps:
        frame = spark.createDataFrame(items).repartition(3)
        distributed = graph.load({"City": frame}, **options)
        local = graph.load({"City": pa.Table.from_pylist(items)}, branch="local", **options)
        assert distributed.engine == "spark"
        assert (distributed.affected, distributed.skipped) == (local.affected, local.skipped)
    assert rows(graph) == rows(graph, "local")


def test_spark_write_of_several_types_is_one_commit(graph: og.LocalGraph, spark: SparkSession) -> None:
    for items in BATCHES:
        before = len(graph.commits())
        (
            spark.createDataFrame([json.loads(json.dumps(item)) for item in items], FIELDS)
            .repartition(3)
            .write.format("omnigraph")
            .options(uri=graph.uri, typeColumn="entity", mode="merge", opColumn="op", orderBy="seq")
            .mode("append")
            .save()
        )
        assert len(graph.commits()) == before + 1
    assert rows(graph) == EXPECTED


class Killed:
    """A stream whose process is killed when the graph has the batch, before Spark hears of it."""

    def __init__(self, stream: SinkStream) -> None:
        self._stream = stream

    def stage(self, stream: str, batch: int, number: int, batches: Iterator[pa.RecordBatch]) -> Any:
        return self._stream.stage(stream, batch, number, batches)

    def commit(self, batch: int, parts: Sequence[Any]) -> None:
        import signal

        self._stream.commit(batch, parts)
        os.kill(os.getpid(), signal.SIGKILL)

    def abort(self, batch: int, parts: Sequence[Any]) -> None:
        self._stream.abort(batch, parts)


def test_stream_of_changes_of_several_types_killed_after_commit_applies_each_batch_once(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    class Killing(data_source()):  # type: ignore[misc] # a class made by a function
        @classmethod
        def name(cls) -> str:
            return "killing_changes"

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
            made = super().streamWriter(schema, overwrite)
            made._stream = Killed(made._stream)
            return made

    spark.dataSource.register(Killing)
    (tmp_path / "in").mkdir()

    def run(source: str) -> None:
        write = (
            spark.readStream.schema(FIELDS)
            .option("maxFilesPerTrigger", 1)
            .json(str(tmp_path / "in"))
            .writeStream.format(source)
            .options(uri=graph.uri, typeColumn="entity", mode="merge", opColumn="op", orderBy="seq")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        write.start().awaitTermination()

    for number, items in enumerate(BATCHES):
        path = tmp_path / "in" / f"{number}.json"
        path.write_text("".join(f"{json.dumps(item)}\n" for item in items), encoding="utf-8")
        os.utime(path, (1_750_000_000 + number, 1_750_000_000 + number))
        with pytest.raises(Exception, match="crashed"):
            run("killing_changes")
    run("omnigraph")
    assert rows(graph) == EXPECTED
    # A batch that was committed before the kill is not committed again.
    assert len(graph.commits()) == 1 + len(BATCHES)


def test_spark_batch_of_frames_files_and_rows_is_one_commit_once(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("name,age\nAna,3\nBo,4\n", encoding="utf-8")
    cities = spark.createDataFrame([{"name": f"c{n}", "kind": "a"} for n in range(6)])

    def apply(key: str) -> None:
        with graph.batch(idempotency_key=key) as batch:
            batch.merge("City", cities)
            batch.patch("City", spark.createDataFrame([{"name": "c1", "inhabitants": 7}]))
            batch.append("Person", file)
            batch.load({"Lives": [{"from": "Ana", "to": "c1"}, {"from": "Bo", "to": "c2"}]})
            batch.delete("City", [{"name": "c5"}])
        assert batch.receipt is not None
        assert batch.receipt.engine == "spark"

    before = len(graph.commits())
    apply("batch 1")
    apply("batch 1")
    assert len(graph.commits()) == before + 1
    found = rows(graph)
    assert found["City", "c1"] == {"kind": "a", "inhabitants": 7}
    assert ("City", "c5") not in found
    assert len(found) == 5 + 2 + 2

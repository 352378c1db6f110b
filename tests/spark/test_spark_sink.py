"""Writing through ``format("omnigraph")`` in a real Spark: one commit or nothing, each batch of a stream once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput
from omnigraph.load.sink import SinkStream
from omnigraph.rules.load_mode import LoadMode
from omnigraph.spark.datasource.datasource import data_source
from tests.spark.loads import BEFORE, MODES, SCHEMA
from tests.spark.test_datasource import SCHEMA as WIDE
from tests.spark.test_datasource import VALUES
from tests.spark.test_spark_load import lines
from tests.support.s3 import Bucket
from tests.support.waiting import HANG
from tests.support.workers import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

pytest_plugins = ["tests.support.s3_fixtures"]
# Starting Spark on a busy machine takes a minute.
pytestmark = pytest.mark.spark

# A session of Connect whose tasks are run again; in each part the first attempt dies when it has written its rows.
DYING = """
import os, sys
from pyspark.sql import SparkSession
from omnigraph.spark.datasource.datasource import data_source

uri, folder = sys.argv[1:]


class Dying:
    def __init__(self, sink):
        self.sink = sink
        self.commit, self.abort = sink.commit, sink.abort

    def stage(self, number, batches):
        part = self.sink.stage(number, batches)
        mark = f"{folder}/died-{number}"
        if not os.path.exists(mark):
            open(mark, "w").close()
            os._exit(7)
        return part


spark = SparkSession.builder.remote("local[2,3]").getOrCreate()
class Source(data_source()):
    def writer(self, schema, overwrite):
        made = super().writer(schema, overwrite)
        made._sink = Dying(made._sink)
        return made


spark.dataSource.register(Source)
people = spark.range(0, 40, 1, 2).selectExpr("concat('q', id) AS name", "CAST(id AS INT) AS age")
write = people.write.format("omnigraph").options(uri=uri, type="Person", branch="etl", createFrom="main")
write.mode("append").save()
spark.readStream.schema("name STRING, age INT").json(f"{folder}/in").writeStream.format("omnigraph").options(
    uri=uri, type="Person", branch="etl", mode="merge", checkpointLocation=f"{folder}/checkpoint"
).trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.LocalGraph:
    made = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    made.load(BEFORE)
    return made


def into(frame: DataFrame, graph: og.LocalGraph, type_: str = "Person", **options: str) -> DataFrameWriter:
    found = frame.write.format("omnigraph").options(uri=graph.uri, type=type_, **options).mode("append")
    assert found is not None
    return found


def people(spark: SparkSession, first: int, last: int, parts: int = 3) -> DataFrame:
    return spark.range(first, last, 1, parts).selectExpr(
        "CAST(id AS INT) AS age", "concat('q', id) AS name", "concat('m', id + 100) AS mail"
    )


def leftovers(graph: og.LocalGraph) -> set[Path]:
    """Files with rows, and what bulk writes on their way have set down."""
    root = Path(graph.uri)
    on_the_way = (path for kind in ("__recovery", "__staging") for path in (root / kind).rglob("*"))
    return {
        *on_the_way,
        *(path for kind in ("nodes", "edges") for path in (root / kind).rglob("data/*.lance")),
    }


# --- a write ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_spark_write_equals_load_of_the_same_rows(
    graph: og.LocalGraph, spark: SparkSession, mode: LoadMode
) -> None:
    rows: list[dict[str, Any]] = [{"to": f"p{n % 3}", "id": f"k{n + 7}", "from": "p1"} for n in range(20)]
    if mode == "merge":
        rows += [{"to": "p2", "id": "k0", "from": "p2"}, {"to": "p0", "id": "k9", "from": "p0"}]
    graph.branches.create("local")
    graph.load({"Knows": pa.Table.from_pylist(rows)}, mode, branch="local")
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in rows], "to STRING, id STRING, `from` STRING"
    )
    asked = into(
        frame.coalesce(2), graph, "Knows", branch="etl/today", createFrom="main", message="all", actor="ana"
    )
    asked = asked.option("mode", "merge") if mode == "merge" else asked.mode(mode)
    asked.save()
    assert lines(graph, "etl/today") == lines(graph, "local") != lines(graph)
    done = graph.commits("etl/today")
    assert [(item.operation, item.actor, item.message) for item in done[:1]] == [("load", "ana", "all")]
    assert done[0].parents == (graph.commits()[0].id,)


def test_spark_write_of_every_type_round_trips(spark: SparkSession, tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=WIDE)
    full = {"name": "full", **{name: loaded for name, (loaded, _) in VALUES.items()}}
    graph.load({"Thing": [full, {"name": "empty"}]})
    things = spark.read.format("omnigraph").options(uri=graph.uri, type="Thing").load()
    into(things, graph, "Thing", branch="copy", createFrom="main").mode("overwrite").save()
    assert lines(graph, "copy") == lines(graph)
    graph.branches.create("local", "copy")
    told = {
        "vec": [1, 2, 3],
        "day": "2026-01-02",
        "t": "2026-05-04T12:30:00Z",
        "ss": ["a"],
        "blob": "base64:AQ==",
    }
    graph.load({"Thing": [{"name": "new", **told}]}, branch="local")
    made = spark.createDataFrame(
        [
            (
                [1.0, 2.0, 3.0],
                date(2026, 1, 2),
                datetime(2026, 5, 4, 12, 30, tzinfo=UTC),
                ["a"],
                (b"\x01", None),
                "new",
            )
        ],
        "vec ARRAY<FLOAT>, day DATE, t TIMESTAMP, ss ARRAY<STRING>, blob STRUCT<data: BINARY, uri: STRING>,"
        " name STRING",
    )
    into(made, graph, "Thing", branch="copy").save()
    assert lines(graph, "copy") == lines(graph, "local") != lines(graph)


def test_spark_write_refused_raises_one_error_and_leaves_nothing(
    graph: og.LocalGraph, spark: SparkSession
) -> None:
    before, files = lines(graph), leftovers(graph)
    taken = people(spark, 0, 30).unionAll(
        spark.sql("SELECT 1 AS age, concat('p', id) AS name, concat('x', id) AS mail FROM range(2)")
    )
    with pytest.raises(Exception, match="2 violations") as refused:
        into(taken, graph).save()
    told = str(refused.value)
    assert "'p0'" in told
    assert "'p1'" in told
    assert told.count("Traceback") == 1
    assert (lines(graph), leftovers(graph)) == (before, files)


def test_spark_write_of_failing_frame_leaves_nothing(graph: og.LocalGraph, spark: SparkSession) -> None:
    files = leftovers(graph)
    broken = people(spark, 0, 30).selectExpr("if(age = 29, raise_error('no such row'), name) AS name")
    with pytest.raises(Exception, match="no such row"):
        into(broken, graph).save()
    assert leftovers(graph) == files
    assert len(graph.commits()) == 2


def test_spark_write_with_invalid_options_or_columns_is_refused(
    graph: og.LocalGraph, spark: SparkSession
) -> None:
    files = leftovers(graph)
    frame = people(spark, 0, 2)
    for message, options in {
        "unknown option 'brnach'; did you mean `branch`": {"brnach": "x"},
        "branch 'etl' not found": {"branch": "etl"},
        "the Spark mode is append": {"mode": "overwrite"},
    }.items():
        with pytest.raises(Exception, match=message):
            into(frame, graph, **options).save()
    with pytest.raises(Exception, match="aeg"):
        into(frame.withColumnRenamed("age", "aeg").where("false"), graph).save()
    assert leftovers(graph) == files


def test_spark_write_without_rows_commits_and_overwrite_empties_the_type(
    graph: og.LocalGraph, spark: SparkSession
) -> None:
    nothing = spark.createDataFrame([], "id STRING, src STRING, dst STRING")
    into(nothing, graph, "Knows").save()
    assert len(graph.commits()) == 3
    into(nothing, graph, "Knows").mode("overwrite").save()
    assert not [item for item in lines(graph) if item.get("edge") == "Knows"]


def test_spark_write_into_bucket_commits_the_rows(spark: SparkSession, s3: Bucket) -> None:
    made = og.init(f"{s3.uri}/g", schema=SCHEMA, storage_options=s3.options)
    storage = {f"storage.{name}": value for name, value in s3.options.items()}
    into(people(spark, 0, 9), made, **storage).save()
    assert len(lines(made)) == 9


# --- streams ----------------------------------------------------------------------------------------------


class Feed:
    """Files that a stream reads, and the stream into a graph."""

    def __init__(self, spark: SparkSession, graph: og.LocalGraph, folder: Path) -> None:
        self.spark, self.graph, self.folder = spark, graph, folder
        (folder / "in").mkdir()

    def add(self, name: str, *rows: tuple[str, int]) -> None:
        text = "".join(json.dumps({"name": key, "age": age}) + "\n" for key, age in rows)
        path = self.folder / "in" / f"{name}.json"
        path.write_text(text, encoding="utf-8")
        # Spark takes files in the order of their times, which are equal for files written within a clock tick.
        moment = 1_750_000_000 + len(list(path.parent.iterdir()))
        os.utime(path, (moment, moment))

    def run(self, source: str = "omnigraph", checkpoint: str = "checkpoint", **options: str) -> None:
        """Everything there is, a file in each batch."""
        given = {"uri": self.graph.uri, "type": "Person", **options}
        read = self.spark.readStream.schema("name STRING, age INT").option("maxFilesPerTrigger", 1)
        write = read.json(str(self.folder / "in")).writeStream.format(source).options(**given)
        query = (
            write.option("checkpointLocation", str(self.folder / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def people(self) -> dict[str, int]:
        rows = [item["data"] for item in lines(self.graph) if item.get("type") == "Person"]
        return {row["name"]: row["age"] for row in rows if not row["name"].startswith("p")}

    def commits(self) -> int:
        return len(self.graph.commits()) - 2


@pytest.fixture
def feed(spark: SparkSession, graph: og.LocalGraph, tmp_path: Path) -> Feed:
    return Feed(spark, graph, tmp_path)


def test_stream_batch_committed_but_not_checkpointed_is_not_repeated(feed: Feed) -> None:
    feed.add("a", ("a", 1), ("b", 2))
    feed.add("b", ("c", 3))
    feed.add("c")
    feed.run()
    assert (feed.people(), feed.commits()) == ({"a": 1, "b": 2, "c": 3}, 2)
    # As if the driver had been lost after the graph's commit and before its own.
    last = max((feed.folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    while int(last.name) > 0:
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink()
        last = last.with_name(str(int(last.name) - 1))
    feed.add("d", ("d", 4))
    feed.run()
    assert (feed.people(), feed.commits()) == ({"a": 1, "b": 2, "c": 3, "d": 4}, 3)
    assert not [path for path in leftovers(feed.graph) if "__" in path.parent.name]


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


def test_stream_batch_with_committer_killed_after_commit_exists_once(feed: Feed) -> None:
    class Killing(data_source()):  # type: ignore[misc] # a class made by a function
        @classmethod
        def name(cls) -> str:
            return "killing"

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
            made = super().streamWriter(schema, overwrite)
            made._stream = Killed(made._stream)
            return made

    feed.spark.dataSource.register(Killing)
    feed.add("a", ("a", 1), ("b", 2))
    with pytest.raises(Exception, match="crashed"):
        feed.run("killing")
    assert not list((feed.folder / "checkpoint" / "commits").glob("[0-9]*"))
    assert feed.commits() == 1
    feed.add("b", ("c", 3))
    feed.run()
    assert (feed.people(), feed.commits()) == ({"a": 1, "b": 2, "c": 3}, 2)


def test_stream_stopped_by_refused_batch_continues_in_merge_mode(feed: Feed) -> None:
    feed.add("a", ("a", 1))
    feed.add("b", ("a", 2), ("b", 2))
    with pytest.raises(Exception, match="'a'"):
        feed.run()
    assert feed.people() == {"a": 1}
    feed.run(mode="merge")
    assert (feed.people(), feed.commits()) == ({"a": 2, "b": 2}, 2)
    feed.run(checkpoint="another", mode="merge")
    assert (feed.people(), feed.commits()) == ({"a": 2, "b": 2}, 4)


def test_stream_with_rejects_continues_and_writes_a_file_for_each_batch(feed: Feed) -> None:
    folder = feed.folder / "rejects"
    folder.mkdir()
    feed.add("a", ("a", 1), ("old", 900))
    feed.add("b", ("a", 2), ("b", 2))
    feed.run(rejects=f"{folder}/")
    assert (feed.people(), feed.commits()) == ({"a": 1, "b": 2}, 2)

    def written() -> dict[str, list[tuple[str, str]]]:
        rows = {path.name: map(json.loads, path.read_text().splitlines()) for path in folder.iterdir()}
        return {name: [(item["id"], item["rule"]) for item in found] for name, found in rows.items()}

    query = json.loads((feed.folder / "checkpoint" / "metadata").read_text())["id"]
    expected = {f"rejects-{query}-0.ndjson": [("old", "range")], f"rejects-{query}-1.ndjson": [("a", "key")]}
    assert written() == expected
    # The driver is lost after the commit of the last batch: the batch is repeated, its rejects are not.
    last = feed.folder / "checkpoint" / "commits" / "1"
    last.unlink()
    last.with_name(".1.crc").unlink()
    feed.run(rejects=f"{folder}/")
    assert (written(), feed.commits()) == (expected, 2)
    feed.add("c", ("c", 3), ("d", 900), ("e", 900))
    with pytest.raises(Exception, match="2 of 3 records rejected, more than max_rejects 50%"):
        feed.run(rejects=f"{folder}/", maxRejects="50%")
    assert written() == {**expected, f"rejects-{query}-2.ndjson": [("d", "range"), ("e", "range")]}
    feed.run(rejects=f"{folder}/")
    assert (feed.people()["c"], feed.commits(), len(written())) == (3, 3, 3)
    with pytest.raises(Exception, match="the rejected rows of a stream need a folder"):
        feed.run(rejects=f"{feed.folder}/one.ndjson", checkpoint="another")


def test_spark_write_with_rejects_commits_the_other_rows(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.createDataFrame([("x", 1), ("y", 900), ("x", 2)], "name string, age int").coalesce(1)
    write = rows.write.format("omnigraph").options(uri=graph.uri, type="Person").mode("append")
    with pytest.raises(Exception, match="2 of 3 records rejected, more than max_rejects 1"):
        write.options(rejects=str(tmp_path / "r.ndjson"), maxRejects="1").save()
    assert graph.get("Person", "x") is None
    write.options(rejects=str(tmp_path / "r.ndjson"), maxRejects="2").save()
    found = [json.loads(line) for line in (tmp_path / "r.ndjson").read_text().splitlines()]
    assert [(item["id"], item["line"], item["rule"]) for item in found] == [
        ("y", 2, "range"),
        ("x", 3, "unique"),
    ]
    assert graph.get("Person", "x") is not None


def test_stream_with_unsupported_options_is_refused(feed: Feed) -> None:
    feed.add("a", ("a", 1))
    with pytest.raises(Exception, match="unknown option 'idempotencykey'"):
        feed.run(idempotencyKey="k")
    assert feed.commits() == 0


def test_stream_batch_of_continuous_processing_is_refused(graph: og.LocalGraph) -> None:
    """That is what continuous processing comes to, in which Spark hands over no rows."""
    from pyspark.sql.types import StringType, StructType

    source = data_source()({"uri": graph.uri, "type": "Person"})
    writer = source.streamWriter(StructType().add("name", StringType()), False)
    with pytest.raises(InvalidInput, match="continuous processing"):
        writer.commit([None, None], 0)
    writer.commit([], 0)
    writer.abort([None], 0)
    assert len(graph.commits()) == 2


# --- sessions of another kind -----------------------------------------------------------------------------


@pytest.mark.long
def test_spark_connect_write_with_killed_attempts_commits_rows_once(
    graph: og.LocalGraph, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"name": "q0", "age": 77}\n{"name": "new"}\n', encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-c", DYING, graph.uri, str(tmp_path)],
        # The server that this starts would take any `python3` for its workers.
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert len(list(tmp_path.glob("died-*"))) == 2
    rows = [item["data"] for item in lines(graph, "etl") if item.get("type") == "Person"]
    found = {row["name"]: row["age"] for row in rows if not row["name"].startswith("p")}
    assert found == {**{f"q{n}": n for n in range(40)}, "q0": 77, "new": None}
    assert len(rows) == 3 + 41
    assert len(graph.commits("etl")) == 2 + 2

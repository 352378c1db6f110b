"""Changes in a real Spark: a stream tells what the feed tells, a difference what `diff` tells, each change once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omnigraph as og
from omnigraph.api.results.changes import EntityChange
from omnigraph.errors import InvalidInput
from omnigraph.spark.datasource.datasource import data_source
from tests.spark.test_datasource import SCHEMA, VALUES
from tests.support.waiting import HANG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# Starting Spark on a busy machine takes a minute.
pytestmark = pytest.mark.spark

SMALL = "node City { name: String @key  mayor: String? }"


def told(change: EntityChange) -> tuple[Any, ...]:
    """A change without the commit that made it, as text that can be counted."""
    images = (None if image is None else json.dumps(image) for image in (change.before, change.after))
    return change.kind, change.type_name, change.type_id, change.id, change.op, *images, change.changed


def shown(row: Row) -> tuple[Any, ...]:
    """The same of a row."""
    images = (None if text is None else json.dumps(json.loads(text)) for text in (row.before, row.after))
    return row.kind, row.type, row.type_id, row.id, row.op, *images, tuple(row.changed)


def fed(graph: og.Graph, **asked: Any) -> Counter[tuple[Any, ...]]:
    """Everything that the feed tells, each change with its commit."""
    found: Counter[tuple[Any, ...]] = Counter()
    page = graph.feed(**asked)
    kept = {key: value for key, value in asked.items() if key != "start"}
    while True:
        for block in page:
            found.update((block.cause.graph_commit_id, *told(change)) for change in block.changes)
        if page.caught_up:
            return found
        token = page.next_page_token
        page = graph.feed(**kept, **({"page_token": token} if token else {"cursor": page.cursor}))


class Follower:
    """A stream of changes with a checkpoint, and a sink that keeps every batch as it came."""

    def __init__(self, spark: SparkSession, graph: og.Graph, checkpoint: Path, **options: str) -> None:
        source = spark.readStream.format("omnigraph").option("changes", "true")
        self._frame = source.options(**options).load(graph.uri)
        self._checkpoint = checkpoint
        self.batches: list[list[Row]] = []

    def run(self, *, dying: bool = False) -> list[Row]:
        """Follow until everything that is there has come; what has. A dying sink fails when it has rows."""
        from pyspark.sql.functions import spark_partition_id

        before = len(self.batches)

        def keep(batch: DataFrame, _: int) -> None:
            rows = batch.withColumn("part", spark_partition_id()).collect()
            if dying and rows:
                raise RuntimeError("the sink died")
            self.batches.append(rows)

        writer = self._frame.writeStream.foreachBatch(keep).option(
            "checkpointLocation", str(self._checkpoint)
        )
        assert writer.trigger(availableNow=True).start().awaitTermination(int(HANG))
        return [row for batch in self.batches[before:] for row in batch]


def load(graph: og.Graph, name: str) -> str:
    """Insert a city; the commit."""
    commit = graph.load({"City": [{"name": name}]}).commit
    assert commit is not None
    return commit.id


def keyed(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    return Counter((row.commit_id, *shown(row)) for row in rows)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """Every kind of commit: inserts, updates, deletes, edges, a merge, a compaction, another branch."""
    made = og.init(str(tmp_path_factory.mktemp("changes") / "g"), schema=SCHEMA, actor="ana")
    full = {"name": "full", **{name: loaded for name, (loaded, _) in VALUES.items()}}
    made.load({"Thing": [full, {"name": "empty"}]})
    made.load({"Person": [{"name": f"p{n}", "age": n} for n in range(40)]})
    made.load({"Knows": [{"from": f"p{n}", "to": f"p{n + 1}", "since": "1066-10-14"} for n in range(10)]})
    made.mutate("query older() { update Person set { age: 99 } where age < 5 }")
    made.branches.create("trial")
    made.mutate('query gone() { delete Person where name = "p3" }', branch="trial")
    made.mutate('query add() { insert Person { name: "a \\"b\\" \\\\ é" } }')
    made.branches.merge("trial")
    made.optimize()
    made.load({"Thing": [{**full, "f": 0.1, "days": ["2000-02-29"]}]}, mode="merge")
    return made


@pytest.fixture
def cities(tmp_path: Path) -> og.Graph:
    made = og.init(str(tmp_path / "g"), schema=SMALL)
    made.load({"City": [{"name": "Bern"}, {"name": "Rome"}]})
    return made


def test_spark_change_stream_returns_the_changes_of_the_feed_with_their_commits(
    spark: SparkSession, graph: og.Graph, tmp_path: Path
) -> None:
    follower = Follower(spark, graph, tmp_path, start="beginning", maxCommits="4", rowsPerPartition="10")
    rows = follower.run()
    expected = fed(graph, start="beginning")
    assert keyed(rows) == expected
    assert {op for _, _, _, _, _, op, *_ in expected} == {"insert", "update", "delete"}
    commits = {commit.id: commit for commit in graph.commits()}
    for row in rows:
        commit = commits[row.commit_id]
        facts = (row.parent_id, row.branch, row.actor, row.commit_sequence)
        assert facts == (commit.parents[0], "main", "ana", commit.sequence)
        assert row.committed_at.astimezone(UTC) == commit.created_at.astimezone(UTC)
    # The eight commits that there are fill two batches, and one of 40 rows is read by four tasks at least.
    assert [len({row.commit_id for row in batch}) for batch in follower.batches] == [4, 3]
    people = [row for row in rows if row.op == "insert" and row.id.startswith("p")]
    assert len({row.part for row in people}) >= 4


def test_spark_change_stream_resumes_from_checkpoint_without_loss_or_repetition(
    spark: SparkSession, cities: og.Graph, tmp_path: Path
) -> None:
    follower = Follower(spark, cities, tmp_path / "checkpoint", op="insert,update", columns="commit_id,op,id")
    assert follower.run() == []
    # Told once it was asked for, although nothing had come of it yet.
    first = load(cities, "Oslo")
    cities.mutate('query q() { update City set { mayor: "Ana" } where name = "Bern" }')
    second = cities.commits()[0].id
    cities.mutate('query q() { delete City where name = "Rome" }')
    with pytest.raises(Exception, match="the sink died"):
        follower.run(dying=True)
    assert sorted(tuple(row)[:3] for row in follower.run()) == sorted(
        [(first, "insert", "Oslo"), (second, "update", "Bern")]
    )
    third = load(cities, "Lima")
    assert [tuple(row)[:3] for row in follower.run()] == [(third, "insert", "Lima")]


def test_spark_change_stream_at_schema_change_fails_with_a_hint(
    spark: SparkSession, cities: og.Graph, tmp_path: Path
) -> None:
    follower = Follower(spark, cities, tmp_path / "checkpoint", start="beginning")
    cities.schema.apply("node City { name: String @key  mayor: String?  people: I64? }")
    boundary = cities.commits()[0].id
    cities.load({"City": [{"name": "Oslo"}]})
    with pytest.raises(Exception, match=f"commit '{boundary}' changed the schema of 'City'") as refused:
        follower.run()
    assert f"start 'after:{boundary}'" in str(refused.value)
    assert sorted(row.id for batch in follower.batches for row in batch) == ["Bern", "Rome"]
    later = Follower(spark, cities, tmp_path / "later", start=f"after:{boundary}")
    assert [row.id for row in later.run()] == ["Oslo"]


def difference(spark: SparkSession, graph: og.Graph, states: str, **options: str) -> DataFrame:
    return spark.read.format("omnigraph").options(diff=states, **options).load(graph.uri)


def test_spark_diff_equals_local_diff(spark: SparkSession, graph: og.Graph) -> None:
    first = graph.commits()[-1].id
    everything = difference(spark, graph, f"{first}..main", rowsPerPartition="7")
    assert "commit_id" not in everything.columns
    assert Counter(map(shown, everything.collect())) == Counter(map(told, graph.diff(first, "main")))
    assert everything.rdd.getNumPartitions() >= 6
    some = difference(spark, graph, "main..trial", kind="node", type="Person,Thing", op="update")
    expected = graph.diff("main", "trial", kinds=["node"], types=["Person", "Thing"], ops=["update"])
    assert Counter(map(shown, some.collect())) == Counter(map(told, expected)) != Counter()
    assert difference(spark, graph, "main..main").collect() == []


def test_spark_diff_after_a_later_commit_is_unchanged(spark: SparkSession, cities: og.Graph) -> None:
    cities.branches.create("trial")
    cities.load({"City": [{"name": "Oslo"}]}, branch="trial")
    found = difference(spark, cities, "main..trial", columns="id,op")
    cities.load({"City": [{"name": "Lima"}]}, branch="trial")
    assert [tuple(row) for row in found.collect()] == [("Oslo", "insert")]
    assert difference(spark, cities, "main..trial").count() == 2


def test_spark_change_source_with_invalid_options_is_refused(spark: SparkSession, cities: og.Graph) -> None:
    for states in ("main", "main..", "a..b..c"):
        with pytest.raises(Exception, match="option 'diff'"):
            difference(spark, cities, states)
    with pytest.raises(Exception, match="'tral' is neither a branch, a tag nor a commit"):
        difference(spark, cities, "main..tral")
    with pytest.raises(Exception, match="a change has no column 'commit_id'"):
        difference(spark, cities, "main..main", columns="commit_id")
    with pytest.raises(Exception, match="use readStream"):
        spark.read.format("omnigraph").option("changes", "true").load(cities.uri).collect()


def test_spark_stream_without_changes_option_is_refused(cities: og.Graph) -> None:
    from pyspark.sql.types import StructType

    made = data_source()
    for options in ({"type": "City"}, {"diff": "main..main"}):
        with pytest.raises(InvalidInput, match="only changes can be read as a stream"):
            made({"uri": cities.uri, **options}).streamReader(StructType())
    with pytest.raises(InvalidInput, match="option 'changes': expected true, got 'yes'"):
        made({"uri": cities.uri, "changes": "yes"}).streamReader(StructType())
    wrong = StructType.fromJson(
        {"fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}], "type": "struct"}
    )
    with pytest.raises(InvalidInput, match="column 'id' of a change: expected STRING NOT NULL"):
        made({"uri": cities.uri, "changes": "true"}).streamReader(wrong)

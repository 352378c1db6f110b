"""Changes in a real Spark: a stream tells what the feed tells, a difference what `diff` tells, each change once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omnigraph as og
from omnigraph.api.changes import Change
from tests.pipeline.test_datasource import SCHEMA, VALUES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# Starting Spark on a busy machine takes a minute.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SMALL = "node City { name: String @key  mayor: String? }"


def told(change: Change) -> tuple[Any, ...]:
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
    """A stream of changes with a checkpoint and a sink that keeps every batch as it came."""

    def __init__(self, spark: SparkSession, graph: og.Graph, folder: Path, **options: str) -> None:
        self._spark = spark
        self._uri = graph.uri
        self._folder = folder
        self._options = options
        self.batches: list[list[Row]] = []
        self.parts: list[int] = []

    @property
    def frame(self) -> DataFrame:
        source = self._spark.readStream.format("omnigraph").option("changes", "true")
        return source.options(**self._options).load(self._uri)

    def run(self, *, dying: bool = False) -> list[Row]:
        """Follow until everything that is there has come; what has. A dying sink fails when it has a batch."""
        before = len(self.batches)

        def keep(batch: DataFrame, _: int) -> None:
            self.parts.append(batch.rdd.getNumPartitions())
            rows = batch.collect()
            if dying and rows:
                raise RuntimeError("the sink died")
            self.batches.append(rows)

        writer = self.frame.writeStream.foreachBatch(keep)
        query = (
            writer.option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return [row for batch in self.batches[before:] for row in batch]


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


def test_a_stream_tells_what_the_feed_tells_and_goes_on_from_its_checkpoint(
    spark: SparkSession, graph: og.Graph, tmp_path: Path
) -> None:
    follower = Follower(spark, graph, tmp_path, start="beginning", maxCommits="3")
    rows = follower.run()
    assert keyed(rows) == fed(graph, start="beginning")
    assert len(follower.batches) == 3
    assert follower.run() == []
    commits = {commit.id: commit for commit in graph.commits()}
    for row in rows:
        commit = commits[row.commit_id]
        facts = (row.parent_id, row.branch, row.actor, row.commit_sequence)
        assert facts == (commit.parent_id, "main", "ana", commit.sequence)
        assert row.committed_at.astimezone(UTC) == commit.created_at.astimezone(UTC)

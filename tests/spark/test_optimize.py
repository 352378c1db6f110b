"""`Graph.optimize` on Spark does what it does in this process, by tasks that write where they run."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omnigraph as og
from omnigraph.maintain import task_runner
from tests.maintain.optimizing import (
    CITY,
    KNOWS,
    PERSON,
    by_key,
    covered,
    fragments,
    scattered,
    segments,
    told,
)
from tests.support.s3 import Bucket
from tests.support.waiting import HANG
from tests.support.workers import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.support.s3_fixtures"]
pytestmark = pytest.mark.spark

# A driver that is killed when its tasks have rewritten the rows, before any version has them.
KILLED = """
import os, signal, sys
import omnigraph as og

def progress(stage, rows):
    if stage == "compact" and rows:
        os.kill(os.getpid(), signal.SIGKILL)
og.open(sys.argv[1]).optimize(engine="spark", spark="local[2]", progress=progress)
"""


def shape(graph: og.Graph, branch: str) -> dict[str, Any]:
    """What the storage of a branch looks like, but for names of files."""
    return {
        key: (
            [
                (item.id, item.rows, item.physical_rows, item.deletions)
                for item in fragments(graph, key, branch)
            ],
            [sorted(item.fragments) for item in segments(graph, key, branch=branch)],
        )
        for key in (PERSON, KNOWS, CITY)
    }


def test_optimize_on_spark_equals_local_optimize(spark: SparkSession, tmp_path: Path) -> None:
    graph = scattered(str(tmp_path / "g"))
    before = told(graph)
    for name in ("here", "there"):
        graph.branches.create(name)
    here = graph.optimize(branch="here", engine="local")
    there = graph.optimize(branch="there", engine="spark", spark=spark)
    ignored = {"published_dataset_version": 0, "lance_head_version": 0}
    assert [item.to_json() | ignored for item in there.datasets] == [
        item.to_json() | ignored for item in here.datasets
    ]
    assert by_key(there)[PERSON].fragments_removed == 4
    assert shape(graph, "there") == shape(graph, "here")
    assert told(graph, "there") == told(graph, "here") == before
    assert told(og.open(graph.uri), "there") == before
    assert covered(graph, "there")
    assert graph.optimize(branch="there", engine="spark", spark=spark).commit is None


def test_optimize_on_spark_rewrites_and_indexes_in_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = scattered(str(tmp_path / "g"))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the driver did the work of a task")

    monkeypatch.setattr("omnigraph.maintain.table_maintenance.rewrite_fragments", refuse)
    monkeypatch.setattr("omnigraph.maintain.table_maintenance.build_segment", refuse)
    assert by_key(graph.optimize(engine="spark", spark=spark))[PERSON].committed
    assert covered(graph)


def test_optimize_auto_uses_spark_above_a_size(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = scattered(str(tmp_path / "g"))
    jobs: list[int] = []
    real = task_runner.TaskRunner._distribute

    def counting(self: task_runner.TaskRunner, pieces: Sequence[Any]) -> list[Any]:
        jobs.append(len(pieces))
        return real(self, pieces)

    monkeypatch.setattr(task_runner.TaskRunner, "_distribute", counting)
    graph.branches.create("dev")
    graph.optimize(spark=spark)
    assert jobs == []
    monkeypatch.setattr(task_runner, "SPARK_BYTES", 1)
    graph.optimize(branch="dev", spark=spark)
    assert jobs == [2, 10]


def test_optimize_on_spark_with_an_unreadable_type_continues_with_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph = scattered(str(tmp_path / "g"))
    lost = fragments(graph, KNOWS)[1].files
    (tmp_path / "g" / graph.snapshot().pin(KNOWS).path / "data" / lost).unlink()
    found = by_key(og.open(graph.uri).optimize(engine="spark", spark=spark))
    assert found[KNOWS].skipped == "Failed"
    assert "not found" in str(found[KNOWS].error)
    assert found[PERSON].committed


def test_optimize_on_spark_works_in_a_bucket(spark: SparkSession, s3: Bucket) -> None:
    graph = og.init(f"{s3.uri}/g", schema="node City { name: String @key }", storage_options=s3.options)
    for number in range(3):
        graph.load({"City": [{"name": f"c{number}"}]})
    assert by_key(graph.optimize(engine="spark", spark=spark))[CITY].fragments_removed == 3
    cold = og.open(graph.uri, storage_options=s3.options)
    assert [cold.get("City", f"c{number}") is not None for number in range(4)] == [True, True, True, False]


@pytest.mark.long
def test_optimize_on_spark_with_killed_driver_leaves_the_graph_unchanged(tmp_path: Path) -> None:
    graph = scattered(str(tmp_path / "g"))
    before, head = told(graph), graph.commits()[0]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, graph.uri], cwd=ROOT, capture_output=True, timeout=HANG, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    again = og.open(graph.uri)
    assert again.commits()[0] == head
    assert told(again) == before
    assert by_key(again.optimize())[PERSON].fragments_removed == 4
    assert told(again) == before

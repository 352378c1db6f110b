"""Tasks: results in order, errors that can be read, and attempts that die or come twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omnigraph.spark.engine.tasks import run_tasks
from tests.support.workers import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# Spark on one machine does not run a task again unless its master's address says so.
DYING = """
import functools, io, json, os, sys
import omnigraph as og
from omnigraph.spark.engine import tasks
from omnigraph.spark.session import resolve_session
from omnigraph.sources import splits

folder, = sys.argv[1:]
session = resolve_session(master="local[2,3]")
splits.plan_splits = functools.partial(splits.plan_splits, split_bytes=2_000)
run = tasks.run_tasks


def run_tasks(spark, items, work):
    def dying(item):
        done = work(item)
        if isinstance(item, splits.Split) and item.number in (1, 3):
            mark = os.path.join(folder, f"died-{item.number}")
            if not os.path.exists(mark):
                open(mark, "w").close()
                os._exit(7)
        return done

    return run(spark, items, dying)


tasks.run_tasks = run_tasks
graph = og.open(os.path.join(folder, "graph"))
done = graph.load(os.path.join(folder, "in.jsonl"), "merge", engine="spark", spark=session)
print("RESULT", json.dumps([dict(done.nodes), done.superseded]))
"""


def test_run_tasks_returns_results_in_the_order_of_items(spark: SparkSession) -> None:
    def work(item: int) -> tuple[int, int]:
        import time

        time.sleep(0.3 if item == 0 else 0)
        return item, item * item

    assert run_tasks(spark, list(range(9)), work) == [(item, item * item) for item in range(9)]
    assert run_tasks(spark, [], work) == []


def test_run_tasks_with_picklable_items_returns_their_results(spark: SparkSession) -> None:
    def work(item: dict[str, Any]) -> list[Any]:
        return [item, None, b"\0" * 100_000]

    items: list[dict[str, Any]] = [{"a": (1, "\u00e9")}, {}]
    assert run_tasks(spark, items, work) == [[item, None, b"\0" * 100_000] for item in items]


def test_run_tasks_runs_every_task_in_another_process(spark: SparkSession) -> None:
    found = run_tasks(spark, [0, 1, 2], lambda _: os.getpid())
    assert os.getpid() not in found


def test_run_tasks_with_failing_task_raises_and_keeps_the_session(spark: SparkSession) -> None:
    def work(item: int) -> int:
        if item == 1:
            raise ValueError("the disk of worker seven is full")
        return item

    with pytest.raises(Exception, match="the disk of worker seven is full"):
        run_tasks(spark, [0, 1, 2], work)
    assert run_tasks(spark, [0, 2], work) == [0, 2]


@pytest.mark.long
def test_load_with_killed_task_process_has_every_row_once(tmp_path: Path) -> None:
    import omnigraph as og

    graph = og.init(str(tmp_path / "graph"), schema="node Person { name: String  n: I32 }")
    people = [
        {"type": "Person", "data": {"id": f"p{n % 150}", "name": f"p{n % 150}", "n": n}} for n in range(200)
    ]
    lines = "".join(json.dumps(item) + "\n" for item in people)
    (tmp_path / "in.jsonl").write_text(lines, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DYING, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.partition("RESULT ")[2]) == [{"Person": 150}, 50]
    assert sorted(path.name for path in tmp_path.glob("died-*")) == ["died-1", "died-3"]
    rows = graph.query("query q() { match { $p: Person } return { $p.name as name, $p.n as n } }")
    found = sorted((row["n"], row["name"]) for row in rows)
    assert found == [(n, f"p{n % 150}") for n in range(50, 200)]

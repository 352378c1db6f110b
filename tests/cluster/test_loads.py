"""Loads by tasks on a cluster make the graph that a load in this process makes, whatever dies on the way.

The rows of a load are there once or not at all, and cleanup finds what is left of it. All tests are in one file, so
that they run on one worker and share the cluster.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from tests.cluster.conftest import Driver
from tests.cluster.outcomes import clean, figures, lines, loaded_here, saved, unfinished, unneeded
from tests.cluster.shop import check_published, make_shop
from tests.cluster.traps import Action, Trap
from tests.spark.loads import BEFORE, SCHEMA, firm, knows, leads, note, person, text_of
from tests.support.s3 import Bucket
from tests.support.spark_cluster import Cluster, members
from tests.support.waiting import wait_until

pytest_plugins = ["tests.support.s3_fixtures"]
pytestmark = pytest.mark.spark

PEOPLE = 40
FRIENDS = """
query friends() {
  match { $a: Person  $a knows $b }
  return { $b.name as friend, count($a) as times }
  order { times desc, friend asc }
}
"""


def compared(driver: Driver, graph: og.LocalGraph, source: Any, mode: str, **named: Any) -> Any:
    """What a load on the cluster says, after one in this process has said the same and left the same rows."""
    wanted = loaded_here(graph, source, mode)
    source = str(source) if isinstance(source, Path) else source
    found = driver.ask("load", graph.uri, source, mode, branch="spark", **named)
    assert found.pop("engine") == "spark"
    assert figures(found) == wanted
    assert lines(graph, "spark") == lines(graph, "local")
    assert not unfinished(graph)
    return found


def test_cluster_append_merge_overwrite_and_read_equal_one_process(
    driver: Driver, graph: og.LocalGraph, tmp_path: Path
) -> None:
    records = [knows(f"k{n + 9}", f"q{n}", f"q{(n * n) % PEOPLE}") for n in range(PEOPLE)]
    records += [person(f"q{n}", age=n, mail=f"q{n}") for n in range(PEOPLE)]
    compared(driver, graph, saved(tmp_path / "append.jsonl", records), "append")
    again = [note(f"n{n % 10}", str(n)) for n in range(30)] + [leads("l9", "q0", "f0"), firm("new")]
    again += [person("q0", age=99)]
    merged = compared(driver, graph, saved(tmp_path / "merge.jsonl", again), "merge")
    assert merged["superseded"] == 20
    others = [{"id": f"k{n}", "from": f"q{n}", "to": "p0"} for n in range(20)]
    replacing = saved(tmp_path / "knows.jsonl", others)
    replaced = compared(driver, graph, {"Knows": str(replacing)}, "overwrite")
    assert replaced["affected"]["Knows"] == {"inserted": 7, "updated": 13, "deleted": 29}
    assert (
        driver.ask("query", graph.uri, FRIENDS, branch="spark") == graph.query(FRIENDS, branch="local").rows()
    )
    read = driver.ask("read", graph.uri, "Knows", branch="spark")
    assert sorted((row["id"], row["src"], row["dst"]) for row in read) == sorted(
        (f"k{n}", f"q{n}", "p0") for n in range(20)
    )


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_cluster_load_without_rows_equals_one_process(
    driver: Driver, graph: og.LocalGraph, tmp_path: Path, mode: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (folder / name).touch()
    table = pa.table({name: pa.array([], pa.string()) for name in ("id", "from", "to")})
    pq.write_table(table, tmp_path / "none.parquet")
    compared(driver, graph, folder / "a.jsonl", mode)
    compared(driver, graph, folder, mode)
    compared(driver, graph, {"Knows": str(tmp_path / "none.parquet")}, mode)
    wanted = loaded_here(graph, {"Knows": table}, mode)
    frames: dict[str, Any] = {"Knows": ("id string, `from` string, `to` string", [])}
    found = driver.ask("load", graph.uri, None, mode, branch="spark", frames=frames)
    assert figures(found) == wanted
    assert lines(graph, "spark") == lines(graph, "local")
    assert len(graph.commits("spark")) == len(graph.commits("local")) == 6


@pytest.mark.long
def test_cluster_load_with_most_edges_at_one_node_commits(
    driver: Driver, graph: og.LocalGraph, tmp_path: Path
) -> None:
    records = [person(f"q{n}") for n in range(200)]
    records += [knows(f"e{n}", f"q{n % 200}", "q0" if n % 10 else f"q{n % 7}") for n in range(5_000)]
    path = saved(tmp_path / "in.jsonl", records)
    assert compared(driver, graph, path, "append", split_bytes=60_000)["rows"]["total"] == 5_200


@pytest.mark.long
def test_cluster_load_of_id_repeated_60000_times_keeps_the_last_record(
    driver: Driver, graph: og.LocalGraph, tmp_path: Path
) -> None:
    # Comparing each of them with each other would take minutes.
    records = [note("n0" if n % 1000 else f"m{n}", str(n)) for n in range(60_001)]
    path = saved(tmp_path / "in.jsonl", records)
    found = compared(driver, graph, path, "merge", split_bytes=800_000)
    assert (found["superseded"], found["rows"]["total"]) == (59_939, 62)
    assert (graph.get("Note", "n0", branch="spark") or {})["text"] == "59999"


def test_cluster_load_from_bucket_without_shared_disk_commits(driver: Driver, s3: Bucket) -> None:
    graph = og.init(f"{s3.uri}/graph", schema=SCHEMA, storage_options=s3.options)
    graph.load(BEFORE)
    for name in ("local", "spark"):
        graph.branches.create(name)
    records = [note(f"n{n % 25}", str(n)) for n in range(40)] + [person("q0"), person("q24")]
    s3.server.objects.put(s3.name, "in/a.jsonl", text_of(records).encode())
    s3.server.objects.put(s3.name, "in/b.jsonl", text_of([knows("k9", "q0", "q24")]).encode())
    wanted = loaded_here(graph, f"{s3.uri}/in/", "merge")
    with s3.seam.recording() as seen:
        found = driver.ask("load", graph.uri, f"{s3.uri}/in/", "merge", branch="spark", options=s3.options)
    assert seen.count("PUT", "graph/__staging/")
    assert figures(found) == wanted
    assert (found["superseded"], found["rows"]["total"]) == (15, 28)
    assert lines(graph, "spark") == lines(graph, "local")
    assert not [key for key in s3.keys if "/__staging/" in key or "/__recovery/" in key]


# --- losses -----------------------------------------------------------------------------------------------

# Of every split, also the first, a record is replaced by one in another.
RECORDS = [
    *(person(f"q{n}", age=n) for n in range(30)),
    *(note(f"n{n % 30}", str(n)) for n in range(60)),
    *(knows(f"k{n}", f"q{n}", f"q{29 - n}") for n in range(30)),
    person("p0", age=99),
]


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(saved(tmp_path / "in.jsonl", RECORDS))


def trap_of(folder: Path, action: Action) -> Trap:
    (folder / "trap").mkdir()
    return Trap(str(folder / "trap"), action)


def told(trap: Trap) -> list[str]:
    return [trap.folder, trap.action]


def both(held: dict[int, int]) -> dict[int, int] | None:
    """What is held once each of the two cores is."""
    return held if len(set(held.values())) > 1 else None


def check_once(graph: og.LocalGraph, found: Any, wanted: Any) -> None:
    """The load on the cluster did what one in this process did, and nothing else is to be found of it."""
    assert figures(found) == wanted
    assert lines(graph, "spark") == lines(graph, "local")
    assert len(graph.commits("spark")) == len(graph.commits("local"))
    assert not unfinished(graph)
    after = lines(graph, "spark")
    clean(graph)
    assert not unneeded(graph)
    assert lines(og.open(graph.uri), "spark") == after


def test_cluster_load_with_task_killed_after_its_work_counts_it_once(
    driver: Driver, graph: og.LocalGraph, source: str, tmp_path: Path
) -> None:
    trap = trap_of(tmp_path, "die")
    wanted = loaded_here(graph, source, "merge")
    found = driver.ask("load", graph.uri, source, "merge", branch="spark", trap=told(trap))
    assert len(trap.attempts(0)) > 1
    assert len(trap.attempts(0, "index")) > 1
    assert unneeded(graph)
    check_once(graph, found, wanted)


def test_cluster_load_of_dataframe_with_killed_task_counts_rows_once(
    driver: Driver, graph: og.LocalGraph, tmp_path: Path
) -> None:
    trap = trap_of(tmp_path, "die")
    rows = [[f"q{n}", n] for n in range(20)]
    wanted = loaded_here(graph, {"Person": [{"name": name, "age": age} for name, age in rows]}, "append")
    frames = {"Person": ("name string, age int", rows)}
    found = driver.ask("load", graph.uri, None, branch="spark", frames=frames, trap=told(trap))
    assert len(trap.attempts(0, "frame")) > 1
    check_once(graph, found, wanted)


def test_cluster_load_with_two_finished_attempts_counts_one(
    driver: Driver, graph: og.LocalGraph, source: str, tmp_path: Path
) -> None:
    trap = trap_of(tmp_path, "straggle")
    wanted = loaded_here(graph, source, "merge")
    found = driver.ask("load", graph.uri, source, "merge", branch="spark", trap=told(trap))
    assert len(trap.attempts(0)) > 1
    assert unneeded(graph)
    check_once(graph, found, wanted)


def test_cluster_load_with_killed_worker_loses_no_row(
    driver: Driver, cluster: Cluster, graph: og.LocalGraph, source: str, tmp_path: Path
) -> None:
    trap = trap_of(tmp_path, "hold")
    wanted = loaded_here(graph, source, "merge")
    driver.tell("load", graph.uri, source, "merge", branch="spark", trap=told(trap))
    held = wait_until(lambda: both(trap.held()), "a task on each worker")
    task, process = min(held.items())
    (worker,) = [item for item in cluster.workers.values() if process in members(item.popen.pid)]
    worker.kill()
    trap.let_go()
    found = driver.answer()
    assert len(trap.attempts(task)) > 1
    assert unneeded(graph)
    check_once(graph, found, wanted)


def test_cluster_pipeline_on_a_bucket_with_killed_worker_publishes_one_commit(
    driver: Driver, cluster: Cluster, s3: Bucket, tmp_path: Path
) -> None:
    shop = make_shop(s3, tmp_path)
    trap = trap_of(tmp_path, "hold")
    driver.tell("pipeline", *shop.given, trap=told(trap))
    held = wait_until(lambda: both(trap.held("frame")), "a task on each worker")
    task, process = min(held.items())
    (worker,) = [item for item in cluster.workers.values() if process in members(item.popen.pid)]
    worker.kill()
    trap.let_go()
    report = driver.answer()
    # Rows that were exchanged are lost with the worker, so that Spark begins the stage again and counts from 0.
    assert set(trap.attempts(task, "frame")) - {process}
    check_published(shop, report)
    assert shop.graph.branches.list() == ["main"]
    assert driver.ask("pipeline", *shop.given)["outcome"] == "unchanged"
    assert not [key for key in s3.keys if "/__staging/" in key or "/__recovery/" in key]


def die(driver: Driver, tasks: list[int]) -> None:
    """Kill a driver; returns when nothing that worked for it is alive, which it is not asked to see to itself."""
    process = driver.process.popen
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not members(process.pid), "the end of its JVM")
    wait_until(lambda: not any(Path("/proc", str(pid)).exists() for pid in tasks), "the end of its tasks")


def check_untouched(graph: og.LocalGraph, before: list[Any]) -> None:
    """A driver left rows, keys and an intent, and none of it is to be seen."""
    assert {name.partition("/")[0] for name in unfinished(graph)} == {"__staging", "__recovery"}
    again = og.open(graph.uri)
    assert lines(again, "spark") == before
    assert len(again.commits("spark")) == len(again.commits("main"))
    assert unneeded(again)


@pytest.mark.long
def test_cluster_load_with_driver_killed_during_tasks_leaves_the_graph_unchanged(
    driver: Driver, lone_driver: Driver, graph: og.LocalGraph, source: str, tmp_path: Path
) -> None:
    before = lines(graph)
    trap = trap_of(tmp_path, "hold")
    driver.tell("load", graph.uri, source, "merge", branch="spark", trap=told(trap))
    held = wait_until(lambda: both(trap.held()), "a task on each worker")
    die(driver, list(held.values()))
    check_untouched(graph, before)
    wanted = loaded_here(graph, source, "merge")
    assert not graph._repository.intents.pending()
    found = lone_driver.ask("load", graph.uri, source, "merge", branch="spark")
    clean(graph)
    check_once(graph, found, wanted)


def test_cluster_load_with_driver_killed_before_commit_leaves_the_graph_unchanged(
    lone_driver: Driver, graph: og.LocalGraph, source: str
) -> None:
    before = lines(graph)
    lone_driver.tell("load", graph.uri, source, "merge", branch="spark", stop_at="index")
    assert lone_driver.answer() == {"stopped": "index"}
    die(lone_driver, [])
    check_untouched(graph, before)
    wanted = loaded_here(graph, source, "merge")
    assert not graph._repository.intents.pending()
    found = graph.load(source, "merge", branch="spark", engine="local").report()
    clean(graph)
    check_once(graph, found, wanted)

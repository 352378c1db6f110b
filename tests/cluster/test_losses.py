"""Whatever dies during a load, its rows are there once or not at all, and cleanup finds what is left of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.cluster.conftest import Driver
from tests.cluster.outcomes import clean, figures, lines, loaded_here, saved, unfinished, unneeded
from tests.cluster.traps import Action, Trap
from tests.spark.loads import knows, person
from tests.support.spark_cluster import Cluster, members
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

# Of every split, also the first, a record is replaced by one in another.
RECORDS = [
    *(person(f"q{n % 30}", age=n) for n in range(60)),
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


def test_a_task_that_dies_after_its_work_is_run_again_and_counts_once(
    driver: Driver, graph: og.LocalGraph, source: str, tmp_path: Path
) -> None:
    trap = trap_of(tmp_path, "die")
    wanted = loaded_here(graph, source, "merge")
    found = driver.ask("load", graph.uri, source, "merge", branch="spark", trap=told(trap))
    assert len(trap.attempts(0)) > 1
    assert len(trap.attempts(0, "index")) > 1
    assert unneeded(graph)
    check_once(graph, found, wanted)


def test_a_task_that_dies_over_rows_of_a_dataframe_counts_once(
    driver: Driver, graph: og.LocalGraph, tmp_path: Path
) -> None:
    trap = trap_of(tmp_path, "die")
    rows = [[f"q{n}", n] for n in range(20)]
    wanted = loaded_here(graph, {"Person": [{"name": name, "age": age} for name, age in rows]}, "append")
    frames = {"Person": ("name string, age int", rows)}
    found = driver.ask("load", graph.uri, None, branch="spark", frames=frames, trap=told(trap))
    assert len(trap.attempts(0, "frame")) > 1
    check_once(graph, found, wanted)


def test_of_two_attempts_at_one_split_that_both_finish_one_counts(
    driver: Driver, graph: og.LocalGraph, source: str, tmp_path: Path
) -> None:
    trap = trap_of(tmp_path, "straggle")
    wanted = loaded_here(graph, source, "merge")
    found = driver.ask("load", graph.uri, source, "merge", branch="spark", trap=told(trap))
    assert len(trap.attempts(0)) > 1
    assert unneeded(graph)
    check_once(graph, found, wanted)


def test_a_worker_that_is_killed_during_a_load_loses_nothing(
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
def test_a_driver_that_is_killed_during_its_tasks_leaves_the_graph_as_it_was(
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


def test_a_driver_that_is_killed_before_its_commit_leaves_the_graph_as_it_was(
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

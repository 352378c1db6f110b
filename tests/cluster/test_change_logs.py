"""Change logs applied by a stream and batch by batch, with the driver killed in between, equal a naive replay."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.cluster.change_logs import FIELDS, SCHEMA, ChangeLog, State, make_log, start_records
from tests.cluster.conftest import Driver, Drivers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


class Progress:
    """What the writes of a graph have left on its disk since this was made."""

    def __init__(self, graph: og.LocalGraph) -> None:
        self._graph = graph
        self._begun: set[str] = set()
        self._before = {name: self._commits(name) for name in ("main", "batches")}

    def begun(self) -> int:
        """Return the number of writes that have begun: each has an intent."""
        found = Path(self._graph.uri).glob("__recovery/*.json")
        self._begun |= {path.name for path in found}
        return len(self._begun)

    def staged(self) -> int:
        """Return the number of files that tasks have written for writes in progress."""
        return sum(1 for _ in Path(self._graph.uri).glob("__staging/*/*"))

    def committed(self, branch: str) -> int:
        """Return the number of new commits of a branch."""
        return self._commits(branch) - self._before[branch]

    def _commits(self, branch: str) -> int:
        return len(self._graph.commits(branch, limit=10_000))


def rows(graph: og.LocalGraph, branch: str) -> State:
    """All rows by type and id, without nulls and ids."""
    stream = io.StringIO()
    graph.export(stream, branch=branch)
    found: State = {}
    for line in stream.getvalue().splitlines():
        record = json.loads(line)
        ends = {name: record[name] for name in ("from", "to") if name in record}
        data: dict[str, Any] = {**record["data"], **ends}
        id_ = data.pop("id", None) or data["name"]
        name = record.get("type") or record["edge"]
        found[name, id_] = {name: value for name, value in data.items() if value is not None}
    return found


def replay_with_kills(
    drivers: Drivers, folder: Path, log: ChangeLog, kills: int, generator: random.Random
) -> og.LocalGraph:
    """Apply a log to a new graph, with drivers that are killed at some event, and compare the result."""
    graph = og.init(str(folder / "graph"), schema=SCHEMA)
    graph.load(start_records())
    graph.branches.create("batches")
    log.write(folder / "in")
    options = {
        "typeColumn": "entity",
        "opColumn": "op",
        "orderBy": "seq",
        "mode": "patch" if log.is_patch else "merge",
    }
    given = (graph.uri, str(folder / "in"), str(folder / "checkpoint"), FIELDS, options)
    left = len(log.batches)
    for _ in range(kills):
        driver = drivers.living()
        progress = Progress(graph)
        driver.tell("follow", *given)
        _wait_for_a_cut(driver, progress, generator, max(1, left // (kills + 1)))
        driver.process.kill()
        left -= progress.committed("main")
    assert drivers.living().ask("follow", *given) == len(log.batches)

    wanted = {
        key: {name: value for name, value in row.items() if value is not None}
        for key, row in log.states[-1].items()
    }
    for branch in ("main", "batches"):
        assert rows(graph, branch) == wanted
        # A batch that changes nothing has no commit. Every other batch has one, although it was applied again.
        assert len(graph.commits(branch, limit=10_000)) == 2 + log.effective
    assert graph.verify().ok
    return graph


def _wait_for_a_cut(driver: Driver, progress: Progress, generator: random.Random, commits: int) -> None:
    """Wait until a write is at some step: begun, staged or committed."""
    branch = generator.choice(["main", "batches"])
    after = generator.randrange(commits + 1)
    step = generator.choice(["begun", "staged", "committed"])

    def reached() -> bool:
        if not driver.process.is_alive or not driver.is_busy:
            return True
        if progress.committed(branch) < after:
            return False
        found = {"begun": progress.begun, "staged": progress.staged}
        return step == "committed" or bool(found[step]())

    wait_until(reached, f"{step} after {after} commits of {branch}")


def test_change_log_with_the_driver_killed_equals_a_replay(lone_drivers: Drivers, tmp_path: Path) -> None:
    log = make_log(seed=5, batches=2, rows=20)
    counts = log.counts()
    assert min(counts.values()) > 2, counts
    replay_with_kills(lone_drivers, tmp_path, log, 1, random.Random(2))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(6))
def test_long_change_log_with_many_killed_drivers_equals_a_replay(
    lone_drivers: Drivers, tmp_path: Path, seed: int
) -> None:
    log = make_log(seed, batches=20, rows=20)
    replay_with_kills(lone_drivers, tmp_path, log, 6, random.Random(seed))

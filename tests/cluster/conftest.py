"""One cluster for all of these tests, and a driver that is replaced when a test has killed it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

import omnigraph as og
from tests.spark.loads import BEFORE, SCHEMA
from tests.support.spark_cluster import Cluster, Process, running_cluster
from tests.support.waiting import HANG
from tests.support.workers import ROOT


class Driver:
    """A process that drives Spark, at the other end of two pipes."""

    def __init__(self, cluster: Cluster, master: str) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.cluster.driver", master]
        self.process: Process = cluster.launch(command, stdio=subprocess.PIPE, cwd=ROOT)
        self._answers: Queue[str] = Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.popen.stdout is not None
        for line in self.process.popen.stdout:
            self._answers.put(line)
        self._answers.put("")

    def tell(self, name: str, *given: Any, **named: Any) -> None:
        """Have it call a function of its, whose answer comes later."""
        assert self.process.popen.stdin is not None
        self.process.popen.stdin.write(json.dumps([name, given, named], default=str) + "\n")
        self.process.popen.stdin.flush()

    def answer(self) -> Any:
        """What it answers next."""
        line = self._answers.get(timeout=HANG)
        assert line, f"the driver ended: {self.process.tail()}"
        return json.loads(line)

    @property
    def is_busy(self) -> bool:
        """Whether it has not answered yet."""
        return self._answers.empty()

    def ask(self, name: str, *given: Any, **named: Any) -> Any:
        """What a function of its gives."""
        self.tell(name, *given, **named)
        return self.answer()


@dataclass
class Drivers:
    """A driver of all tests."""

    cluster: Cluster
    master: str
    current: Driver | None = None

    def living(self) -> Driver:
        """It, or a new one when it was killed."""
        if self.current is None or not self.current.process.is_alive:
            self.current = Driver(self.cluster, self.master)
        return self.current


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("spark")) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def drivers(running: Cluster) -> Drivers:
    return Drivers(running, running.url)


@pytest.fixture(scope="package")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without master and workers, for processes whose tasks run beside them."""
    cluster = Cluster(tmp_path_factory.mktemp("alone"))
    cluster.prepare()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="package")
def lone_drivers(alone: Cluster) -> Drivers:
    return Drivers(alone, "local[2]")


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """The cluster with all of its workers."""
    running.mend()
    return running


@pytest.fixture
def driver(cluster: Cluster, drivers: Drivers) -> Driver:
    """A driver whose tasks run on the cluster."""
    assert drivers.cluster is cluster
    return drivers.living()


@pytest.fixture
def lone_driver(lone_drivers: Drivers) -> Driver:
    """A driver whose tasks run beside it. It starts in half the time, for what does not depend on where they do."""
    return lone_drivers.living()


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """A small graph with a branch for each engine."""
    made = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    made.load(BEFORE)
    for name in ("local", "spark"):
        made.branches.create(name)
    return made

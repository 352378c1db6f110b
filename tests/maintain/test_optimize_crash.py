"""Optimize that is killed: it is committed completely or not at all, and the next one finishes the work."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.faults.test_durability import acknowledged_disk, lost_files
from tests.maintain.optimizing import covered, scattered, told
from tests.support.crash import position
from tests.support.forked import start_worker
from tests.support.synced import trace

pytestmark = pytest.mark.faults

OPTIMIZE = "import sys, omnigraph as og; og.open(sys.argv[1], durability='os').optimize(actor='dan')"


def optimize_up_to(uri: str, at: int, script: str = OPTIMIZE) -> dict[str, Any]:
    """Run optimize in a process that is killed before its `at`-th change on disk (0: never)."""
    worker = start_worker(script, uri, trace={"root": uri, "at": at, "action": "kill"})
    output, errors = worker.communicate()
    news = [json.loads(line[1:]) for line in output.splitlines() if line.startswith("@")]
    assert news, errors
    assert news[-1]["killed"] == (at > 0), errors
    found: dict[str, Any] = news[-1]
    return found


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    return scattered(str(tmp_path_factory.mktemp("crash") / "g"), commits=2)


@pytest.fixture(scope="module")
def cuts(original: og.Graph, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Return the points to kill it: the change and its number."""
    folder = tmp_path_factory.mktemp("whole") / "g"
    shutil.copytree(original.uri, folder)
    changes = optimize_up_to(str(folder), 0)["changes"]
    return {
        "begin": position(changes, holds="__recovery/"),
        "rewrite": position(changes, holds="/data/", starts="rename"),
        "index": position(changes, holds="/_indices/"),
        "version": position(changes, holds="edges/", last=True),
        "confirm": position(changes, holds=".outcome") - 1,
        "swap": position(changes, holds="__manifest/_versions/"),
        "end": position(changes, holds="__recovery/", last=True),
    }


@pytest.mark.parametrize(
    "doing",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("begin", "rewrite", "index", "end")),
        "version",
        "confirm",
        "swap",
    ],
)
def test_killed_on_the_way_the_graph_reads_as_before_and_heals(
    original: og.Graph, cuts: dict[str, int], doing: str, tmp_path: Path
) -> None:
    uri = str(tmp_path / "g")
    shutil.copytree(original.uri, uri)
    states = {commit.id: told(original, at=commit.id) for commit in original.commits()}
    optimize_up_to(uri, cuts[doing])

    assert told(og.open(uri, mode="r")) == told(original)
    graph = og.open(uri, durability="os")
    assert not graph._repository.intents.pending().ids
    again = graph.optimize()
    assert told(graph) == told(og.open(uri, mode="r")) == told(original)
    assert covered(graph)
    # Complete work is rolled forward with its actor. Other work is done again.
    assert (again.commit is None) == (doing in ("swap", "end"))
    made = [commit for commit in graph.commits() if commit.operation == "optimize"]
    assert [commit.actor for commit in made] == ["dan" if again.commit is None else None]
    assert {id_: told(graph, at=id_) for id_ in states} == states


@pytest.mark.slow
def test_every_file_is_synced_before_it_is_acknowledged(original: og.Graph, tmp_path: Path) -> None:
    uri = str(tmp_path / "g")
    shutil.copytree(original.uri, uri)
    program = "import sys, omnigraph as og; og.open(sys.argv[1]).optimize(); print('ACK', flush=True)"
    disk = acknowledged_disk(trace([sys.executable, "-B", "-c", program, uri], tmp_path / "calls"), uri)
    assert any("/_indices/" in name for name in disk.made())
    assert any(name.startswith("edges/") and "/data/" in name for name in disk.made())
    assert lost_files(disk) == []

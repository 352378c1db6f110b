"""Crash cuts of mutations and loads: a killed one is committed completely or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.errors import ConstraintViolation
from omnigraph.graph.repository import Repository
from tests.faults.conftest import Cuts, wanted_cuts
from tests.faults.test_crash_cuts import check_cut
from tests.faults.test_durability import acknowledged_disk, lost_files
from tests.support.abandoned import outcome_of
from tests.support.api_writes import API_WRITES
from tests.support.crash import copy_graph, run_traced, worker
from tests.support.synced import trace
from tests.support.workload import Setting, State, Task, look

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]

FOLDERS = {"__manifest", "nodes", "edges", "__recovery", "__idempotency"}
SAMPLE = ("mutate-mixed", "load-merge", "bulk-load-merge", "bulk-load-overwrite")


@pytest.fixture
def spools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory for the processes of a test."""
    folder = tmp_path / "spools"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize("kind", API_WRITES if wanted_cuts() == "all" else SAMPLE)
def test_a_mutation_or_load_that_dies_is_there_whole_or_not_at_all(
    kind: str, tmp_path: Path, spools: Path, settings: Callable[[Setting], Path], cuts: Cuts
) -> None:
    template = settings("people")
    uri = copy_graph(template, tmp_path / "graph")
    before = look(uri)
    assert before is not None
    whole = run_traced(Task(kind, uri))
    assert whole.acknowledged, whole.lines
    assert not list(spools.iterdir()), "a load that came to its end left files behind"
    after = look(uri)
    assert after is not None
    assert after != before
    astray = [change for change in whole.changes if _folder(change) not in FOLDERS]
    assert not astray, f"it made files that are no part of a graph: {astray}"
    confirmed = [outcome_of(whole.changes)] if API_WRITES[kind].bulk else []
    for at in cuts.chosen(whole.changes, 1 + len(confirmed), including=confirmed):
        uri = copy_graph(template, tmp_path / "graph")
        run = run_traced(Task(kind, uri), at)
        with cuts.watching(at, run.cut):
            check_cut(kind, uri, run, before, after)
            check_again(kind, uri, before, after)
    cuts.report()


@pytest.mark.parametrize("kind", API_WRITES if wanted_cuts() == "all" else SAMPLE[-2:])
def test_every_file_of_a_mutation_or_load_is_synced_before_it_is_acknowledged(
    kind: str, tmp_path: Path, spools: Path, settings: Callable[[Setting], Path]
) -> None:
    uri = copy_graph(settings("people"), tmp_path / "graph")
    disk = acknowledged_disk(trace(worker(Task(kind, uri)), tmp_path / "calls"), uri)
    made = disk.made()
    assert any(name.startswith("__manifest/_versions/") for name in made)
    assert any(name.startswith(("nodes/", "edges/")) for name in made)
    assert lost_files(disk) == []
    assert not list(spools.iterdir())


def check_again(kind: str, uri: str, before: State, after: State) -> None:
    """Check that the same write again has its normal effect on the present state."""
    found = _rows(uri)
    write = API_WRITES[kind]
    graph = Repository.open(uri, durability="os")
    try:
        if found == _main(before) or write.again == "same":
            assert write.act(graph)
            assert _rows(uri) == _main(after)
        elif write.again == "constraint_violation":
            with pytest.raises(ConstraintViolation):
                write.act(graph)
            assert _rows(uri) == _main(after)
        elif write.again == "nothing":
            assert write.act(graph) == ""
        else:
            assert write.act(graph)
            assert len(_rows(uri)[1]) == len(_main(after)[1]) + 1
    finally:
        graph.close()


def _rows(uri: str) -> list[dict[str, int]]:
    found = look(uri)
    assert found is not None
    return _main(found)


def _main(state: State) -> list[dict[str, int]]:
    """Return the rows of the written branch, without its history."""
    return list(state.branches["main"][1].values())


def _folder(change: str) -> str:
    return change.split(" ", 1)[1].split("/", 1)[0]

"""A merge, revert or schema change that dies happened whole or not at all, and the same again ends in one of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.errors import NotFound
from omnigraph.graph.repository import Repository
from tests.faults.conftest import Cuts
from tests.faults.test_crash_cuts import check_cut
from tests.support.abandoned import outcome_of
from tests.support.crash import copy_graph, position, run_traced
from tests.support.merge_writes import MERGE_WRITES
from tests.support.workload import Setting, State, Task, look

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("kind", MERGE_WRITES)
def test_a_merge_revert_or_schema_change_that_dies_is_there_whole_or_not_at_all(
    kind: str, tmp_path: Path, settings: Callable[[Setting], Path], cuts: Cuts
) -> None:
    template = settings("branches")
    uri = copy_graph(template, tmp_path / "graph")
    before = look(uri)
    assert before is not None
    whole = run_traced(Task(kind, uri))
    assert whole.acknowledged, whole.lines
    after = look(uri)
    assert after is not None
    assert after != before
    for at in cuts.chosen(whole.changes, 2, including=_including(kind, whole.changes)):
        uri = copy_graph(template, tmp_path / "graph")
        run = run_traced(Task(kind, uri), at)
        with cuts.watching(at, run.cut):
            check_cut(kind, uri, run, before, after)
            check_again(kind, uri, after)
    cuts.report()


def _including(kind: str, changes: list[str]) -> list[int]:
    """Cuts that no sample is without: when a bulk write has confirmed, and before a branch is deleted."""
    write = MERGE_WRITES[kind]
    found = [outcome_of(changes)] if write.bulk else []
    if write.doomed is not None:
        found.append(position(changes, starts="linkat __manifest/_versions/", last=True))
    return found


def check_again(kind: str, uri: str, after: State) -> None:
    """The same once more leads where it led undisturbed, and does nothing twice."""
    write = MERGE_WRITES[kind]
    graph = Repository.open(uri, durability="os")
    try:
        source = None if write.source not in graph.branches() else graph.head(write.source).commit.id
        if write.source is not None and source is None:
            with pytest.raises(NotFound):
                write.act(graph)
        else:
            write.act(graph)
        # Checks have written to every branch meanwhile, so that histories are longer than they were.
        found = look(uri)
        assert found is not None
        assert _rows(found) == _rows(after)
        ours = [item for item in graph.commits(write.branch) if item.actor == "writer"]
        done = [item for item in ours if item.operation in ("merge", "revert", "schema_apply")]
        assert 1 <= len(done) <= (2 if write.source else 1), [item.operation for item in done]
    finally:
        graph.close()


def _rows(state: State) -> object:
    return {name: tables for name, (_, tables) in state.branches.items()}, state.rest

"""Crash cuts of merges, reverts and schema changes: complete or absent, and a retry applies them once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.errors import NotFound
from omnigraph.graph.repository import Repository
from tests.faults.conftest import Cuts, wanted_cuts
from tests.faults.test_crash_cuts import check_cut
from tests.support.abandoned import SWAP, outcome_of
from tests.support.crash import copy_graph, position, run_traced
from tests.support.merge_writes import MERGE_WRITES
from tests.support.workload import Setting, State, Task, look

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]


SAMPLE = (
    "merge-fast-forward",
    "merge-rows",
    "merge-many-rows",
    "merge-and-delete",
    "revert",
    "add-required-property",
    "drop-type-for-good",
)


@pytest.mark.parametrize("kind", SAMPLE if wanted_cuts() == "sample" else MERGE_WRITES)
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
    including = _including(kind, whole.changes)
    for at in cuts.chosen(whole.changes, max(1, len(including)), including=including):
        uri = copy_graph(template, tmp_path / "graph")
        run = run_traced(Task(kind, uri), at)
        with cuts.watching(at, run.cut):
            check_again(kind, copy_graph(Path(uri), tmp_path / "again"), after)
            check_cut(kind, uri, run, before, after)
    cuts.report()


def _including(kind: str, changes: list[str]) -> list[int]:
    """Return the cuts of every sample: before and after a merge is confirmed, and before a branch is deleted."""
    if MERGE_WRITES[kind].doomed is not None:
        return [position(changes, starts=SWAP, last=True)]
    return [outcome_of(changes) - 1, outcome_of(changes)] if kind == "merge-many-rows" else []


def check_again(kind: str, uri: str, after: State) -> None:
    """Check that the same operation again leads to the result of an undisturbed run: it is applied once."""
    write = MERGE_WRITES[kind]
    graph = Repository.open(uri, durability="os")
    try:
        if write.source is not None and write.source not in graph.branches():
            with pytest.raises(NotFound):
                write.act(graph)
        else:
            write.act(graph)
    finally:
        graph.close()
    found = look(uri)
    assert found == after, f"the second time led to {found}, not to {after}"

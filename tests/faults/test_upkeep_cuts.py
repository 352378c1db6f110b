"""Crash cuts of upkeep: a pass that is killed at any change on disk has removed no data that is retained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.graph.repository import Repository
from tests.faults.conftest import Cuts
from tests.maintain.graphs import RECLAIMED, Rows, history, rows_at
from tests.support.crash import copy_graph, run_traced
from tests.support.upkeep import perform_upkeep
from tests.support.workload import Setting, Task, look, pairs, write
from tests.support.workload import change as change_pairs

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]


def states(uri: str) -> dict[str, Rows | str]:
    """The rows of every commit."""
    graph = Repository.open(uri, mode="r", durability="os")
    return {id_: rows_at(graph, commit) for id_, commit in history(graph).items()}


def table_files(uri: str) -> set[str]:
    found = [path for folder in ("nodes", "edges") for path in Path(uri, folder).rglob("*") if path.is_file()]
    return {path.relative_to(uri).as_posix() for path in found}


def test_upkeep_that_dies_has_removed_nothing_that_is_retained(
    tmp_path: Path, settings: Callable[[Setting], Path], cuts: Cuts
) -> None:
    template = settings("worn")
    uri = copy_graph(template, tmp_path / "graph")
    before, expected = states(uri), look(uri)
    whole = run_traced(Task("upkeep", uri))
    assert whole.acknowledged is not None, whole.lines
    retained = {id_ for id_, rows in states(uri).items() if rows != RECLAIMED}
    assert 3 <= len(retained) < len(before)
    left = table_files(uri)
    for at in cuts.chosen(whole.changes, 2):
        uri = copy_graph(template, tmp_path / "graph")
        run = run_traced(Task("upkeep", uri), at)
        with cuts.watching(at, run.cut):
            assert look(uri) == expected
            for id_, rows in states(uri).items():
                assert rows == before[id_] or (rows == RECLAIMED and id_ not in retained)
            # The next pass completes the work, and writes go on.
            graph = Repository.open(uri, durability="os")
            perform_upkeep(graph, keep=2)
            assert {id_ for id_, rows in states(uri).items() if rows != RECLAIMED} == retained
            assert table_files(uri) == left
            write(graph, change_pairs(insert=pairs(500)))
            graph.close()
    cuts.report()

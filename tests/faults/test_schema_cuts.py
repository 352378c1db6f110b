"""Crash cuts of a schema change that gives edges new ids: the schema and all ids change together or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.graph.repository import Repository
from tests.faults.conftest import Cuts
from tests.support.abandoned import outcome_of
from tests.support.api_writes import SCHEMA_WRITES, as_graph
from tests.support.crash import copy_graph, run_traced
from tests.support.workload import Setting, Task

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]

DERIVED = {'["ann","bob"]', '["bob","cy"]', '["dan","ann"]'}


def test_apply_of_an_edge_key_that_dies_changes_schema_and_ids_together(
    tmp_path: Path, settings: Callable[[Setting], Path], cuts: Cuts
) -> None:
    template = settings("people")
    uri = copy_graph(template, tmp_path / "graph")
    before = observe(uri)
    whole = run_traced(Task("edge-key", uri))
    assert whole.acknowledged, whole.lines
    after = observe(uri)
    assert before[0] is None
    assert before[1] >= {"k1", "k2", "k3"}
    assert after[0] == ("src", "dst")
    assert after[1] >= DERIVED
    assert not after[1] & before[1]
    for at in cuts.chosen(whole.changes, 2, including=[outcome_of(whole.changes)]):
        uri = copy_graph(template, tmp_path / "graph")
        run = run_traced(Task("edge-key", uri), at)
        with cuts.watching(at, run.cut):
            assert observe(uri) in (before, after)
            repository = Repository.open(uri, durability="os")
            try:
                SCHEMA_WRITES["edge-key"].act(repository)
                assert as_graph(repository).verify().ok
            finally:
                repository.close()
            assert observe(uri) == after
    cuts.report()


def observe(uri: str) -> tuple[tuple[str, ...] | None, set[str]]:
    """Return the key of the edges, and their ids."""
    repository = Repository.open(uri, durability="os")
    try:
        snapshot = repository.snapshot()
        edge = snapshot.catalog.schema.edge("Knows")
        assert edge is not None
        return edge.key, set(snapshot.scan("edge:Knows", ["id"])["id"].to_pylist())
    finally:
        repository.close()

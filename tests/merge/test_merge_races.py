"""Merges while others write: a merge is checked against what is there when it becomes visible."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.api.results.merges import Merged
from omnigraph.errors import Conflict, ConstraintViolation, MergeConflicts
from omnigraph.graph.recovery.intents import Intents
from omnigraph.merge import state_merge
from omnigraph.store.objects.object_store import ObjectStore
from tests.merge.merges import (
    SCHEMA,
    Record,
    change,
    column,
    edge,
    head,
    kinds,
    make,
    node,
    person,
    put,
    state,
)
from tests.support.waiting import wait_until


def base_rows() -> list[Record]:
    people = [person(f"base{number}", age=1) for number in range(8)]
    return [*people, edge("Knows", "k", "base0", "base7", since=1)]


class Meanwhile:
    """Something that another handle does when a merge has come so far, once."""

    def __init__(self, stage: str, work: Callable[[], object]) -> None:
        self.stage = stage
        self.work = work
        self.seen: list[str] = []

    def __call__(self, stage: str, _: int) -> None:
        first = stage not in self.seen
        self.seen.append(stage)
        if stage == self.stage and first:
            self.work()


def both_changed() -> og.Graph:
    graph = make(records=base_rows())
    graph.branches.create("theirs")
    put(graph, person("base0", age=2))
    put(graph, person("base1", age=3), branch="theirs")
    return graph


def test_merge_with_moved_target_is_prepared_again() -> None:
    graph = both_changed()
    rival = og.open(graph.uri)
    meanwhile = Meanwhile("stage", lambda: put(rival, person("base2", age=4)))
    done = graph.branches.merge("theirs", progress=meanwhile)
    assert meanwhile.seen.count("stage") == 2
    assert done.commit is not None
    assert done.commit.parents == (graph.commits()[1].id, head(graph, "theirs"))
    ages = column(graph, "age")
    assert (ages["base0"], ages["base1"], ages["base2"]) == (2, 3, 4)


def test_merge_with_target_moved_into_conflict_is_refused() -> None:
    graph = both_changed()
    rival = og.open(graph.uri)
    meanwhile = Meanwhile("stage", lambda: put(rival, person("base1", age=4)))
    with pytest.raises(MergeConflicts):
        graph.branches.merge("theirs", progress=meanwhile)
    assert column(graph, "age")["base1"] == 4


def test_merge_with_target_moved_in_other_types_is_not_prepared_again() -> None:
    graph = make(SCHEMA + "node Note { name: String @key }", base_rows())
    graph.branches.create("theirs")
    put(graph, person("base0", age=2))
    put(graph, person("base1", age=3), branch="theirs")
    rival = og.open(graph.uri)
    meanwhile = Meanwhile("stage", lambda: put(rival, node("Note", "n")))
    graph.branches.merge("theirs", progress=meanwhile)
    assert meanwhile.seen.count("stage") == 1
    assert state(graph)["Note"].keys() == {"n"}
    assert column(graph, "age")["base1"] == 3


def test_edge_inserted_during_merge_keeps_its_node() -> None:
    graph = make(records=base_rows())
    graph.branches.create("theirs")
    put(graph, person("base0", age=2))
    change(graph, 'delete Person where name = "base5"', "theirs")
    rival = og.open(graph.uri)
    meanwhile = Meanwhile("stage", lambda: put(rival, edge("Knows", "late", "base6", "base5")))
    with pytest.raises(MergeConflicts) as caught:
        graph.branches.merge("theirs", progress=meanwhile)
    assert kinds(caught.value.conflicts) == [("orphan_edge", "Knows", "late", "to")]
    assert "base5" in state(graph)["Person"]


def test_node_deleted_during_merge_leaves_no_orphan_edge() -> None:
    graph = make(records=base_rows())
    graph.branches.create("theirs")
    put(graph, edge("Knows", "mine", "base0", "base1"))
    put(graph, edge("Knows", "your", "base5", "base6"), branch="theirs")
    rival = og.open(graph.uri)
    meanwhile = Meanwhile("stage", lambda: change(rival, 'delete Person where name = "base5"'))
    with pytest.raises(MergeConflicts) as caught:
        graph.branches.merge("theirs", progress=meanwhile)
    assert kinds(caught.value.conflicts) == [("orphan_edge", "Knows", "your", "from")]


def test_unique_value_inserted_during_merge_is_not_duplicated() -> None:
    graph = both_changed()
    put(graph, person("new", mail="m"), branch="theirs")
    rival = og.open(graph.uri)
    meanwhile = Meanwhile("stage", lambda: put(rival, person("late", mail="m")))
    with pytest.raises(MergeConflicts) as caught:
        graph.branches.merge("theirs", progress=meanwhile)
    assert caught.value.conflicts[0]["kind"] == "unique_violation"


def test_write_that_began_before_a_merge_is_checked_against_it() -> None:
    """The other way about: the merge brings the value while a load is on its way."""
    graph = both_changed()
    put(graph, person("new", mail="m"), branch="theirs")
    rival = og.open(graph.uri)
    merged: list[Merged] = []

    def meanwhile(*_: object) -> None:
        if not merged:
            merged.append(graph.branches.merge("theirs"))

    with pytest.raises(ConstraintViolation):
        rival.load([person("late", mail="m")], "append", progress=meanwhile)
    assert merged
    assert "late" not in state(graph)["Person"]


def test_merge_beside_optimize_succeeds() -> None:
    graph = both_changed()
    rival = og.open(graph.uri)
    meanwhile = Meanwhile("stage", lambda: rival.optimize())
    graph.branches.merge("theirs", progress=meanwhile)
    ages = column(graph, "age")
    assert (ages["base0"], ages["base1"]) == (2, 3)


def test_merge_of_many_rows_holds_an_intent_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_merge, "ROWS_WITHOUT_INTENT", 0)
    graph = both_changed()
    intents = Intents(ObjectStore.open(graph.uri))
    seen: list[Any] = []

    def look() -> None:
        seen.extend(intents.read(id_) for id_ in intents.pending().ids)

    graph.branches.merge("theirs", actor="ana", progress=Meanwhile("stage", look))
    assert [(item.operation, item.branch, item.actor) for item in seen] == [("merge", "main", "ana")]
    assert not intents.pending().ids


def test_merge_of_few_rows_writes_no_intent_and_is_published_with_waiting_inserts() -> None:
    graph = both_changed()
    joined: list[Future[og.Receipt]] = []
    assert isinstance(graph, LocalGraph)
    queue = graph._repository.write_queue
    before = queue.statistics.group_sizes().get(2, 0)

    def insert_meanwhile() -> None:
        assert not Intents(ObjectStore.open(graph.uri)).pending().ids
        joined.append(pool.submit(graph.mutate, 'query add() { insert Person { name: "late" } }'))
        wait_until(lambda: queue.waiting("main") == 1)

    with ThreadPoolExecutor(1) as pool:
        merged = graph.branches.merge("theirs", progress=Meanwhile("stage", insert_meanwhile))
        receipt = joined[0].result()
    assert merged.commit is not None
    assert receipt.commit is not None
    assert receipt.commit.parents == (merged.commit.id,)
    assert queue.statistics.group_sizes().get(2, 0) == before + 1


def test_merge_that_waits_for_an_insert_starts_the_next_group() -> None:
    graph = both_changed()
    assert isinstance(graph, LocalGraph)
    queue = graph._repository.write_queue
    merges: list[Future[Merged]] = []
    before = dict(queue.statistics.group_sizes())

    def merge_meanwhile(stage: str, _: int) -> None:
        if stage == "stage" and not merges:
            merges.append(pool.submit(graph.branches.merge, "theirs"))
            wait_until(lambda: queue.waiting("main") == 1)

    with ThreadPoolExecutor(1) as pool:
        first = graph.load([person("late", age=1)], progress=merge_meanwhile)
        merged = merges[0].result()
    assert first.commit is not None
    assert merged.commit is not None
    assert merged.commit.parents[0] == first.commit.id
    assert queue.statistics.group_sizes()[1] == before.get(1, 0) + 2


def test_merge_that_fails_leaves_nothing_visible_and_can_be_repeated() -> None:
    graph = both_changed()
    before = head(graph)

    def fail() -> None:
        raise RuntimeError("no more power")

    with pytest.raises(RuntimeError, match="no more power"):
        graph.branches.merge("theirs", progress=Meanwhile("stage", fail))
    assert head(graph) == before
    assert not Intents(ObjectStore.open(graph.uri)).pending().ids
    assert graph.branches.merge("theirs").outcome == "merged"


def test_merge_with_conflicts_or_fast_forward_writes_no_intent() -> None:
    graph = both_changed()
    put(graph, person("base0", age=9), branch="theirs")
    stages: list[str] = []
    with pytest.raises(MergeConflicts):
        graph.branches.merge("theirs", progress=lambda stage, _: stages.append(stage))
    assert "stage" not in stages


def test_merge_progress_reports_each_stage() -> None:
    graph = both_changed()
    told: list[tuple[str, int]] = []
    graph.branches.merge("theirs", progress=lambda stage, rows: told.append((stage, rows)))
    assert told == [("compare", 1), ("check", 1), ("stage", 1)]


def test_merge_on_removed_version_of_theirs_is_refused(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    graph.load(base_rows())
    graph.branches.create("theirs")
    put(graph, person("base0", age=2))
    # Theirs is the larger side, so that ours is laid over its version.
    put(graph, *(person(f"more{number}") for number in range(20)), branch="theirs")
    pin = graph.snapshot("theirs").pin("node:Person")
    version = tmp_path / "graph" / pin.path / "_versions" / f"d{pin.version}.manifest"
    before = head(graph)
    with pytest.raises(Conflict, match="was removed while this merge was being published"):
        graph.branches.merge("theirs", progress=Meanwhile("stage", version.unlink))
    assert head(graph) == before

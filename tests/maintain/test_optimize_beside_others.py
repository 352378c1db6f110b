"""Optimize concurrent with writers: both succeed, and no change is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

import omnigraph as og
from omnigraph.graph import repository
from omnigraph.maintain import compaction_policy
from tests.maintain.optimizing import (
    CITY,
    KNOWS,
    PERSON,
    by_key,
    covered,
    fragments,
    names,
    person,
    scattered,
    segments,
    told,
)
from tests.support.api_writes import loading_in_bulk
from tests.support.places import fresh_memory

Act = Callable[[og.Graph], object]


class Interruptions:
    """Concurrent actions, one before each stage of an optimize."""

    def __init__(self, uri: str, stage: str, *acts: Act) -> None:
        self._graph = og.open(uri, durability="os")
        self._stage = stage
        self._acts = list(acts)
        self.stages: list[str] = []
        self.intents: list[tuple[str, ...]] = []
        self.reservations: set[str] = set()

    def __call__(self, stage: str, rows: int) -> None:
        if rows:
            return
        self.stages.append(stage)
        pending = self._graph._repository.intents.pending()
        self.intents.append(tuple(pending.ids))
        self.reservations.update(pending.reservations)
        if stage == self._stage and self._acts:
            self._acts.pop(0)(self._graph)


@pytest.fixture
def graph() -> og.Graph:
    return scattered(fresh_memory())


def insert(number: int) -> Act:
    return lambda graph: graph.mutate(
        f'query add() {{ insert Person {{ name: "p{number}", age: 1, mail: "m{number}" }} }}'
    )


def delete(name: str) -> Act:
    return lambda graph: graph.mutate(f'query gone() {{ delete Person where name = "{name}" }}')


def update(name: str, age: int) -> Act:
    return lambda graph: graph.mutate(
        f'query change() {{ update Person set {{ age: {age} }} where name = "{name}" }}'
    )


def people(graph: og.Graph) -> list[str]:
    return names(told(graph)[0])


@pytest.mark.parametrize("stage", ["compact", "index"])
def test_a_commit_in_between_is_taken_in_and_what_was_written_is_used(graph: og.Graph, stage: str) -> None:
    others = Interruptions(graph.uri, stage, insert(80))
    done = graph.optimize(progress=others)
    assert done.commit is not None
    mutation = graph.commit(done.commit.parents[0])
    assert mutation.operation == "mutate"
    assert "p80" in people(graph)
    assert told(graph) == told(og.open(graph.uri))
    assert by_key(done)[PERSON].fragments_removed == 4
    assert covered(graph)
    # The rewrite is reused. The small index is built again with the added row.
    assert others.stages == ["compact", "index", "index"]


def test_segments_of_a_large_index_are_used_again(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_policy, "SMALL_ROWS", 2)
    built: list[int] = []

    def progress(stage: str, rows: int) -> None:
        if stage == "index":
            built.append(rows)
        others(stage, rows)

    others = Interruptions(graph.uri, "index", insert(80))
    graph.optimize(progress=progress)
    first, second = built[: built.index(0, 1)], built[built.index(0, 1) :]
    assert max(first) > 60
    assert max(second) == 4, "more was indexed than the row that was added"
    assert covered(graph)
    assert told(graph) == told(og.open(graph.uri))
    assert graph.query(
        'query added() { match { $p: Person  $p.mail = "m80" } return { $p.name } }'
    ).rows() == [{"p.name": "p80"}]


def test_a_row_that_is_deleted_in_between_stays_deleted(graph: og.Graph) -> None:
    others = Interruptions(graph.uri, "index", delete("p21"), update("p22", 77))
    graph.optimize(progress=others)
    assert "p21" not in people(graph)
    assert {row["p.name"]: row["p.age"] for row in told(graph)[0]}["p22"] == 77
    assert told(graph) == told(og.open(graph.uri))
    assert covered(graph)
    # The fragment with the deletion was rewritten again.
    assert others.stages.count("compact") == 3


def test_an_overwrite_in_between_stands(graph: og.Graph) -> None:
    def overwrite(other: og.Graph) -> None:
        other.load({"Knows": []}, "overwrite")
        other.load({"Person": [person(1)]}, "overwrite")

    done = by_key(graph.optimize(progress=Interruptions(graph.uri, "index", overwrite)))
    assert people(graph) == ["p1"]
    assert done[PERSON].fragments_removed == 0
    assert covered(graph)


def test_an_optimize_in_between_leaves_the_other_nothing_to_do(graph: og.Graph) -> None:
    done = graph.optimize(progress=Interruptions(graph.uri, "index", lambda other: other.optimize()))
    assert done.commit is None
    assert not any(item.committed for item in done.datasets)
    assert covered(graph)
    assert [commit.operation for commit in graph.commits()].count("optimize") == 1


def test_segments_that_were_merged_in_between_are_not_there_twice(graph: og.Graph) -> None:
    def load(first: int) -> Act:
        def act(other: og.Graph) -> None:
            with loading_in_bulk():
                other.load({"Person": [person(number) for number in range(first, first + 3)]})

        return act

    load(100)(graph)
    load(110)(graph)
    graph.optimize(progress=Interruptions(graph.uri, "index", load(120), load(130)))
    assert covered(graph)
    assert len(segments(graph, PERSON)) == 1
    assert told(graph) == told(og.open(graph.uri))


def test_optimize_leaves_a_type_that_is_written_all_the_time_and_no_writer_waits_for_it(
    graph: og.Graph,
) -> None:
    others = Interruptions(graph.uri, "index", *(insert(200 + number) for number in range(40)))
    found = by_key(graph.optimize(progress=others))
    assert (found[PERSON].skipped, found[PERSON].committed) == ("Busy", False)
    assert not others.reservations
    assert found[KNOWS].committed
    assert found[CITY].committed
    assert len(fragments(graph, KNOWS)) == 1
    assert told(graph) == told(og.open(graph.uri))


def test_a_branch_that_never_comes_to_rest_is_no_error(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "MAX_PREPARATIONS", 3)
    others = Interruptions(graph.uri, "index", *(insert(200 + number) for number in range(4)))
    done = graph.optimize(progress=others)
    assert done.commit is None
    assert {item.skipped for item in done.datasets} == {"Busy"}
    assert "changed 3 times while optimize was being prepared" in str(done.datasets[0].error)
    assert not any(item.committed for item in done.datasets)
    assert {"p200", "p201", "p202"} <= set(people(graph))
    assert graph.optimize().commit is not None


def test_one_intent_covers_all_attempts(graph: og.Graph) -> None:
    others = Interruptions(graph.uri, "index", insert(80), insert(81))
    graph.optimize(progress=others)
    assert len(others.intents) > 2
    assert len(set(others.intents)) == 1
    assert len(others.intents[0]) == 1


def test_writers_and_optimizers_at_the_same_time_lose_nothing(graph: og.Graph) -> None:
    done = threading.Event()

    def write() -> None:
        other = og.open(graph.uri, durability="os")
        for number in range(300, 315):
            insert(number)(other)
            update(f"p{number}", 88)(other)
            if number % 3 == 0:
                delete(f"p{number}")(other)

    def found() -> None:
        other = og.open(graph.uri, durability="os")
        for number in range(15):
            other.mutate(f'query add() {{ insert City {{ name: "c{number}" }} }}')
            other.mutate(f'query gone() {{ delete City where name = "c{number - 1}" }}')

    def optimize() -> None:
        other = og.open(graph.uri, durability="os")
        while not done.is_set():
            other.optimize()

    with ThreadPoolExecutor() as threads:
        optimizers = [threads.submit(optimize) for _ in range(2)]
        writers = [threads.submit(act) for act in (write, found)]
        wait(writers)
        done.set()
        # Each type has one writer, so that writers conflict only with the optimizers.
        for thread in (*writers, *optimizers):
            thread.result()
    expected = {f"p{number}": 88 for number in range(300, 315) if number % 3}
    ages = {row["p.name"]: row["p.age"] for row in told(graph)[0]}
    assert {name: age for name, age in ages.items() if int(name[1:]) >= 300} == expected
    assert [row["id"] for row in graph.snapshot().scan(CITY, ["id"]).to_pylist()].count("c14") == 1
    assert graph.snapshot().pin(CITY).rows == 2
    graph.optimize()
    assert told(graph) == told(og.open(graph.uri))
    assert covered(graph)

"""Several handles and threads on one graph: each sees complete commits, and no commit is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event

import pytest

from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import OperationClass, Prepared
from omnigraph.store.manifest import branch_swaps
from omnigraph.store.manifest.manifest import LOG_COMPACT_AT
from tests.support.many_branches import add_branches
from tests.support.places import fresh_memory, together
from tests.support.repositories import (
    CITY,
    chain,
    contents,
    handle,
    make_graph,
    people,
    put,
    rewriting,
    stage,
    wear,
    write,
)


@pytest.fixture
def graph() -> Repository:
    return make_graph(fresh_memory())


def test_threads_share_one_handle(uri: str) -> None:
    graph = make_graph(uri)

    def work(number: int) -> int:
        return len([put(graph, {f"{number}-{step}": "x"}) for step in range(5)])

    assert together([partial(work, number) for number in range(5)]) == [5] * 5
    assert len(people(graph)) == 25
    assert len(chain(handle(graph))) == 26


def test_threads_on_branches_of_their_own_do_not_meet(uri: str) -> None:
    graph = make_graph(uri)

    def work(number: int) -> list[int]:
        mine = handle(graph)
        mine.create_branch(f"b{number}")
        receipts = [
            write(mine, partial(_insert, {f"{number}-{step}": "x"}), f"b{number}") for step in range(5)
        ]
        return [receipt.commit.sequence for receipt in receipts]

    assert together([partial(work, number) for number in range(5)]) == [[2, 3, 4, 5, 6]] * 5
    for number in range(5):
        assert set(people(graph, f"b{number}")) == {f"{number}-{step}" for step in range(5)}


def test_writes_to_branches_that_others_fold_meanwhile_are_all_kept(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branch_swaps, "MAX_HEADS_AT_REST", 1)
    monkeypatch.setattr(branch_swaps, "REST_AFTER_FILES", 4)
    graph = make_graph(uri)
    names = [f"agent-{number}" for number in range(8)]
    add_branches(graph, names)

    def work(number: int) -> None:
        mine = handle(graph)
        for step in range(4):
            for name in names[number::4]:
                write(mine, partial(_insert, {f"{step}": "x"}), name)
        assert mine.warnings == []

    together([partial(work, number) for number in range(4)])
    put(handle(graph), {"last": "x"})
    cold = handle(graph)
    assert len(cold.manifest.view.of_kind("head")) < len(names)
    assert {name: cold.head(name).commit.sequence for name in names} == dict.fromkeys(names, 5)
    assert all(set(people(cold, name)) == {"0", "1", "2", "3"} for name in names)


def _insert(rows: dict[str, str | None], transaction: Transaction) -> Prepared[None]:
    stage(transaction, rows)
    return Prepared("insert", None)


def test_a_reader_never_sees_half_a_commit(uri: str) -> None:
    graph = make_graph(uri)
    done = Event()

    def both(value: int) -> None:
        rows: dict[str, str | None] = {"one": str(value), f"n{value % 3}": str(value)}

        def prepare(transaction: Transaction) -> Prepared[None]:
            stage(transaction, rows, list(rows))
            stage(transaction, rows, list(rows), CITY)
            return Prepared("insert", None)

        write(graph, prepare)

    def writer() -> int:
        try:
            for value in range(25):
                both(value)
        finally:
            done.set()
        return 0

    def reader() -> int:
        mine, torn = handle(graph, "r"), 0
        while not done.is_set():
            snapshot = mine.snapshot()
            torn += contents(snapshot) != contents(snapshot, CITY)
        return torn

    assert together([writer, reader, reader]) == [0, 0, 0]
    assert len(chain(graph)) == 26


def test_a_cold_handle_sees_what_a_warm_one_wrote_at_once(uri: str) -> None:
    graph = make_graph(uri)
    other = handle(graph)
    for number in range(5):
        put(graph if number % 2 else other, {str(number): "x"})
        assert len(people(graph)) == len(people(other)) == len(people(handle(graph))) == number + 1


def test_handles_agree_after_the_log_was_folded_under_them(graph: Repository) -> None:
    warm = handle(graph)
    first = put(warm, {"first": "x"})
    for number in range(2 * LOG_COMPACT_AT):
        put(graph, {"a": str(number)})
    assert len(graph.manifest.view.of_kind("commit")) < LOG_COMPACT_AT + 2
    assert graph.warnings == []
    assert people(warm) == {"first": "x", "a": str(2 * LOG_COMPACT_AT - 1)}
    assert warm.commit(first.id) == first
    put(warm, {"b": "1"})
    assert len(chain(warm)) == 2 * LOG_COMPACT_AT + 3


def test_maintenance_and_writers_never_fail_each_other(uri: str) -> None:
    graph = make_graph(uri)
    wear(graph)

    def maintain() -> int:
        mine = handle(graph)
        return len([write(mine, rewriting()) for _ in range(6)])

    def work(number: int, as_class: OperationClass) -> int:
        mine = handle(graph)
        key = CITY if as_class == "strict" else "node:Person"

        def prepare(step: int, transaction: Transaction) -> Prepared[None]:
            stage(transaction, {f"{number}-{step}": "x"}, key=key)
            return Prepared(as_class, None)

        return len([write(mine, partial(prepare, step)) for step in range(6)])

    works: list[Callable[[], int]] = [maintain, partial(work, 1, "insert"), partial(work, 2, "strict")]
    assert together(works) == [6, 6, 6]
    assert set(people(graph)) == {"worn-a", "worn-b", *(f"1-{step}" for step in range(6))}
    assert set(contents(graph.snapshot(), CITY)) == {f"2-{step}" for step in range(6)}


def test_many_handles_cost_no_threads_until_they_write(uri: str) -> None:
    graph = make_graph(uri)
    handles = [handle(graph) for _ in range(50)]
    assert all(people(item) == {} for item in handles)
    put(handles[-1], {"a": "1"})
    assert all(people(item) == {"a": "1"} for item in handles)

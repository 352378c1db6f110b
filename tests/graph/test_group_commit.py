"""Group commit: writes that wait for one branch become a chain of commits, published with one swap."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from omnigraph.errors import Conflict, InvalidInput, OmnigraphError, PreconditionFailed, StorageError
from omnigraph.graph import group_commit
from omnigraph.graph.publish import PublishReceipt
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import OperationClass, Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.store.sync import SyncBatch
from tests.graph.interrupted import Interrupted
from tests.support.groups import GroupWrite, receipts, write_group
from tests.support.repositories import (
    CITY,
    PERSON,
    Prepare,
    chain,
    handle,
    make_graph,
    people,
    put,
    staging,
    write,
)
from tests.support.waiting import HANG, wait_until


@pytest.fixture
def graph(uri: str) -> Iterator[Repository]:
    found = make_graph(uri)
    yield found
    found.close()


@pytest.fixture
def other(graph: Repository) -> Iterator[Repository]:
    found = handle(graph)
    yield found
    found.close()


def adding(name: str, **request: Any) -> GroupWrite:
    """A write that inserts one person."""
    return GroupWrite(staging({name: name}), WriteRequest("load", **request))


def failing(error: Exception) -> Prepare:
    def prepare(_: Transaction) -> Prepared[None]:
        raise error

    return prepare


def inserting_once(name: str) -> Prepare:
    """Insert a person; `Conflict` if there is one with this id."""

    def prepare(transaction: Transaction) -> Prepared[None]:
        transaction.read(PERSON)
        if transaction.base.scan(PERSON, where=f"id = '{name}'").num_rows:
            raise InvalidInput(f"{name} exists")
        return staging({name: name})(transaction)

    return prepare


def test_group_of_writes_is_published_with_one_swap(graph: Repository) -> None:
    before = graph.head().commit
    version = graph.manifest.view.version
    done = receipts(
        write_group(
            graph, [adding(f"p{number}", actor=f"a{number}", message=f"m{number}") for number in range(5)]
        )
    )
    assert graph.manifest.refresh().version == version + 1
    commits = [receipt.commit for receipt in done]
    assert [item.parent for item in commits] == [before.id, *(item.id for item in commits[:-1])]
    assert [item.sequence for item in commits] == [before.sequence + 1 + number for number in range(5)]
    assert [(item.actor, item.message) for item in commits] == [(f"a{n}", f"m{n}") for n in range(5)]
    assert [item.id for item in chain(graph)][-5:] == [item.id for item in commits]
    assert all(item.created_at < later.created_at for item, later in pairwise(commits))


def test_group_commits_each_stay_readable_at_their_own_version(graph: Repository) -> None:
    done = receipts(write_group(graph, [adding("a"), adding("b"), adding("c")]))
    fresh = handle(graph)
    names = [sorted(fresh.snapshot(at=receipt.commit.id).scan(PERSON)["id"].to_pylist()) for receipt in done]
    assert names == [["a"], ["a", "b"], ["a", "b", "c"]]
    recorded = fresh.manifest.recorded_files(fresh.manifest.view)
    if graph.location.scheme != "memory":
        for receipt in done:
            commit = fresh.commit(receipt.commit.id)
            version = f"_versions/d{commit.tables[str(fresh.snapshot().table(PERSON).id)].version}.manifest"
            assert any(name == version for _, name in recorded)
            assert version in commit.files
    fresh.close()


def test_group_write_that_fails_drops_out_alone_with_its_own_error(graph: Repository) -> None:
    error = InvalidInput("not this one")
    done = write_group(
        graph, [adding("a"), GroupWrite(failing(error)), adding("c"), GroupWrite(failing(ValueError("x")))]
    )
    assert done[1] is error
    assert isinstance(done[3], ValueError)
    first, third = receipts([done[0], done[2]])
    assert third.commit.parent == first.commit.id
    assert people(graph) == {"a": "a", "c": "c"}


def test_group_write_sees_the_rows_of_the_writes_before_it(graph: Repository) -> None:
    done = write_group(graph, [GroupWrite(inserting_once("a")), GroupWrite(inserting_once("a")), adding("b")])
    assert isinstance(done[1], InvalidInput)
    receipts([done[0], done[2]])
    assert people(graph) == {"a": "a", "b": "b"}


def test_group_write_can_change_a_row_of_the_write_before_it(graph: Repository) -> None:
    update = GroupWrite(staging({"a": "second"}, ["a"], as_class="strict"))
    delete = GroupWrite(staging(None, ["b"], as_class="strict"))
    receipts(write_group(graph, [adding("a"), update, adding("b"), delete]))
    assert people(graph) == {"a": "second"}


def test_group_precondition_is_decided_against_the_chain(graph: Repository) -> None:
    head = graph.head().commit.id
    done = write_group(graph, [adding("a", expected_head=head), adding("b", expected_head=head), adding("c")])
    first, third = receipts([done[0], done[2]])
    error = done[1]
    assert isinstance(error, PreconditionFailed)
    assert error.details == {"expected": head, "actual": first.commit.id}
    assert third.commit.parent == first.commit.id
    assert people(graph) == {"a": "a", "c": "c"}


def test_group_idempotency_key_used_twice_commits_once(graph: Repository) -> None:
    done = receipts(
        write_group(
            graph,
            [
                adding("a"),
                adding("b", idempotency_key="k", request="b"),
                adding("b", idempotency_key="k", request="b"),
                adding("c", idempotency_key="c", request="c"),
            ],
        )
    )
    assert [receipt.replayed for receipt in done] == [False, False, True, False]
    assert done[1].commit == done[2].commit == graph.commit(done[1].commit.id)
    assert done[3].commit.parent == done[1].commit.id
    assert people(graph) == {"a": "a", "b": "b", "c": "c"}


def test_group_idempotency_key_of_a_failed_write_can_be_used_by_the_next(graph: Repository) -> None:
    key = WriteRequest("load", idempotency_key="k", request="b")
    done = write_group(
        graph,
        [adding("a"), GroupWrite(failing(InvalidInput("no")), key), GroupWrite(staging({"b": "b"}), key)],
    )
    assert isinstance(done[1], InvalidInput)
    assert not receipts([done[2]])[0].replayed
    assert people(graph) == {"a": "a", "b": "b"}


def test_group_idempotency_key_of_another_request_is_refused_alone(graph: Repository) -> None:
    done = write_group(
        graph,
        [
            adding("a", idempotency_key="k", request="a"),
            adding("b", idempotency_key="k", request="b"),
            adding("c"),
        ],
    )
    assert isinstance(done[1], Conflict)
    receipts([done[0], done[2]])
    assert people(graph) == {"a": "a", "c": "c"}


def test_group_after_a_concurrent_commit_is_prepared_again(graph: Repository, other: Repository) -> None:
    last = Interrupted(staging({"c": "c"}), lambda: put(other, {"o": "o"}))
    done = receipts(write_group(graph, [adding("a"), adding("b"), GroupWrite(last)]))
    assert last.times == 2
    assert [item.id for item in chain(graph)][-3:] == [receipt.commit.id for receipt in done]
    assert people(graph) == {"a": "a", "b": "b", "c": "c", "o": "o"}


def test_group_after_a_commit_to_other_tables_is_rebased(graph: Repository, other: Repository) -> None:
    last = Interrupted(staging({"c": "c"}), lambda: write(other, staging({"x": "x"}, key=CITY)))
    done = receipts(write_group(graph, [adding("a"), adding("b"), GroupWrite(last)]))
    assert last.times == 1
    assert done[0].commit.parent == chain(graph)[-4].id
    assert people(graph) == {"a": "a", "b": "b", "c": "c"}
    assert graph.snapshot().pin(CITY).rows == 1


def test_group_that_the_leader_leaves_unpublished_is_led_by_its_first_write(
    graph: Repository, other: Repository
) -> None:
    last = Interrupted(staging({"c": "c"}), lambda: put(other, {"o": "o"}))
    version = graph.manifest.view.version
    done = receipts(write_group(graph, [adding("a"), adding("b"), GroupWrite(last)], behind_another=True))
    assert last.times == 2
    assert graph.manifest.refresh().version == version + 2
    assert [item.id for item in chain(graph)][-3:] == [receipt.commit.id for receipt in done]


def test_group_strict_write_overtaken_by_a_commit_conflicts_alone(
    graph: Repository, other: Repository
) -> None:
    strict = GroupWrite(staging({"s": "s"}, as_class="strict"))
    last = Interrupted(staging({"c": "c"}), lambda: put(other, {"o": "o"}))
    done = write_group(graph, [adding("a"), strict, GroupWrite(last)])
    error = done[1]
    assert isinstance(error, Conflict)
    assert (error.details["table_key"], error.details["expected"], error.details["actual"]) == (
        PERSON,
        "1",
        "2",
    )
    receipts([done[0], done[2]])
    assert people(graph) == {"a": "a", "c": "c", "o": "o"}


def test_group_precondition_lost_to_another_process_fails_alone(graph: Repository, other: Repository) -> None:
    head = graph.head().commit.id
    last = Interrupted(staging({"c": "c"}), lambda: put(other, {"o": "o"}))
    done = write_group(graph, [adding("a", expected_head=head), adding("b"), GroupWrite(last)])
    assert isinstance(done[0], PreconditionFailed)
    receipts(done[1:])
    assert people(graph) == {"b": "b", "c": "c", "o": "o"}


def test_group_error_decided_on_a_write_that_was_not_published_is_decided_again(
    graph: Repository, other: Repository
) -> None:
    # The second write fails, because the first one inserts the same row. The first one is not published.
    strict = GroupWrite(inserting_strictly("a"))
    last = Interrupted(staging({"c": "c"}), lambda: put(other, {"o": "o"}))
    done = write_group(graph, [strict, GroupWrite(inserting_once("a")), GroupWrite(last)])
    assert isinstance(done[0], Conflict)
    receipts(done[1:])
    assert people(graph) == {"a": "a", "c": "c", "o": "o"}


def inserting_strictly(name: str) -> Prepare:
    return staging({name: "strict"}, as_class="strict")


def test_group_write_without_a_change_makes_no_commit(graph: Repository) -> None:
    done = write_group(graph, [adding("a"), GroupWrite(lambda _: Prepared(None, None)), adding("b")])
    assert done[1] is None
    first, second = receipts([done[0], done[2]])
    assert second.commit.parent == first.commit.id


def test_group_is_bounded_by_count_and_bytes(graph: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "MAX_WRITES", 3)
    version = graph.manifest.view.version
    receipts(write_group(graph, [adding(f"p{number}") for number in range(7)]))
    assert graph.manifest.refresh().version == version + 3
    if graph.location.scheme != "memory":
        monkeypatch.setattr(group_commit, "MAX_BYTES", 1)
        receipts(write_group(graph, [adding(f"q{number}") for number in range(3)]))
        assert graph.manifest.refresh().version == version + 6
    assert len(people(graph)) >= 7


def test_group_write_that_is_alone_is_not_taken_into_a_group(graph: Repository) -> None:
    version = graph.manifest.view.version
    alone = GroupWrite(staging({"b": "b"}), WriteRequest("merge", alone=True))
    done = receipts(write_group(graph, [adding("a"), alone, adding("c")]))
    assert graph.manifest.refresh().version == version + 3
    assert [item.id for item in chain(graph)][-3:] == [receipt.commit.id for receipt in done]


def test_group_whose_files_cannot_be_synced_fails_as_a_whole(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: SyncBatch) -> Future[None]:
        failed: Future[None] = Future()
        failed.set_exception(StorageError("the disk is gone"))
        return failed

    before = graph.head().commit.id
    monkeypatch.setattr(SyncBatch, "start", fail)
    done = write_group(graph, [adding("a"), adding("b")])
    assert [type(item) for item in done] == [StorageError, StorageError]
    assert done[0] is not done[1]
    assert graph.head().commit.id == before
    monkeypatch.undo()
    receipts(write_group(graph, [adding("a"), adding("b")]))


def test_group_leader_that_is_interrupted_leaves_the_others_to_the_next_leader(graph: Repository) -> None:
    def interrupt(_: Transaction) -> Prepared[None]:
        raise KeyboardInterrupt

    entered, released = threading.Event(), threading.Event()

    def first(transaction: Transaction) -> Prepared[None]:
        entered.set()
        assert released.wait(HANG)
        return staging({"a": "a"})(transaction)

    def run(prepare: Prepare) -> PublishReceipt | None:
        return graph.write("main", WriteRequest("load"), prepare).receipt

    calls = iter([interrupt, staging({"b": "b"})])
    with ThreadPoolExecutor(3) as threads:
        leader = threads.submit(run, first)
        assert entered.wait(HANG)
        second = threads.submit(run, lambda transaction: next(calls)(transaction))
        wait_until(lambda: graph.write_queue.waiting("main") == 1)
        third = threads.submit(run, staging({"c": "c"}))
        wait_until(lambda: graph.write_queue.waiting("main") == 2)
        released.set()
        assert isinstance(leader.exception(HANG), KeyboardInterrupt)
        assert second.result(HANG) is not None
        assert third.result(HANG) is not None
    assert people(graph) == {"b": "b", "c": "c"}
    assert graph.write_queue.branches == []


def test_many_threads_of_two_handles_end_in_one_chain(graph: Repository, other: Repository) -> None:
    done: list[PublishReceipt] = []
    failures: list[OmnigraphError] = []

    def work(number: int) -> None:
        at = (graph, other)[number % 2]
        for step in range(4):
            class_: OperationClass = "strict" if number % 5 == 0 else "insert"
            try:
                done.append(write(at, staging({f"p{number}-{step}": "x"}, as_class=class_)))
            except Conflict as error:
                failures.append(error)

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(work, range(12)))
    commits = chain(handle(graph))
    assert len({receipt.commit.id for receipt in done}) == len(done) == 48 - len(failures)
    assert {receipt.commit.id for receipt in done} <= {item.id for item in commits}
    assert len(people(graph)) == len(done)

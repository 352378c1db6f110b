"""The write queue: one write of a handle leads at a branch, and the writes behind it wait or join its group."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

import omnigraph as og
from omnigraph.api.local.open_options import OpenOptions
from omnigraph.graph.repository import Repository
from omnigraph.graph.reservations import BranchReservation
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_queue import Turn, WriteQueue
from omnigraph.read.reader import Reader
from tests.support.waiting import HANG, wait_until

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person\n"
ADD = """query add($n: String) { insert Person { name: $n } insert Knows { from: $n, to: "hub" } }"""


@contextmanager
def entering(queue: WriteQueue[str], pool: ThreadPoolExecutor, *writes: str) -> Iterator[list[str]]:
    """Let threads enter the queue of `main` one after another. The yielded list has what became of each write."""
    became: list[str] = []

    def enter(write: str) -> None:
        with queue.enter("main", write) as turn:
            became.append(f"{write} {'is done' if turn is None else 'leads'}")

    def has_entered(count: int) -> bool:
        return queue.waiting("main") == count or bool(became)

    before = queue.waiting("main")
    running = []
    for number, write in enumerate(writes, start=1):
        running.append(pool.submit(enter, write))
        # A write whose timeout is short may have waited already.
        wait_until(partial(has_entered, before + number))
    yield became
    for item in running:
        item.result(HANG)


def test_mutations_of_many_threads_never_make_each_other_stale() -> None:
    og.init("memory://turns-once", SCHEMA).load({"Person": [{"name": "hub"}]})
    begun: list[str] = []

    class Counted(Repository):
        def begin(
            self,
            branch: str = "main",
            commit_id: str | None = None,
            reservation: BranchReservation | None = None,
        ) -> Transaction:
            begun.append(branch)
            return super().begin(branch, commit_id, reservation)

    repository = Counted.open("memory://turns-once")
    graph = og.LocalGraph(repository, Reader(), OpenOptions())
    version = repository.manifest.view.version
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda number: graph.mutate(ADD, {"n": f"p{number}"}), range(40)))
    assert len({receipt.commit.id for receipt in done if receipt.commit is not None}) == 40
    # One begin and one swap for each group. The log is compacted by a swap of its own.
    assert len(begun) <= 40
    assert repository.manifest.view.version - version - len(begun) in (0, 1)


def test_write_to_another_branch_does_not_wait() -> None:
    queue = WriteQueue[str](timeout=30)
    with queue.enter("main", "a") as turn, ThreadPoolExecutor(1) as pool:

        def write_elsewhere() -> bool:
            with queue.enter("review", "b") as other:
                return other is not None

        assert pool.submit(write_elsewhere).result(timeout=HANG)
        assert turn is not None
    assert queue.branches == []


def test_leader_takes_waiting_writes_in_the_order_of_their_arrival() -> None:
    queue = WriteQueue[str]()
    with ThreadPoolExecutor(3) as pool:
        with queue.enter("main", "a") as turn:
            assert turn is not None
            with entering(queue, pool, "b", "c") as became:
                assert [turn.take_next(), turn.take_next(), turn.take_next()] == ["b", "c", None]
                turn.finish("c")
                turn.finish("b")
        assert sorted(became) == ["b is done", "c is done"]
    assert queue.branches == []


def test_writes_that_the_leader_left_without_an_outcome_lead_next() -> None:
    queue = WriteQueue[str]()
    with ThreadPoolExecutor(3) as pool:
        with ExitStack() as stack:
            turn = stack.enter_context(queue.enter("main", "a"))
            assert turn is not None
            # Entered before the queue is left, and waited for after it.
            waiting = entering(queue, pool, "b", "c", "d")
            became = waiting.__enter__()
            assert [turn.take_next(), turn.take_next()] == ["b", "c"]
        waiting.__exit__(None, None, None)
    assert became == ["b leads", "c leads", "d leads"]
    assert queue.branches == []


def test_write_that_waits_for_the_timeout_proceeds_by_itself() -> None:
    queue = WriteQueue[str](timeout=0.01)
    with queue.enter("main", "a") as turn, ThreadPoolExecutor(1) as pool:
        assert turn is not None

        def write_too() -> Turn[str] | None:
            with queue.enter("main", "b") as other:
                assert other is not None
                assert other.take_next() is None
                return other

        assert pool.submit(write_too).result(timeout=HANG) is not None
        assert turn.take_next() is None
    assert queue.branches == []


def test_write_that_was_prepared_is_withdrawn_after_the_timeout_and_not_published() -> None:
    # On a busy machine the timeout can end before this thread has prepared the write. It is longer each time.
    assert any(prepare_and_withdraw(timeout) for timeout in (0.5, 5, 50))


def prepare_and_withdraw(timeout: float) -> bool:
    """Prepare a write whose thread waits for the timeout. Return False if it was withdrawn before."""
    queue = WriteQueue[str](timeout=timeout)
    with queue.enter("main", "a") as turn, ThreadPoolExecutor(1) as pool:
        assert turn is not None
        with entering(queue, pool, "b") as became:
            is_prepared = turn.take_next() == "b"
            if is_prepared:
                with turn.preparing("b") as is_prepared:
                    pass
            wait_until(lambda: became == ["b leads"])
        if not is_prepared:
            return False
        assert turn.begin_publishing(["a", "b"]) == ["b"]
        assert turn.begin_publishing(["a"]) == []
        with turn.preparing("b") as is_wanted:
            assert not is_wanted
    assert queue.branches == []
    return True


def test_write_of_the_leading_thread_to_the_same_branch_does_not_wait() -> None:
    queue = WriteQueue[str]()
    with queue.enter("main", "a"), queue.enter("main", "b") as inner:
        assert inner is not None
        assert inner.write == "b"
    assert queue.branches == []


def test_turn_is_passed_on_when_the_write_fails() -> None:
    queue = WriteQueue[str](timeout=30)
    with pytest.raises(ValueError, match="no"), queue.enter("main", "a"):
        raise ValueError("no")
    with ThreadPoolExecutor(1) as pool, entering(queue, pool) as became:
        assert became == []
        with queue.enter("main", "b") as turn:
            assert turn is not None

"""The write queue: writers of one handle publish to a branch one after another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import omnigraph as og
from omnigraph.api.local.open_options import OpenOptions
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_queue import WriteQueue
from omnigraph.read.reader import Reader
from tests.support.waiting import HANG

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person\n"
ADD = """query add($n: String) { insert Person { name: $n } insert Knows { from: $n, to: "hub" } }"""


def test_work_is_prepared_once_however_many_threads_write_to_a_branch() -> None:
    og.init("memory://turns-once", SCHEMA).load({"Person": [{"name": "hub"}]})
    begun: list[str] = []

    class Counted(Repository):
        def begin(self, branch: str = "main", commit_id: str | None = None) -> Transaction:
            begun.append(branch)
            return super().begin(branch, commit_id)

    graph = og.LocalGraph(Counted.open("memory://turns-once"), Reader(), OpenOptions())
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda number: graph.mutate(ADD, {"n": f"p{number}"}), range(40)))
    assert len({receipt.commit.id for receipt in done if receipt.commit is not None}) == 40
    assert begun == ["main"] * 40


def test_other_branches_are_not_waited_for() -> None:
    queue = WriteQueue(timeout=30)
    reached = threading.Event()

    def write_elsewhere() -> None:
        with queue.acquire("review"):
            reached.set()

    with queue.acquire("main"), ThreadPoolExecutor(1) as pool:
        pool.submit(write_elsewhere).result(timeout=HANG)
    assert reached.is_set()
    assert queue.branches == []


def test_whoever_is_stuck_holds_nobody_up_for_good() -> None:
    queue = WriteQueue(timeout=0.01)
    went: list[str] = []

    def write_too() -> None:
        with queue.acquire("main"):
            went.append("second")

    with queue.acquire("main"), ThreadPoolExecutor(1) as pool:
        pool.submit(write_too).result(timeout=HANG)
        went.append("first")
    assert went == ["second", "first"]
    assert queue.branches == []


def test_a_turn_is_given_back_when_the_write_fails() -> None:
    queue = WriteQueue(timeout=30)
    try:
        with queue.acquire("main"):
            raise ValueError
    except ValueError:
        pass
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: queue.acquire("main").__enter__()).result(timeout=HANG) is None

"""Work that has a time by which it must be done stops by itself, or is stopped, and leaves everything usable."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextvars import copy_context

import numpy as np
import pytest
from sqlglot import exp

import omnigraph as og
from omnigraph.budget.deadline import check_deadline, interrupt_at_deadline, lift_deadline, time_limit
from omnigraph.engine.csr import Adjacency
from omnigraph.engine.duckdb import run_sql
from omnigraph.engine.reachability import reach
from omnigraph.errors import ResourceLimit

# About a week of work.
ENDLESS = "SELECT count(*) AS n FROM range(10000000) a, range(10000000) b WHERE (a.range * b.range) % 7 = 3"


def sql(text: str) -> exp.Expression:
    return exp.maybe_parse(text, into=exp.Select, dialect="duckdb")


@pytest.fixture
def no_time() -> Iterator[None]:
    with time_limit(0):
        yield


def test_check_without_deadline_passes() -> None:
    check_deadline()
    lift_deadline()


def test_check_after_deadline_names_the_limit() -> None:
    with time_limit(0), pytest.raises(ResourceLimit) as caught:
        check_deadline()
    assert caught.value.details["resource"] == "read_seconds"
    assert caught.value.details["actual"] >= caught.value.details["limit"] == 0
    check_deadline()


@pytest.mark.usefixtures("no_time")
def test_deadline_follows_the_context_and_can_be_removed() -> None:
    told: list[str] = []
    context = copy_context()

    def work() -> None:
        try:
            check_deadline()
        except ResourceLimit:
            told.append("late")

    # A thread of its own knows nothing of it, one that takes the context over does.
    for target, expected in ((work, []), (lambda: context.run(work), ["late"])):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
        assert told == expected
    lift_deadline()
    check_deadline()


def test_sql_beyond_the_deadline_is_interrupted_and_the_database_stays_usable() -> None:
    with time_limit(0.05), pytest.raises(ResourceLimit):
        run_sql(sql(ENDLESS), {})
    with time_limit(60):
        assert run_sql(sql("SELECT 7 AS n"), {}).to_pylist() == [{"n": 7}]


def test_sql_within_the_deadline_is_not_interrupted() -> None:
    interrupted: list[bool] = []
    with time_limit(60), interrupt_at_deadline(lambda: interrupted.append(True), ValueError):
        pass
    with (
        pytest.raises(ValueError, match="ours"),
        interrupt_at_deadline(lambda: interrupted.append(True), ValueError),
    ):
        raise ValueError("ours")
    assert interrupted == []


@pytest.mark.usefixtures("no_time")
def test_traversal_beyond_the_deadline_is_interrupted() -> None:
    ring = np.arange(100)
    adjacency = Adjacency.build(ring, (ring + 1) % 100, n_sources=100, n_targets=100)
    with pytest.raises(ResourceLimit):
        reach(adjacency, np.array([0], dtype=np.int32), 1, 50)


def test_query_beyond_the_deadline_is_interrupted_and_the_graph_stays_usable() -> None:
    query = "query all() { match { $p: Person } return { $p.name as name } }"
    with og.init("memory://deadline", "node Person { name: String @key }") as graph:
        graph.load([{"type": "Person", "data": {"name": "Ann"}}])
        with time_limit(0), pytest.raises(ResourceLimit):
            graph.query(query)
        assert graph.query(query).rows() == [{"name": "Ann"}]

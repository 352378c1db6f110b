"""Queries fail before they exceed their limits of memory, rows and edges."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest

import omnigraph as og
from omnigraph.budget.deadline import check_deadline, current_deadline, lift_deadline, time_limit
from omnigraph.budget.query_budget import (
    FREE_BYTES,
    MemoryPool,
    QueryLimits,
    hold_bytes,
    limit_query,
    require_bytes,
    visit_edges,
)
from omnigraph.errors import Cancelled, InvalidInput, ResourceLimit

SCHEMA = "node P { name: String @key  text: String? }  edge K: P -> P"
PEOPLE = 600
FRIENDS = 5


@pytest.fixture(scope="module")
def graph() -> Iterator[og.Graph]:
    graph = og.init("memory://bounded-queries", schema=SCHEMA)
    people = [{"name": f"p{i}", "text": "x" * 100} for i in range(PEOPLE)]
    edges = [
        {"from": f"p{i}", "to": f"p{(7 * i + j) % PEOPLE}"} for i in range(PEOPLE) for j in range(FRIENDS)
    ]
    graph.load({"P": people, "K": edges})
    with graph:
        yield graph


def exceeded(graph: og.Graph, query: str, params: dict[str, Any] | None = None, **limits: Any) -> str:
    with pytest.raises(ResourceLimit) as caught:
        graph.query(query, params, **limits)
    details = caught.value.details
    assert details["actual"] > details["limit"]
    assert caught.value.hint
    return str(details["resource"])


OPTIONALS = " ".join(f"optional {{ $a k $x{i} }}" for i in range(30))
OPTIONAL_NAMES = ", ".join(f"$x{i}.name" for i in range(30))


@pytest.mark.parametrize(
    "query",
    [
        "query q() { match { $a: P  $b: P  $c: P } return { $a.name, $b.name, $c.name } }",
        "query q() { match { $a: P  $b: P  $c: P } return { $a.name, $c.name } order { $b.name } limit 5 }",
        "query q() { match { $a: P  $b: P  $c: P } return { collect($a.name) as names } }",
        "query q() { match { $a: P  $b: P  $c: P } return distinct { $a.name, $b.name, $c.name } }",
        "query q() { match { $a: P  $a k{1,30} $b } return { $a.name, $b.name } }",
        "query q() { match { $a: P  $a k $b  $b k $c  $c k $d  $d k $e } return { $a.name, $b.name, $e.name } }",
        f"query q() {{ match {{ $a: P  {OPTIONALS} }} return {{ $a.name, {OPTIONAL_NAMES} }} }}",
        "query q() { match { $a: P  $b: P  not { $a k $c  $c k $b  $b k $d } } return { $a.name, $b.name } }",
    ],
    ids=["product", "sort", "collect", "distinct", "hops", "paths", "optionals", "negation"],
)
def test_query_over_its_memory_limit_fails_before_it_takes_the_memory(graph: og.Graph, query: str) -> None:
    assert exceeded(graph, query, max_bytes=4 << 20) == "query_bytes"


def test_null_vector_of_huge_dimension_is_refused_without_a_limit(graph: og.Graph) -> None:
    query = "query q($v: Vector(40000000)?) { match { $a: P } return { $a.name, $v as v } limit 1 }"
    assert exceeded(graph, query, {"v": None}) == "query_bytes"


def test_large_values_count_towards_the_memory_of_the_result(graph: og.Graph) -> None:
    query = "query q() { match { $a: P  $b: P } return { $a.text, $b.text } }"
    assert exceeded(graph, query, max_bytes=20 << 20) == "query_bytes"
    assert len(graph.query(query, max_bytes=200 << 20)) == PEOPLE**2


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("query q() { match { $a: P  $b: P  $c: P } return { $a.name, $b.name, $c.name } limit 5 }", 5),
        ("query q() { match { $a: P  $a k{1,30} $b } return { $a.name, $b.name } skip 3 limit 5 }", 5),
        (f"query q() {{ match {{ $a: P  {OPTIONALS} }} return {{ $a.name, $x29.name }} limit 7 }}", 7),
        ("query q() { match { $a: P  $b: P  $c: P } return { count($a) as n } }", 1),
        ('query q() { match { $a: P  $b: P  $c: P  $c.name = "p599" } return { $c.name } limit 3 }', 3),
    ],
    ids=["product", "hops", "optionals", "count", "late match"],
)
def test_limit_without_order_stops_before_the_memory_limit(graph: og.Graph, query: str, rows: int) -> None:
    assert len(graph.query(query, max_bytes=64 << 20)) == rows


def test_limit_without_order_returns_matching_rows_only(graph: og.Graph) -> None:
    pattern = "$a: P  $a k $b  $b k $a  $c: P"
    query = f"query q() {{ match {{ {pattern} }} return {{ $a.name as a, $b.name as b }} limit 4000 }}"
    mutual = {
        (row["a"], row["b"])
        for row in graph.query(
            "query q() { match { $a: P  $a k $b  $b k $a } return { $a.name as a, $b.name as b } }"
        ).rows()
    }
    found = graph.query(query).rows()
    assert len(found) == min(4000, len(mutual) * PEOPLE)
    assert {(row["a"], row["b"]) for row in found} <= mutual


def test_result_with_too_many_rows_fails(graph: og.Graph) -> None:
    query = "query q() { match { $a: P } return { $a.name } }"
    assert exceeded(graph, query, max_rows=PEOPLE - 1) == "query_rows"
    assert len(graph.query(query, max_rows=PEOPLE)) == PEOPLE


@pytest.mark.parametrize("hops", ["", "{1,3}"])
def test_query_that_follows_too_many_edges_fails(graph: og.Graph, hops: str) -> None:
    query = f"query q() {{ match {{ $a: P  $a k{hops} $b }} return {{ $a.name, $b.name }} }}"
    assert exceeded(graph, query, max_edges=PEOPLE) == "query_edges"


def test_query_over_its_time_limit_fails(graph: og.Graph) -> None:
    query = "query q() { match { $a: P } return { $a.name } }"
    with pytest.raises(ResourceLimit) as caught:
        graph.query(query, timeout=1e-9)
    assert caught.value.details["resource"] == "read_seconds"


@pytest.mark.parametrize("limits", [{"timeout": 0}, {"max_rows": -1}, {"max_bytes": 0}])
def test_limit_that_is_not_positive_is_refused(graph: og.Graph, limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="positive"):
        graph.query("query q() { match { $a: P } return { $a.name } }", **limits)


def test_inner_budget_cannot_raise_the_limits() -> None:
    with limit_query(QueryLimits(bytes=100, edges=5)), limit_query(QueryLimits(bytes=1_000, edges=3)):
        require_bytes(100)
        with pytest.raises(ResourceLimit):
            require_bytes(101)
        with pytest.raises(ResourceLimit):
            visit_edges(4)


def test_held_memory_counts_towards_the_limit() -> None:
    with limit_query(QueryLimits(bytes=100)), hold_bytes(60):
        require_bytes(40)
        with pytest.raises(ResourceLimit):
            require_bytes(41)


def test_queries_of_one_actor_leave_memory_for_others() -> None:
    pool = MemoryPool(8 * FREE_BYTES, 4 * FREE_BYTES)
    with limit_query(QueryLimits(), pool, "ann"):
        require_bytes(3 * FREE_BYTES)
        with limit_query(QueryLimits()):
            with pytest.raises(ResourceLimit) as caught:
                require_bytes(2 * FREE_BYTES)
            assert caught.value.details["resource"] == "actor_query_bytes"
            # Small queries need no share.
            require_bytes(FREE_BYTES)
    assert pool.used == 0
    pool.acquire("bo", 4 * FREE_BYTES)
    pool.acquire("cy", 4 * FREE_BYTES)
    with limit_query(QueryLimits(), pool, "ann"), pytest.raises(ResourceLimit) as caught:
        require_bytes(2 * FREE_BYTES)
    assert caught.value.details["resource"] == "query_pool_bytes"


def test_cancelled_work_fails_at_its_next_check_on_its_thread() -> None:
    failed: list[str] = []

    def work() -> None:
        try:
            check_deadline()
        except Cancelled as error:
            failed.append(error.details["reason"])

    with time_limit(60), time_limit(None):
        deadline = current_deadline()
        context = copy_context()
        assert deadline is not None
        assert deadline.cancel("by a test")
        thread = threading.Thread(target=context.run, args=(work,))
        thread.start()
        thread.join()
    assert failed == ["by a test"]


def test_write_that_has_begun_is_not_cancelled() -> None:
    with time_limit(60) as deadline:
        lift_deadline()
        assert not deadline.cancel("by a test")
        check_deadline()

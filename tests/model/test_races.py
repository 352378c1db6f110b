"""Races between handles, and branches that have the same keys in different files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TypeVar

import pytest

import omnigraph as og
from omnigraph.errors import Conflict, ConstraintViolation
from omnigraph.store.tables import tables
from tests.model.people_model import SCHEMA
from tests.support.api_writes import loading_in_bulk
from tests.support.places import fresh_memory, together

T = TypeVar("T")

PUT = "query put($n: String, $a: I32) { insert Person { name: $n, age: $a } }"
DELETE = "query gone($n: String) { delete Person where name = $n }"
ALL = "query all() { match { $p: Person } return { $p.name as name, $p.age as age } }"
REPLACED = {"Person": {"inserted": 0, "updated": 1, "deleted": 0}}


@pytest.fixture
def handles() -> Iterator[tuple[og.LocalGraph, og.LocalGraph]]:
    """Return two handles that both wrote, so that both have ids in their caches."""
    uri = fresh_memory()
    first = og.init(uri, SCHEMA, durability="os")
    second = og.open(uri, durability="os")
    for number, graph in enumerate((first, second)):
        graph.mutate(PUT, {"n": f"h{number}", "a": 0})
    yield first, second
    first.close()
    second.close()


def people(graph: og.LocalGraph, branch: str = "main") -> list[tuple[str, int]]:
    """Return names and ages from storage, without caches."""
    rows = graph.snapshot(branch).scan("node:Person").to_pylist()
    stored = sorted(
        (row["id"], next(value for value in row.values() if isinstance(value, int))) for row in rows
    )
    assert stored == sorted((row["name"], row["age"]) for row in graph.query(ALL, branch=branch).rows())
    return stored


def test_a_key_that_another_handle_inserted_is_replaced(handles: tuple[og.LocalGraph, og.LocalGraph]) -> None:
    ours, theirs = handles
    theirs.mutate(PUT, {"n": "x", "a": 1})
    assert ours.mutate(PUT, {"n": "x", "a": 2}).affected == REPLACED
    assert people(ours) == people(theirs) == [("h0", 0), ("h1", 0), ("x", 2)]


def test_a_key_whose_newest_row_is_on_another_branch_is_replaced_by_its_own(
    handles: tuple[og.LocalGraph, og.LocalGraph],
) -> None:
    graph, _ = handles
    graph.mutate(PUT, {"n": "x", "a": 1})
    graph.branches.create("b")
    graph.mutate(PUT, {"n": "x", "a": 2}, branch="b")
    assert graph.mutate(PUT, {"n": "x", "a": 3}).affected == REPLACED
    assert people(graph) == [("h0", 0), ("h1", 0), ("x", 3)]
    assert people(graph, "b") == [("h0", 0), ("h1", 0), ("x", 2)]


def test_a_key_that_was_deleted_on_one_branch_is_replaced_on_the_other(
    handles: tuple[og.LocalGraph, og.LocalGraph],
) -> None:
    graph, _ = handles
    graph.load({"Person": [{"name": name, "age": 1} for name in ("x", "y", "z")]})
    graph.branches.create("b")
    graph.mutate(DELETE, {"n": "y"}, branch="b")
    graph.mutate(PUT, {"n": "y", "a": 4}, branch="b")
    assert graph.mutate(PUT, {"n": "y", "a": 5}).affected == REPLACED
    graph.mutate(DELETE, {"n": "x"})
    assert graph.mutate(PUT, {"n": "x", "a": 6}, branch="b").affected == REPLACED
    assert people(graph)[2:] == [("y", 5), ("z", 1)]
    assert people(graph, "b")[2:] == [("x", 6), ("y", 4), ("z", 1)]


def test_keys_whose_files_were_folded_by_ones_own_write_are_replaced(
    handles: tuple[og.LocalGraph, og.LocalGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "COMPACT_AT", 4)
    graph, _ = handles
    for number in range(12):
        graph.mutate(PUT, {"n": f"x{number}", "a": 1})
    for number in range(12):
        assert graph.mutate(PUT, {"n": f"x{number}", "a": 2}).affected == REPLACED
    assert people(graph)[2:] == sorted((f"x{number}", 2) for number in range(12))


@pytest.mark.parametrize("bulk", [False, True], ids=["in-memory", "bulk"])
@pytest.mark.parametrize("rival", ["replaces", "inserts", "deletes"])
def test_a_merge_that_is_overtaken_replaces_the_rows_that_are_there_then(
    handles: tuple[og.LocalGraph, og.LocalGraph], rival: str, bulk: bool
) -> None:
    ours, theirs = handles
    if rival != "inserts":
        ours.load({"Person": [{"name": "w", "age": 1}, {"name": "x", "age": 1}]})
    source, params = (DELETE, {"n": "x"}) if rival == "deletes" else (PUT, {"n": "x", "a": 2})
    overtake = once(lambda: theirs.mutate(source, params))
    with loading_in_bulk() if bulk else nullcontext():
        done = ours.load({"Person": [{"name": "x", "age": 3}]}, "merge", progress=at_stage("stage", overtake))
    assert done.affected["Person"]["updated"] == (0 if rival == "deletes" else 1)
    assert people(ours) == people(theirs)
    assert people(ours)[-1] == ("x", 3)


@pytest.mark.parametrize("bulk", [False, True], ids=["in-memory", "bulk"])
def test_an_append_that_is_overtaken_by_its_own_key_is_refused(
    handles: tuple[og.LocalGraph, og.LocalGraph], bulk: bool
) -> None:
    ours, theirs = handles
    overtake = once(lambda: theirs.mutate(PUT, {"n": "x", "a": 2}))
    with (
        loading_in_bulk() if bulk else nullcontext(),
        pytest.raises(ConstraintViolation, match="x"),
    ):
        ours.load({"Person": [{"name": "x", "age": 3}]}, progress=at_stage("stage", overtake))
    assert people(ours)[-1] == ("x", 2)


@pytest.mark.parametrize("bulk", [False, True], ids=["in-memory", "bulk"])
def test_an_overwrite_that_is_overtaken_is_a_conflict(
    handles: tuple[og.LocalGraph, og.LocalGraph], bulk: bool
) -> None:
    ours, theirs = handles
    overtake = once(lambda: theirs.mutate(PUT, {"n": "x", "a": 2}))
    with loading_in_bulk() if bulk else nullcontext(), pytest.raises(Conflict):
        ours.load({"Person": [{"name": "y", "age": 3}]}, "overwrite", progress=at_stage("stage", overtake))
    assert people(ours)[-1] == ("x", 2)
    assert len(ours._repository.recoveries()) == 0


def test_threads_of_one_handle_that_put_the_same_keys_make_each_of_them_once(
    handles: tuple[og.LocalGraph, og.LocalGraph],
) -> None:
    graph, _ = handles
    graph.branches.create("b")

    def write(worker: int) -> list[Mapping[str, int]]:
        branch = "b" if worker % 2 else "main"
        return [
            # Every age is another one, so that every put changes its row.
            graph.mutate(PUT, {"n": f"x{number % 4}", "a": 8 * worker + number}, branch=branch).affected[
                "Person"
            ]
            for number in range(8)
        ]

    done = together([partial(write, worker) for worker in range(4)])
    for first, branch in enumerate(("main", "b")):
        told = [counts for worker in done[first::2] for counts in given(worker)]
        assert sum(counts["inserted"] for counts in told) == 4
        assert sum(counts["updated"] for counts in told) == 12
        assert [name for name, _ in people(graph, branch)] == ["h0", "h1", "x0", "x1", "x2", "x3"]


def given(result: T | Exception) -> T:
    """Return the result of a thread, or raise its error."""
    if isinstance(result, Exception):
        raise result
    return result


def at_stage(wanted: str, act: Callable[[], None]) -> Callable[[str, int], None]:
    """An action at a stage of a load."""
    return lambda stage, _: act() if stage == wanted else None


def once(act: Callable[[], object]) -> Callable[[], None]:
    """Run it the first time only."""
    left = [act]

    def run() -> None:
        if left:
            left.pop()()

    return run

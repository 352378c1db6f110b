"""Things of the schema that two branches know by different numbers, or that one of them has no more."""

from __future__ import annotations

import pytest

import omnigraph as og
from tests.merge.merges import change, column, edge, kinds, make, node, only, put, refused, state

BASE = "node Person { name: String @key  age: I32?  mood: enum(good, bad)? }\n"
PET = "node Pet { name: String @key  kind: String? }\nedge Has: Person -> Pet"


@pytest.fixture
def graph() -> og.Graph:
    """A graph with a branch that has not changed yet."""
    people = [node("Person", "Ann", age=1, mood="good"), node("Person", "Bob", age=1, mood="bad")]
    found = make(BASE, people)
    found.branches.create("theirs")
    return found


def check_met(graph: og.Graph) -> None:
    """The branches have become one, and it is in order."""
    assert graph.branches.merge("theirs").outcome == "fast_forward"
    assert state(graph) == state(graph, "theirs")
    before = state(graph)
    graph.optimize()
    assert state(graph) == before


def test_merge_of_type_added_on_both_sides_works_in_both_directions(graph: og.Graph) -> None:
    for branch in ("main", "theirs"):
        graph.schema.apply(BASE + PET, branch=branch)
        put(graph, node("Pet", branch, kind=branch), edge("Has", branch, "Ann", branch), branch=branch)
    graph.branches.merge("theirs")
    put(graph, node("Pet", "theirs", kind="x"), node("Pet", "t2"), branch="theirs")
    put(graph, node("Pet", "m2"), node("Pet", "main", kind="y"))
    graph.branches.merge("theirs")
    put(graph, node("Pet", "t3"), branch="theirs")
    change(graph, 'delete Pet where name = "t2"', "theirs")
    graph.branches.merge("main", "theirs")
    pets = {"main": "y", "theirs": "x", "m2": None, "t3": None}
    assert column(graph, "kind", "theirs", "Pet") == pets
    assert state(graph, "theirs")["Has"].keys() == {"main", "theirs"}
    check_met(graph)


def test_merge_of_property_added_on_both_sides_works_in_both_directions(graph: og.Graph) -> None:
    for branch, name in (("main", "Ann"), ("theirs", "Bob")):
        graph.schema.apply(BASE.replace("age", "nick: String?  age"), branch=branch)
        put(graph, node("Person", name, nick=branch), branch=branch)
    graph.branches.merge("theirs")
    put(graph, node("Person", "Bob", nick="b"), node("Person", "new", nick="n"), branch="theirs")
    put(graph, node("Person", "other", nick="o"))
    graph.branches.merge("theirs")
    put(graph, node("Person", "new", nick="n2"), branch="theirs")
    change(graph, 'delete Person where name = "other"')
    graph.branches.merge("main", "theirs")
    assert column(graph, "nick", "theirs") == {"Ann": "main", "Bob": "b", "new": "n2"}
    check_met(graph)


def test_merge_of_property_added_on_both_sides_keeps_values_of_unchanged_rows(graph: og.Graph) -> None:
    for branch in ("main", "theirs"):
        graph.schema.apply(BASE.replace("age", "nick: String?  age"), branch=branch)
    put(graph, node("Person", "Bob", nick="b"), branch="theirs")
    graph.branches.merge("theirs")
    put(graph, node("Person", "Ann", nick="a"), branch="theirs")
    graph.branches.merge("main", "theirs")
    assert column(graph, "nick", "theirs") == {"Ann": "a", "Bob": "b"}
    check_met(graph)


def test_merge_with_property_dropped_on_one_side_ignores_its_values(graph: og.Graph) -> None:
    graph.schema.apply("node Person { name: String @key  age: I32? }", branch="theirs")
    graph.schema.apply(BASE.replace("bad", "bad, calm"))
    put(graph, node("Person", "Ann", age=2), node("Person", "New"), branch="theirs")
    put(graph, node("Person", "Bob", age=1, mood="calm"))
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("schema_conflict", "Person", None, "mood")]
    graph.branches.merge("theirs", resolve={found["id"]: "ours"})
    assert column(graph, "mood") == {"Ann": "good", "Bob": "calm", "New": None}
    assert column(graph, "age") == {"Ann": 2, "Bob": 1, "New": None}

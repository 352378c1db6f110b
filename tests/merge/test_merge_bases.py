"""Merges after criss-cross merges: several merge bases become a virtual one, and their conflicts stay conflicts."""

from __future__ import annotations

from typing import Final

import pytest

import omnigraph as og
from omnigraph.merge import virtual_base
from tests.merge.merges import (
    Record,
    change,
    column,
    edge,
    head,
    kinds,
    make,
    node,
    only,
    person,
    put,
    refused,
    state,
)

SIDES: Final = ("main", "theirs")
OTHER: Final = {"main": "theirs", "theirs": "main"}


def diverged(*records: Record) -> og.Graph:
    """A graph whose branch `theirs` has left main."""
    graph = make(records=[person("a", age=0), person("b", age=0), *records])
    graph.branches.create("theirs")
    return graph


def cross(graph: og.Graph, main: str | None = None, theirs: str | None = None) -> None:
    """Merge both branches into each other at once, each with its own resolution."""
    graph.branches.create("copy")
    graph.branches.merge("theirs", resolve=main)
    graph.branches.merge("copy", "theirs", resolve=theirs)
    graph.branches.delete("copy")


def both_ways(graph: og.Graph) -> dict[str, dict[str, Record]]:
    """Merge each branch into the other, the second time at the state before; return the one result."""
    graph.branches.create("again", "theirs")
    graph.branches.create("back")
    graph.branches.merge("theirs")
    graph.branches.merge("back", "again")
    assert state(graph, "again") == state(graph)
    return state(graph)


# --- what one side undid ------------------------------------------------------------------------------------


@pytest.mark.parametrize("undone", ["a", "b"])
@pytest.mark.parametrize("branch", SIDES)
def test_merge_after_criss_cross_keeps_a_value_that_one_side_undid(branch: str, undone: str) -> None:
    graph = diverged()
    put(graph, person("a", age=1))
    put(graph, person("b", age=2), branch="theirs")
    cross(graph)
    put(graph, person(undone, age=0), branch=branch)
    put(graph, person("c"), branch=OTHER[branch])
    ages = {"a": 1, "b": 2, "c": None, undone: 0}
    assert {id_: row["age"] for id_, row in both_ways(graph)["Person"].items()} == ages


@pytest.mark.parametrize("undone", ["mine", "yours"])
@pytest.mark.parametrize("branch", SIDES)
def test_merge_after_criss_cross_does_not_bring_back_a_deleted_node_and_its_edges(
    branch: str, undone: str
) -> None:
    graph = diverged()
    put(graph, person("mine"), edge("Knows", "k-mine", "a", "mine"))
    put(graph, person("yours"), edge("Knows", "k-yours", "yours", "b"), branch="theirs")
    cross(graph)
    change(graph, f'delete Person where name = "{undone}"', branch)
    put(graph, person("c"), branch=OTHER[branch])
    merged = both_ways(graph)
    (left,) = {"mine", "yours"} - {undone}
    assert merged["Person"].keys() == {"a", "b", "c", left}
    assert merged["Knows"].keys() == {f"k-{left}"}


def test_merge_after_criss_cross_does_not_restore_a_deleted_edge_or_a_moved_endpoint() -> None:
    graph = diverged(edge("Knows", "k", "a", "b"), edge("Knows", "gone", "a", "b"))
    put(graph, edge("Knows", "k", "b", "b"))
    change(graph, 'delete Knows where to = "b" and from = "a"', "theirs")
    put(graph, edge("Knows", "k", "a", "b"), branch="theirs")
    cross(graph)
    put(graph, edge("Knows", "k", "a", "b"))
    put(graph, edge("Knows", "gone", "a", "b"), branch="theirs")
    merged = both_ways(graph)["Knows"]
    assert {id_: (row["src"], row["dst"]) for id_, row in merged.items()} == {
        "k": ("a", "b"),
        "gone": ("a", "b"),
    }


def test_merge_after_criss_cross_keeps_a_revert_of_a_merged_commit() -> None:
    graph = diverged()
    undone = put(graph, person("a", age=1))
    put(graph, person("b", age=2), branch="theirs")
    cross(graph)
    graph.revert(undone.id, branch="theirs")
    put(graph, person("c"))
    assert both_ways(graph)["Person"]["a"]["age"] == 0


def test_revert_of_a_merge_with_several_bases_restores_the_state_before() -> None:
    graph = diverged()
    put(graph, person("a", age=1))
    put(graph, person("b", age=2), branch="theirs")
    cross(graph)
    put(graph, person("c"), person("a", age=5), branch="theirs")
    put(graph, person("b", age=7))
    before = state(graph)
    merged = graph.branches.merge("theirs").commit
    assert merged is not None
    assert column(graph, "age") == {"a": 5, "b": 7, "c": None}
    graph.revert(merged.id)
    assert state(graph) == before


def test_merge_after_criss_cross_of_equal_states_is_empty() -> None:
    graph = diverged()
    put(graph, person("a", age=1))
    put(graph, person("b", age=2), branch="theirs")
    cross(graph)
    merged = graph.branches.merge("theirs")
    assert (merged.outcome, merged.affected, merged.taken) == ("merged", {}, ())


# --- more than two merge bases, and merge bases of merge bases ---------------------------------------------------


@pytest.mark.parametrize("undone", ["a", "b", "c"])
def test_merge_with_three_bases_keeps_a_value_that_one_side_undid(undone: str) -> None:
    graph = make(records=[person(name, age=0, team="x") for name in "abc"])
    for branch in ("theirs", "third"):
        graph.branches.create(branch)
    for number, branch in enumerate(("main", "theirs", "third")):
        put(graph, person("abc"[number], age=1, team="x"), branch=branch)
    graph.branches.create("copy")
    graph.branches.merge("third")
    graph.branches.merge("theirs")
    graph.branches.merge("copy", "theirs")
    graph.branches.merge("third", "theirs")
    put(graph, person(undone, age=0, team="x"), branch="theirs")
    put(graph, *(person(name, age=1, team="y") for name in "abc"))
    merged = both_ways(graph)["Person"]
    assert {id_: row["age"] for id_, row in merged.items()} == {"a": 1, "b": 1, "c": 1, undone: 0}
    assert {row["team"] for row in merged.values()} == {"y"}


@pytest.mark.parametrize("undone", ["a", "b"])
def test_merge_after_nested_criss_cross_keeps_a_value_that_one_side_undid(undone: str) -> None:
    graph = diverged()
    put(graph, person("a", age=1))
    put(graph, person("b", age=2), branch="theirs")
    cross(graph)
    put(graph, person(undone, age=0))
    put(graph, person("c"), branch="theirs")
    cross(graph)
    put(graph, person("d"))
    put(graph, person("e"), branch="theirs")
    ages = {"a": 1, "b": 2, undone: 0}
    found = both_ways(graph)["Person"]
    assert {name: found[name]["age"] for name in "ab"} == ages


def test_merge_with_merge_bases_nested_too_deeply_is_a_conflict_and_not_a_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(virtual_base, "MAX_BASE_DEPTH", 1)
    graph = diverged()
    put(graph, person("a", age=1))
    put(graph, person("b", age=2), person("new"), branch="theirs")
    cross(graph)
    put(graph, person("a", age=0), person("c"))
    put(graph, person("d"), branch="theirs")
    change(graph, 'delete Person where name = "new"')
    # The ancestors of the merge bases are not read, so either value may be the older one.
    found = refused(graph, "theirs")
    assert kinds(found) == [
        ("divergent_update", "Person", "a", "age"),
        ("delete_vs_update", "Person", "new", None),
    ]
    graph.branches.merge("theirs", resolve="ours")
    assert column(graph, "age") == {"a": 0, "b": 2, "c": None, "d": None}


# --- conflicts between merge bases ------------------------------------------------------------------------------


def resolved(main: str, theirs: str) -> og.Graph:
    """Two branches that have merged the same two values of `a.age`, 1 and 2, and have chosen one each."""
    graph = diverged()
    put(graph, person("a", age=1))
    put(graph, person("a", age=2), branch="theirs")
    cross(graph, main, theirs)
    return graph


@pytest.mark.parametrize(
    ("main", "theirs", "values"), [("ours", "ours", (1, 2)), ("theirs", "theirs", (2, 1))]
)
def test_merge_of_branches_that_resolved_a_conflict_differently_is_a_conflict(
    main: str, theirs: str, values: tuple[int, int]
) -> None:
    graph = resolved(main, theirs)
    found = only(refused(graph, "theirs"))
    assert (found["kind"], found["entity_id"], found["property"]) == ("divergent_update", "a", "age")
    assert (found["base"], found["ours"], found["theirs"]) == (None, *values)
    graph.branches.merge("theirs", resolve={found["id"]: {"value": 9}})
    assert column(graph, "age") == {"a": 9, "b": 0}


def test_merge_of_branches_that_resolved_a_conflict_equally_has_none() -> None:
    graph = resolved("ours", "theirs")
    put(graph, person("a", age=1, team="x"))
    put(graph, person("b", age=5), branch="theirs")
    merged = both_ways(graph)["Person"]
    assert (merged["a"]["age"], merged["a"]["team"], merged["b"]["age"]) == (1, "x", 5)


@pytest.mark.parametrize(("chosen", "age"), [("main", 1), ("theirs", 2)])
def test_merge_after_an_equal_resolution_replaces_the_row_that_a_merge_base_stored(
    chosen: str, age: int
) -> None:
    graph = resolved(*("ours", "theirs") if chosen == "main" else ("theirs", "ours"))
    # The branch whose value was chosen still has the row of its merge base. It changes more, so that it is kept.
    put(graph, *(person(name) for name in "cdef"), branch=chosen)
    put(graph, person("a", age=age, team="x"), branch=OTHER[chosen])
    merged = both_ways(graph)["Person"]
    assert (merged["a"]["age"], merged["a"]["team"]) == (age, "x")
    assert merged.keys() == set("abcdef")


def test_merge_after_an_equal_resolution_reports_a_later_change_of_the_same_value() -> None:
    graph = resolved("ours", "theirs")
    put(graph, person("a", age=3), branch="theirs")
    found = only(refused(graph, "theirs"))
    assert (found["base"], found["ours"], found["theirs"]) == (None, 1, 3)


def test_merge_of_branches_that_resolved_a_deletion_differently_is_a_conflict() -> None:
    graph = diverged()
    change(graph, 'delete Person where name = "a"')
    put(graph, person("a", age=2), branch="theirs")
    cross(graph, "ours", "ours")
    found = only(refused(graph, "theirs"))
    assert (found["kind"], found["base"], found["ours"]) == ("delete_vs_update", None, None)
    assert found["theirs"]["properties"]["age"] == 2
    before = head(graph)
    assert graph.branches.merge("theirs", dry_run=True).conflicts == (found,)
    assert head(graph) == before
    graph.branches.merge("theirs", resolve="theirs")
    assert column(graph, "age") == {"a": 2, "b": 0}


def test_merge_of_branches_that_both_kept_a_deletion_has_no_conflict() -> None:
    graph = diverged()
    change(graph, 'delete Person where name = "a"')
    put(graph, person("a", age=2), branch="theirs")
    cross(graph, "ours", "theirs")
    put(graph, person("c"), branch="theirs")
    put(graph, person("d"))
    assert both_ways(graph)["Person"].keys() == {"b", "c", "d"}


def test_merge_of_branches_that_inserted_an_entity_differently_is_a_conflict() -> None:
    graph = diverged()
    put(graph, person("c", age=1, team="x"))
    put(graph, person("c", age=2, team="x"), branch="theirs")
    cross(graph, "ours", "ours")
    assert kinds(refused(graph, "theirs")) == [("divergent_update", "Person", "c", "age")]


def test_merge_of_branches_that_gave_a_unique_value_to_different_nodes_is_a_conflict() -> None:
    graph = diverged()
    put(graph, person("a", age=0, mail="m"))
    put(graph, person("b", age=0, mail="m"), branch="theirs")
    cross(graph, "ours", "ours")
    assert column(graph, "mail") == {"a": "m", "b": None}
    assert column(graph, "mail", "theirs") == {"a": None, "b": "m"}
    assert kinds(refused(graph, "theirs")) == [
        ("divergent_update", "Person", "a", "mail"),
        ("divergent_update", "Person", "b", "mail"),
    ]
    graph.branches.merge("theirs", resolve="theirs")
    assert column(graph, "mail") == {"a": None, "b": "m"}


def test_merge_of_branches_that_resolved_an_orphan_edge_differently_is_a_conflict() -> None:
    graph = diverged()
    change(graph, 'delete Person where name = "b"')
    put(graph, edge("Knows", "k", "a", "b"), branch="theirs")
    cross(graph, "ours", "ours")
    assert kinds(refused(graph, "theirs")) == [
        ("delete_vs_update", "Person", "b", None),
        ("delete_vs_update", "Knows", "k", None),
    ]
    graph.branches.merge("theirs", resolve="theirs")
    assert state(graph)["Knows"].keys() == {"k"}


def test_merge_of_branches_that_resolved_a_cardinality_differently_is_a_conflict() -> None:
    graph = diverged(node("City", "bern"), node("City", "rome"))
    put(graph, edge("Lives", "one", "a", "bern"))
    put(graph, edge("Lives", "two", "a", "rome"), branch="theirs")
    cross(graph, "ours", "ours")
    assert kinds(refused(graph, "theirs")) == [
        ("delete_vs_update", "Lives", "one", None),
        ("delete_vs_update", "Lives", "two", None),
    ]


# --- schemas ----------------------------------------------------------------------------------------------------

SMALL: Final = "node Person { name: String @key  age: I32? }\n"


def schemas() -> og.Graph:
    """A graph of one small type whose branch `theirs` has left main."""
    graph = make(SMALL, [person("a", age=0)])
    graph.branches.create("theirs")
    return graph


def evolve(graph: og.Graph, text: str, branch: str = "main") -> None:
    """Change the schema of a branch."""
    assert graph.schema.apply(text, branch=branch).commit is not None


@pytest.mark.parametrize("branch", SIDES)
def test_merge_after_criss_cross_does_not_bring_back_a_dropped_property_or_type(branch: str) -> None:
    graph = schemas()
    evolve(graph, SMALL + "node Pet { name: String @key }\n")
    evolve(graph, SMALL.replace("}", " team: String? }"), "theirs")
    cross(graph)
    put(graph, person("a", age=1, team="x"), node("Pet", "rex"), branch=OTHER[branch])
    change(graph, 'delete Pet where name = "rex"', OTHER[branch])
    evolve(graph, SMALL, branch)
    assert graph.snapshot(OTHER[branch]).catalog.tables.keys() == {"node:Person", "node:Pet"}
    merged = both_ways(graph)
    assert merged == {"Person": {"a": {"id": "a", "name": "a", "age": 1}}}


def test_merge_after_criss_cross_with_new_properties_on_both_sides_merges_their_rows() -> None:
    graph = schemas()
    evolve(graph, SMALL.replace("}", " team: String? }"))
    put(graph, person("a", age=0, team="x"))
    evolve(graph, SMALL.replace("}", " mail: String? }"), "theirs")
    put(graph, person("a", age=0, mail="m"), branch="theirs")
    cross(graph)
    put(graph, person("a", age=0, team="x", mail=None))
    put(graph, person("a", age=7, team="x", mail="m"), branch="theirs")
    assert both_ways(graph)["Person"]["a"] == {"id": "a", "name": "a", "age": 7, "team": "x", "mail": None}


def test_merge_after_criss_cross_of_a_property_that_both_sides_added_keeps_what_was_undone() -> None:
    graph = schemas()
    for branch in SIDES:
        evolve(graph, SMALL.replace("}", " team: String? }"), branch)
    put(graph, person("a", age=0, team="x"))
    put(graph, person("b", age=0, team="y"), branch="theirs")
    cross(graph)
    put(graph, person("a", age=0, team=None), branch="theirs")
    put(graph, person("b", age=4, team="y"))
    graph.branches.merge("theirs")
    assert column(graph, "team") == {"a": None, "b": "y"}
    assert column(graph, "age") == {"a": 0, "b": 4}


def test_merge_of_branches_that_resolved_a_schema_conflict_differently_is_a_conflict() -> None:
    graph = schemas()
    evolve(graph, SMALL.replace("age: I32?", 'years: I32? @rename_from("age")'))
    evolve(graph, SMALL.replace("age: I32?", 'old: I32? @rename_from("age")'), "theirs")
    cross(graph, "ours", "ours")
    found = only(refused(graph, "theirs"))
    assert (found["kind"], found["ours"], found["theirs"]) == ("schema_conflict", "years", "old")
    graph.branches.merge("theirs", resolve="theirs")
    assert column(graph, "old") == {"a": 0}


def test_merge_of_branches_that_resolved_a_dropped_type_differently_is_a_conflict() -> None:
    pets = "node Pet { name: String @key  age: I32? }\n"
    graph = make(SMALL + pets, [person("a", age=0), node("Pet", "rex", age=1)])
    graph.branches.create("theirs")
    evolve(graph, SMALL)
    evolve(graph, SMALL + pets.replace("}", " kind: String? }"), "theirs")
    cross(graph, "ours", "ours")
    found = only(refused(graph, "theirs"))
    assert (found["kind"], found["type_name"], found["ours"]) == ("schema_conflict", "Pet", None)
    graph.branches.merge("theirs", resolve="theirs")
    assert column(graph, "age", type_name="Pet") == {"rex": 1}

"""Conflicts that the caller settles: what each decision makes of the entities, and which ones do not stand."""

from __future__ import annotations

from typing import Any

import pytest

import omnigraph as og
from omnigraph.api.results.merges import Merged
from omnigraph.errors import InvalidInput, MergeConflicts
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

# So many rows on one side make it the one whose versions are kept.
FILLER = 30
larger = pytest.mark.parametrize("larger", ["main", "theirs"])


def fork(base: list[Record], larger: str = "theirs") -> og.Graph:
    """A graph with a branch, one of which has more rows of every type than the other."""
    graph = make(records=base)
    graph.branches.create("theirs")
    people = [person(f"filler{number:02}") for number in range(FILLER)]
    ends = [edge("Knows", f"filler{number:02}", "filler00", f"filler{number:02}") for number in range(FILLER)]
    put(graph, *people, *ends, branch=larger)
    return graph


def without_filler(graph: og.Graph, type_name: str) -> dict[str, Record]:
    rows = state(graph)[type_name]
    return {id_: row for id_, row in rows.items() if not id_.startswith("filler")}


def merge(graph: og.Graph, resolve: Any) -> Merged:
    """Merge, and see that the histories have met: merging again does nothing, merging back is a step forward."""
    done = graph.branches.merge("theirs", resolve=resolve)
    assert done.outcome == "merged"
    assert graph.branches.merge("theirs").outcome == "already_up_to_date"
    back = graph.branches.merge("main", "theirs")
    assert back.outcome == "fast_forward"
    assert state(graph, "theirs") == state(graph)
    return done


# --- properties ---------------------------------------------------------------------------------------------


@pytest.fixture
def ages() -> og.Graph:
    """Two people whose age both sides have changed, and one of theirs."""
    graph = make(records=[person("Ann", age=1), person("Bob", age=1)])
    graph.branches.create("theirs")
    put(graph, person("Ann", age=2), person("Bob", age=2))
    put(graph, person("Ann", age=3), person("Bob", age=3), person("Cid", age=3), branch="theirs")
    return graph


@pytest.mark.parametrize(("side", "age"), [("ours", 2), ("theirs", 3)])
def test_resolve_with_one_side_resolves_every_conflict(ages: og.Graph, side: str, age: int) -> None:
    merge(ages, side)
    assert column(ages, "age") == {"Ann": age, "Bob": age, "Cid": 3}


def test_resolve_by_id_resolves_each_conflict(ages: og.Graph) -> None:
    ann, bob = refused(ages, "theirs")
    merge(ages, {ann["id"]: "theirs", bob["id"]: {"value": 7}})
    assert column(ages, "age") == {"Ann": 3, "Bob": 7, "Cid": 3}


def test_resolve_with_null_value(ages: og.Graph) -> None:
    ann, bob = refused(ages, "theirs")
    merge(ages, {ann["id"]: {"value": None}, bob["id"]: "ours"})
    assert column(ages, "age") == {"Ann": None, "Bob": 2, "Cid": 3}


def test_resolve_with_star_resolves_the_remaining_conflicts(ages: og.Graph) -> None:
    ann, _ = refused(ages, "theirs")
    merge(ages, {ann["id"]: "theirs", "*": "ours"})
    assert column(ages, "age") == {"Ann": 3, "Bob": 2, "Cid": 3}


def test_resolve_of_some_conflicts_is_refused_and_changes_nothing(ages: og.Graph) -> None:
    ann, bob = refused(ages, "theirs")
    before = state(ages)
    assert refused(ages, "theirs", resolve={ann["id"]: "theirs"}) == [bob]
    assert state(ages) == before


def test_resolve_with_outdated_id_resolves_nothing(ages: og.Graph) -> None:
    ann, bob = refused(ages, "theirs")
    put(ages, person("Ann", age=9), branch="theirs")
    left = only(refused(ages, "theirs", resolve={ann["id"]: "ours", bob["id"]: "ours"}))
    assert (left["entity_id"], left["theirs"]) == ("Ann", 9)


def test_resolve_with_value_of_wrong_type_names_the_property(ages: og.Graph) -> None:
    ann, bob = refused(ages, "theirs")
    before = head(ages)
    for wrong in ("old", 1.5, [1], {"a": 1}, True, 2**31):
        with pytest.raises(InvalidInput, match="property 'age'"):
            ages.branches.merge("theirs", resolve={ann["id"]: {"value": wrong}, bob["id"]: "ours"})
    assert head(ages) == before


def test_resolve_with_value_that_violates_a_constraint_is_a_conflict() -> None:
    graph = make(
        "node Ball { name: String @key  size: I32  @range(size, 1..9) }", [node("Ball", "b", size=1)]
    )
    graph.branches.create("theirs")
    put(graph, node("Ball", "b", size=2))
    put(graph, node("Ball", "b", size=3), branch="theirs")
    found = only(refused(graph, "theirs"))
    for value in (12, None):
        broken = only(refused(graph, "theirs", resolve={found["id"]: {"value": value}}))
        assert kinds([broken]) == [("value_constraint_violation", "Ball", None, "size")]
    graph.branches.merge("theirs", resolve={found["id"]: {"value": 9}})
    assert column(graph, "size", type_name="Ball") == {"b": 9}


def test_resolve_with_duplicate_unique_value_is_a_conflict() -> None:
    graph = make(records=[person("Ann", mail="a"), person("Bob", mail="b")])
    graph.branches.create("theirs")
    put(graph, person("Ann", mail="a1"))
    put(graph, person("Ann", mail="a2"), branch="theirs")
    found = only(refused(graph, "theirs"))
    broken = only(refused(graph, "theirs", resolve={found["id"]: {"value": "b"}}))
    assert (broken["kind"], broken["message"]) == (
        "unique_violation",
        "@unique violation on Person.mail: value 'b' held by 'Bob' and 'Ann'",
    )


@pytest.mark.parametrize(
    "wrong", ["mine", {"*": {"value": 1}}, {"x": "mine"}, {"x": {"worth": 1}}, {"x": 3}, 7, ["ours"]]
)
def test_resolve_with_invalid_resolution_is_refused(ages: og.Graph, wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        ages.branches.merge("theirs", resolve=wrong)


def test_resolve_entity_conflict_with_value_is_refused() -> None:
    graph = make(records=[person("Ann")])
    graph.branches.create("theirs")
    change(graph, 'delete Person where name = "Ann"')
    put(graph, person("Ann", age=1), branch="theirs")
    found = only(refused(graph, "theirs"))
    with pytest.raises(InvalidInput, match="concerns a whole entity"):
        graph.branches.merge("theirs", resolve={found["id"]: {"value": {"age": 1}}})


# --- deleted and updated ------------------------------------------------------------------------------------


@larger
@pytest.mark.parametrize("resolve", ["ours", "theirs"])
@pytest.mark.parametrize("deletes", ["main", "theirs"])
def test_resolve_delete_update_conflict_takes_the_chosen_side(
    deletes: str, resolve: str, larger: str
) -> None:
    graph = fork([person("Ann", age=1)], larger)
    change(graph, 'delete Person where name = "Ann"', deletes)
    put(graph, person("Ann", age=2), branch="theirs" if deletes == "main" else "main")
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("delete_vs_update", "Person", "Ann", None)]
    assert found["base"] == {"properties": {"age": 1, "mail": None, "name": "Ann", "team": None}}
    assert (found["ours"] is None) == (deletes == "main")
    assert (found["theirs"] is None) == (deletes == "theirs")
    merge(graph, {found["id"]: resolve})
    gone = (resolve == "ours") == (deletes == "main")
    assert {id_: row["age"] for id_, row in without_filler(graph, "Person").items()} == (
        {} if gone else {"Ann": 2}
    )


# --- rules --------------------------------------------------------------------------------------------------


@larger
@pytest.mark.parametrize("resolve", ["ours", "theirs"])
@pytest.mark.parametrize("deletes", ["main", "theirs"])
def test_resolve_orphan_edge_deletes_it_or_restores_the_node(deletes: str, resolve: str, larger: str) -> None:
    graph = fork([person("Ann", age=1), person("Bob")], larger)
    change(graph, 'delete Person where name = "Ann"', deletes)
    put(graph, edge("Knows", "k", "Bob", "Ann"), branch="theirs" if deletes == "main" else "main")
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("orphan_edge", "Knows", "k", "to")]
    assert found["message"] == "dst 'Ann' not found in Person"
    merge(graph, {found["id"]: resolve})
    stays = (resolve == "theirs") == (deletes == "main")
    assert without_filler(graph, "Person").keys() == ({"Ann", "Bob"} if stays else {"Bob"})
    assert without_filler(graph, "Knows").keys() == ({"k"} if stays else set())


@larger
@pytest.mark.parametrize("resolve", ["ours", "theirs"])
def test_resolve_unique_violation_takes_the_chosen_side(resolve: str, larger: str) -> None:
    graph = fork([person("Ann"), person("Bob")], larger)
    put(graph, person("Ann", mail="m"))
    put(graph, person("Bob", mail="m"), branch="theirs")
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("unique_violation", "Person", "Bob", "mail")]
    assert found["message"] == "@unique violation on Person.mail: value 'm' held by 'Ann' and 'Bob'"
    merge(graph, {found["id"]: resolve})
    mails = {id_: row["mail"] for id_, row in without_filler(graph, "Person").items()}
    assert mails == ({"Ann": "m", "Bob": None} if resolve == "ours" else {"Ann": None, "Bob": "m"})


@larger
@pytest.mark.parametrize("resolve", ["ours", "theirs"])
def test_resolve_cardinality_above_maximum_takes_the_chosen_side(resolve: str, larger: str) -> None:
    graph = fork([person("Ann"), node("City", "Rom"), node("City", "Ulm")], larger)
    put(graph, edge("Lives", "m", "Ann", "Rom"))
    put(graph, edge("Lives", "t", "Ann", "Ulm"), branch="theirs")
    if larger == "main":
        put(graph, *(edge("Lives", f"filler{n:02}", f"filler{n:02}", "Rom") for n in range(FILLER)))
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("cardinality_violation", "Lives", None, None)]
    assert found["message"] == "@card violation on edge Lives: source 'Ann' has 2 edges (max 1)"
    merge(graph, {found["id"]: resolve})
    assert without_filler(graph, "Lives").keys() == ({"m"} if resolve == "ours" else {"t"})


@larger
def test_resolve_cardinality_below_minimum_takes_the_chosen_side(larger: str) -> None:
    graph = fork([person("Ann"), node("City", "Rom"), node("City", "Ulm")], larger)
    both = [edge("Owns", "r", "Ann", "Rom"), edge("Owns", "u", "Ann", "Ulm")]
    put(graph, *both)
    graph.branches.merge("main", "theirs")
    change(graph, 'delete Owns where to = "Rom"')
    change(graph, 'delete Owns where to = "Ulm"', "theirs")
    found = only(refused(graph, "theirs"))
    assert found["message"] == "@card violation on edge Owns: source 'Ann' has 0 edges (min 1)"
    merge(graph, {found["id"]: "theirs"})
    assert without_filler(graph, "Owns").keys() == {"r"}


def test_constraint_conflict_ids_are_independent_of_the_sizes() -> None:
    base = [person("Ann"), person("Bob"), person("Cid"), node("City", "Rom")]
    found = {}
    for bigger in ("main", "theirs"):
        graph = fork(base, bigger)
        change(graph, 'delete Person where name = "Cid"')
        put(graph, edge("Knows", "k", "Ann", "Cid"), branch="theirs")
        orphan = only(refused(graph, "theirs"))
        put(graph, person("Ann", mail="m"))
        put(graph, person("Bob", mail="m"), branch="theirs")
        unique = only(refused(graph, "theirs"))
        found[bigger] = [orphan, unique]
    assert found["main"] == found["theirs"]


# --- chains -------------------------------------------------------------------------------------------------


def contested() -> list[Record]:
    """Ann holds a mail address that another will get when she is gone."""
    return [person("Ann", mail="m"), person("Bob")]


@larger
def test_resolve_that_causes_another_violation_reports_it(larger: str) -> None:
    graph = fork(contested(), larger)
    change(graph, 'delete Person where name = "Ann"')
    put(graph, person("New", mail="m"))
    put(graph, edge("Knows", "k", "Bob", "Ann"), branch="theirs")
    orphan = only(refused(graph, "theirs"))
    # Ann comes back, and with her the address that New has by now.
    unique = only(refused(graph, "theirs", resolve={orphan["id"]: "theirs"}))
    assert unique["kind"] == "unique_violation"
    merge(graph, {orphan["id"]: "theirs", unique["id"]: "theirs"})
    assert without_filler(graph, "Person").keys() == {"Ann", "Bob"}
    assert without_filler(graph, "Knows").keys() == {"k"}


@larger
def test_resolve_with_contradicting_resolutions_is_refused(larger: str) -> None:
    graph = fork(contested(), larger)
    change(graph, 'delete Person where name = "Ann"')
    put(graph, person("New", mail="m"))
    put(graph, edge("Knows", "k", "Bob", "Ann"), branch="theirs")
    orphan = only(refused(graph, "theirs"))
    left = refused(graph, "theirs", resolve={orphan["id"]: "theirs", "*": "ours"})
    assert left == [orphan]


@larger
@pytest.mark.parametrize("resolve", ["ours", "theirs"])
def test_resolve_with_one_side_resolves_a_chain_of_conflicts(resolve: str, larger: str) -> None:
    graph = fork(contested(), larger)
    change(graph, 'delete Person where name = "Ann"')
    put(graph, person("New", mail="m"))
    put(graph, edge("Knows", "k", "Bob", "Ann"), branch="theirs")
    merge(graph, resolve)
    people = without_filler(graph, "Person").keys()
    assert people == ({"New", "Bob"} if resolve == "ours" else {"Ann", "Bob"})


@larger
def test_resolve_that_removes_the_last_edge_reports_cardinality(larger: str) -> None:
    """Our only edge of Ann goes to theirs' state, which has the edge that we removed: she is left with none."""
    schema = """
    node Person { name: String @key }
    node City { name: String @key }
    edge Owns: Person -> City @card(1..2) { deed: String? @unique }
    """
    records = [node("Person", name) for name in ("Ann", "Bob")] + [node("City", "Rom"), node("City", "Ulm")]
    graph = make(schema, [*records, edge("Owns", "old", "Ann", "Ulm"), edge("Owns", "bob", "Bob", "Rom")])
    graph.branches.create("theirs")
    put(graph, edge("Owns", "new", "Ann", "Rom", deed="d"))
    change(graph, 'delete Owns where to = "Ulm"')
    put(graph, edge("Owns", "their", "Bob", "Rom", deed="d"), branch="theirs")
    more = [
        item
        for n in range(FILLER)
        for item in (node("Person", f"p{n}"), edge("Owns", f"e{n}", f"p{n}", "Rom"))
    ]
    put(graph, *more, branch=larger)
    unique = only(refused(graph, "theirs"))
    assert unique["kind"] == "unique_violation"
    left = only(refused(graph, "theirs", resolve={unique["id"]: "theirs"}))
    assert left["message"] == "@card violation on edge Owns: source 'Ann' has 0 edges (min 1)"
    graph.branches.merge("theirs", resolve="theirs")
    assert {"old", "their"} <= state(graph)["Owns"].keys()


@larger
def test_merge_of_edge_moved_from_deleted_node_has_no_conflict(larger: str) -> None:
    schema = """
    node Person { name: String @key }
    edge Heads: Person -> Person @card(1..9) { since: I32? }
    """
    edges = [edge("Heads", "h", "a", "c"), edge("Heads", "other", "a", "c")]
    graph = make(schema, [*(node("Person", name) for name in "abc"), *edges])
    graph.branches.create("theirs")
    put(graph, edge("Heads", "h", "b", "c"))
    change(graph, 'delete Person where name = "a"')
    put(graph, edge("Heads", "h", "a", "c", since=1), branch="theirs")
    put(graph, *(item for n in range(FILLER) for item in _pair(n)), branch=larger)
    graph.branches.merge("theirs")
    assert state(graph)["Heads"]["h"] == {"id": "h", "src": "b", "dst": "c", "since": 1}


def _pair(number: int) -> tuple[Record, Record]:
    return node("Person", f"p{number}"), edge("Heads", f"e{number}", f"p{number}", "c")


def test_resolve_with_one_side_resolves_unlisted_violations() -> None:
    count = 250
    graph = make(records=[person(f"p{number:03}") for number in range(count)])
    graph.branches.create("theirs")
    put(graph, *(person(f"a{number:03}", mail=str(number)) for number in range(count)))
    put(graph, *(person(f"b{number:03}", mail=str(number)) for number in range(count)), branch="theirs")
    with pytest.raises(MergeConflicts) as caught:
        graph.branches.merge("theirs")
    assert caught.value.details["conflicts"] == count
    assert caught.value.message.startswith("merge conflicts: node type 'Person', entity id 'b000'")
    assert f"and {count - 3} more" in caught.value.message
    graph.branches.merge("theirs", resolve="ours")
    assert {id_[0] for id_ in state(graph)["Person"]} == {"a", "p"}


@larger
@pytest.mark.parametrize("resolve", ["ours", "theirs"])
def test_resolve_edge_orphaned_at_both_ends_takes_one_resolution(resolve: str, larger: str) -> None:
    graph = fork([person("Ann"), person("Bob")], larger)
    change(graph, 'delete Person where name = "Ann"\n delete Person where name = "Bob"')
    put(graph, edge("Knows", "k", "Ann", "Bob"), edge("Knows", "l", "Bob", "Bob"), branch="theirs")
    assert kinds(refused(graph, "theirs")) == [
        ("orphan_edge", "Knows", id_, end) for id_ in "kl" for end in ("from", "to")
    ]
    merge(graph, resolve)
    assert without_filler(graph, "Person").keys() == (set() if resolve == "ours" else {"Ann", "Bob"})
    assert without_filler(graph, "Knows").keys() == (set() if resolve == "ours" else {"k", "l"})

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
def test_one_side_for_all_settles_every_conflict(ages: og.Graph, side: str, age: int) -> None:
    merge(ages, side)
    assert column(ages, "age") == {"Ann": age, "Bob": age, "Cid": 3}


def test_conflicts_are_settled_one_by_one(ages: og.Graph) -> None:
    ann, bob = refused(ages, "theirs")
    merge(ages, {ann["id"]: "theirs", bob["id"]: {"value": 7}})
    assert column(ages, "age") == {"Ann": 3, "Bob": 7, "Cid": 3}


def test_a_value_may_be_none(ages: og.Graph) -> None:
    ann, bob = refused(ages, "theirs")
    merge(ages, {ann["id"]: {"value": None}, bob["id"]: "ours"})
    assert column(ages, "age") == {"Ann": None, "Bob": 2, "Cid": 3}


def test_a_star_settles_what_is_not_named(ages: og.Graph) -> None:
    ann, _ = refused(ages, "theirs")
    merge(ages, {ann["id"]: "theirs", "*": "ours"})
    assert column(ages, "age") == {"Ann": 3, "Bob": 2, "Cid": 3}


def test_what_is_not_settled_is_refused_and_nothing_moves(ages: og.Graph) -> None:
    ann, bob = refused(ages, "theirs")
    before = state(ages)
    assert refused(ages, "theirs", resolve={ann["id"]: "theirs"}) == [bob]
    assert state(ages) == before


def test_a_decision_about_values_that_have_changed_since_settles_nothing(ages: og.Graph) -> None:
    ann, bob = refused(ages, "theirs")
    put(ages, person("Ann", age=9), branch="theirs")
    left = only(refused(ages, "theirs", resolve={ann["id"]: "ours", bob["id"]: "ours"}))
    assert (left["entity_id"], left["theirs"]) == ("Ann", 9)


def test_a_value_of_another_type_is_refused_by_the_name_of_its_property(ages: og.Graph) -> None:
    ann, bob = refused(ages, "theirs")
    before = head(ages)
    for wrong in ("old", 1.5, [1], {"a": 1}, True, 2**31):
        with pytest.raises(InvalidInput, match="property 'age'"):
            ages.branches.merge("theirs", resolve={ann["id"]: {"value": wrong}, bob["id"]: "ours"})
    assert head(ages) == before


def test_a_value_that_breaks_a_rule_is_a_conflict_of_its_own() -> None:
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


def test_a_value_that_another_entity_holds_is_a_unique_violation() -> None:
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
def test_what_is_no_decision_is_refused(ages: og.Graph, wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        ages.branches.merge("theirs", resolve=wrong)


def test_an_entity_as_a_whole_cannot_be_given_a_value() -> None:
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
def test_a_deleted_and_updated_entity_is_what_the_chosen_side_has(
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
def test_an_orphan_edge_goes_or_brings_its_node_back(deletes: str, resolve: str, larger: str) -> None:
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
def test_a_value_given_to_two_entities_is_left_to_the_chosen_sides(resolve: str, larger: str) -> None:
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
def test_too_many_edges_become_those_of_the_chosen_side(resolve: str, larger: str) -> None:
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
def test_too_few_edges_are_told_and_settled(larger: str) -> None:
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


def test_ids_of_broken_rules_do_not_depend_on_which_side_is_larger() -> None:
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
def test_what_settling_one_conflict_breaks_is_a_conflict_too(larger: str) -> None:
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
def test_decisions_that_undo_each_other_are_refused(larger: str) -> None:
    graph = fork(contested(), larger)
    change(graph, 'delete Person where name = "Ann"')
    put(graph, person("New", mail="m"))
    put(graph, edge("Knows", "k", "Bob", "Ann"), branch="theirs")
    orphan = only(refused(graph, "theirs"))
    left = refused(graph, "theirs", resolve={orphan["id"]: "theirs", "*": "ours"})
    assert left == [orphan]


@larger
@pytest.mark.parametrize("resolve", ["ours", "theirs"])
def test_one_side_for_all_carries_through_a_chain(resolve: str, larger: str) -> None:
    graph = fork(contested(), larger)
    change(graph, 'delete Person where name = "Ann"')
    put(graph, person("New", mail="m"))
    put(graph, edge("Knows", "k", "Bob", "Ann"), branch="theirs")
    merge(graph, resolve)
    people = without_filler(graph, "Person").keys()
    assert people == ({"New", "Bob"} if resolve == "ours" else {"Ann", "Bob"})


@larger
def test_an_edge_that_a_decision_takes_away_is_missed_where_it_was_the_last(larger: str) -> None:
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
def test_a_node_that_is_gone_is_not_missed_by_an_edge_that_had_left_it(larger: str) -> None:
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


def test_many_broken_rules_are_settled_though_only_some_are_listed() -> None:
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
def test_an_edge_that_is_an_orphan_at_both_ends_is_settled_once_for_both(resolve: str, larger: str) -> None:
    graph = fork([person("Ann"), person("Bob")], larger)
    change(graph, 'delete Person where name = "Ann"\n delete Person where name = "Bob"')
    put(graph, edge("Knows", "k", "Ann", "Bob"), edge("Knows", "l", "Bob", "Bob"), branch="theirs")
    assert kinds(refused(graph, "theirs")) == [
        ("orphan_edge", "Knows", id_, end) for id_ in "kl" for end in ("from", "to")
    ]
    merge(graph, resolve)
    assert without_filler(graph, "Person").keys() == (set() if resolve == "ours" else {"Ann", "Bob"})
    assert without_filler(graph, "Knows").keys() == (set() if resolve == "ours" else {"k", "l"})

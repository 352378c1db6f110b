"""The row rule: entities merge property by property, whatever the properties hold."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import MergeConflicts
from tests.merge.merges import edge, kinds, make, node, only, person, put, refused, state

# A property of every type, and values that differ from each other though some of them look alike.
VALUES: Final[dict[str, tuple[str, tuple[Any, ...]]]] = {
    "text": ("String?", ("", None, "x")),
    "flag": ("Bool?", (True, False, None)),
    "small": ("I32?", (1, 2, None)),
    "large": ("I64?", (2**60, 2**60 + 1, None)),
    "count": ("U32?", (0, 2**32 - 1, None)),
    "total": ("U64?", (0, 2**64 - 1, 2**63)),
    "ratio": ("F32?", (1.5, "NaN", None)),
    "score": ("F64?", (0.0, "NaN", None)),
    "day": ("Date?", ("2020-02-29", "1969-12-31", None)),
    "moment": ("DateTime?", ("2020-01-01T00:00:00.000Z", "1969-12-31T23:59:59.999Z", None)),
    "picture": ("Blob?", ("base64:", "base64:AAAB", None)),
    "words": ("[String]?", ([], [""], None)),
    "numbers": ("[I32]?", ([], [1, 2], [2, 1])),
    "weights": ("[F64]?", (["NaN"], [], None)),
    "days": ("[Date]?", (["2020-02-29"], [], None)),
    "flags": ("[Bool]?", ([True], [False], None)),
    "place": ("Vector(2)?", ([1.0, 2.0], [1.0, 2.5], None)),
    "colour": ("enum(red, green)?", ("red", "green", None)),
}
SCHEMA: Final = (
    "node Thing { name: String @key\n"
    + "\n".join(f"{name}: {kind}" for name, (kind, _) in VALUES.items())
    + "}\nedge Next: Thing -> Thing { since: I32? }"
)
# Which of its values each property has: base, ours, theirs.
Picks = tuple[int, int, int]


def thing(name: str, picks: dict[str, int]) -> dict[str, Any]:
    """A record whose properties have these of their values."""
    return node("Thing", name, **{key: VALUES[key][1][place] for key, place in picks.items()})


def merged_pick(base: int, ours: int, theirs: int, default: str | None = None) -> int | None:
    """The value that comes of three; None for a conflict."""
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    return {"ours": ours, "theirs": theirs}.get(default or "")


def things(count: int) -> st.SearchStrategy[list[dict[str, Picks]]]:
    """What becomes of the properties of some things."""
    pick = st.integers(0, 2)
    return st.lists(
        st.fixed_dictionaries({name: st.tuples(pick, pick, pick) for name in VALUES}),
        min_size=count,
        max_size=count,
    )


def fork(rows: list[dict[str, Picks]]) -> og.Graph:
    """A graph with the things of the base, whose two branches have theirs."""
    graph = make(SCHEMA)
    for place, branch in ((0, "main"), (1, "ours"), (2, "theirs")):
        if place:
            graph.branches.create(branch, at=graph.commits()[0].id)
        records = [
            thing(f"t{number}", {name: picks[place] for name, picks in row.items()})
            for number, row in enumerate(rows)
        ]
        commit = graph.load(records, "merge", branch=branch).commit
        is_base = all(picks[place] == picks[0] for row in rows for picks in row.values())
        assert (commit is None) == (place > 0 and is_base)
    return graph


@settings(max_examples=6, deadline=None)
@given(rows=things(12), side=st.sampled_from(["ours", "theirs"]))
def test_merge_of_different_properties_takes_both(rows: list[dict[str, Picks]], side: str) -> None:
    graph = fork(rows)
    clashes = {
        ("divergent_update", "Thing", f"t{number}", name)
        for number, row in enumerate(rows)
        for name, picks in row.items()
        if merged_pick(*picks) is None
    }
    found = graph.branches.merge("theirs", "ours", dry_run=True).conflicts
    assert set(kinds(found)) == clashes
    assert len(found) == len(clashes)
    for item in found:
        said = VALUES[item["property"]][1]
        picks = rows[int(item["entity_id"][1:])][item["property"]]
        assert [item["base"], item["ours"], item["theirs"]] == [said[place] for place in picks]

    graph.branches.merge("theirs", "ours", resolve=side)
    for number, row in enumerate(rows):
        expected = {
            name: VALUES[name][1][place]
            for name, picks in row.items()
            if (place := merged_pick(*picks, side)) is not None
        }
        assert graph.get("Thing", f"t{number}", branch="ours") == {
            "id": f"t{number}",
            "name": f"t{number}",
            **expected,
        }


def test_resolve_with_value_of_every_type() -> None:
    graph = fork([dict.fromkeys(VALUES, (0, 1, 2))] * 3)
    found = refused(graph, "theirs", "ours")
    assert len(found) == 3 * len(VALUES)
    # The first thing gets the first value of every property, and so on.
    settled = {
        item["id"]: {"value": VALUES[item["property"]][1][int(item["entity_id"][1:])]} for item in found
    }
    graph.branches.merge("theirs", "ours", resolve=settled)
    for number in range(3):
        entity = graph.get("Thing", f"t{number}", branch="ours")
        assert entity is not None
        assert {name: entity[name] for name in VALUES} == {
            name: values[number] for name, (_, values) in VALUES.items()
        }


def test_merge_of_equal_inserts_has_no_conflict() -> None:
    graph = make(SCHEMA)
    graph.branches.create("theirs")
    for branch in ("main", "theirs"):
        put(graph, *(thing(f"t{place}", dict.fromkeys(VALUES, place)) for place in range(3)), branch=branch)
    assert graph.branches.merge("theirs").affected == {}
    assert len(state(graph)["Thing"]) == 3


def test_merge_of_different_inserts_conflicts_in_each_different_property() -> None:
    graph = make(SCHEMA)
    graph.branches.create("theirs")
    put(graph, thing("new", {"text": 0, "small": 1}))
    put(graph, thing("new", {"text": 1, "small": 1, "flag": 0}), branch="theirs")
    found = refused(graph, "theirs")
    assert kinds(found) == [
        ("divergent_insert", "Thing", "new", "flag"),
        ("divergent_insert", "Thing", "new", "text"),
    ]
    assert [(item["base"], item["ours"], item["theirs"]) for item in found] == [
        (None, None, True),
        (None, "", None),
    ]
    assert {item["message"] for item in found} == {"divergent insert for id 'new'"}


def test_merge_of_edge_endpoints_like_properties() -> None:
    graph = make(SCHEMA, [node("Thing", name) for name in "abcd"])
    put(graph, edge("Next", "e", "a", "b", since=1), edge("Next", "f", "a", "b"))
    graph.branches.create("theirs")
    put(graph, edge("Next", "e", "c", "b", since=1), edge("Next", "f", "c", "b"))
    put(graph, edge("Next", "e", "a", "d", since=2), edge("Next", "f", "d", "b"), branch="theirs")
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("divergent_update", "Next", "f", "from")]
    assert (found["entity_kind"], found["base"], found["ours"], found["theirs"]) == ("edge", "a", "c", "d")
    graph.branches.merge("theirs", resolve={found["id"]: {"value": "b"}})
    assert state(graph)["Next"] == {
        "e": {"id": "e", "src": "c", "dst": "d", "since": 2},
        "f": {"id": "f", "src": "b", "dst": "b", "since": None},
    }


def test_merge_of_value_changed_and_restored_is_unchanged() -> None:
    graph = make(records=[person("Ann", age=1), person("Bob", age=1)])
    graph.branches.create("theirs")
    put(graph, person("Ann", age=2), branch="theirs")
    put(graph, person("Ann", age=1), branch="theirs")
    put(graph, person("Ann", age=3), person("Bob", age=3))
    assert graph.branches.merge("theirs").affected == {}
    assert state(graph)["Person"]["Ann"]["age"] == 3


# --- what a conflict says ---------------------------------------------------------------------------------------


@pytest.fixture
def torn() -> og.Graph:
    """A graph with conflicts in two types: five of nodes and one of an edge."""
    records = [person(name, age=1) for name in ("Ann", "Bob", "Cid", "Dan")]
    graph = make(records=[*records, edge("Knows", "k", "Ann", "Bob", since=1)])
    graph.branches.create("theirs")
    for branch, age in (("main", 2), ("theirs", 3)):
        records = [person(name, age=age) for name in ("Ann", "Bob", "Cid")]
        put(graph, *records, edge("Knows", "k", "Ann", "Bob", since=age), branch=branch)
        put(graph, person("Dan", age=age, team=branch), branch=branch)
    return graph


def test_conflicts_are_ordered_by_kind_type_entity_and_property(torn: og.Graph) -> None:
    assert kinds(refused(torn, "theirs")) == [
        ("divergent_update", "Person", "Ann", "age"),
        ("divergent_update", "Person", "Bob", "age"),
        ("divergent_update", "Person", "Cid", "age"),
        ("divergent_update", "Person", "Dan", "age"),
        ("divergent_update", "Person", "Dan", "team"),
        ("divergent_update", "Knows", "k", "since"),
    ]


def test_conflict_message_names_three_and_counts_the_rest(torn: og.Graph) -> None:
    with pytest.raises(MergeConflicts) as caught:
        torn.branches.merge("theirs")
    assert caught.value.message == (
        "merge conflicts: node type 'Person', entity id 'Ann' (divergent_update);"
        " node type 'Person', entity id 'Bob' (divergent_update);"
        " node type 'Person', entity id 'Cid' (divergent_update); and 3 more"
    )
    assert caught.value.details["conflicts"] == 6


def test_conflict_message_of_three_counts_no_rest() -> None:
    graph = make(records=[person(name) for name in "abc"])
    graph.branches.create("theirs")
    put(graph, *(person(name, age=1) for name in "abc"))
    put(graph, *(person(name, age=2) for name in "abc"), branch="theirs")
    with pytest.raises(MergeConflicts, match=r"'c' \(divergent_update\)\n"):
        graph.branches.merge("theirs")


def test_conflict_ids_are_equal_in_dry_run_merge_and_other_handle(torn: og.Graph) -> None:
    dry = [item["id"] for item in torn.branches.merge("theirs", dry_run=True).conflicts]
    again = [item["id"] for item in refused(torn, "theirs")]
    other = [item["id"] for item in refused(og.open(torn.uri), "theirs")]
    assert dry == again == other
    assert len(set(dry)) == 6


@pytest.mark.parametrize("compacted", ["main", "theirs"])
def test_conflict_ids_are_stable_after_unrelated_commits(torn: og.Graph, compacted: str) -> None:
    before = [item["id"] for item in refused(torn, "theirs")]
    put(torn, *(node("City", f"c{number}") for number in range(10)), branch="theirs")
    put(torn, *(person(f"p{number}") for number in range(50)))
    torn.optimize(branch=compacted)
    assert [item["id"] for item in refused(torn, "theirs")] == before


def test_conflict_id_changes_with_its_values(torn: og.Graph) -> None:
    before = {(item["entity_id"], item["property"]): item["id"] for item in refused(torn, "theirs")}
    put(torn, person("Ann", age=4), branch="theirs")
    after = {(item["entity_id"], item["property"]): item["id"] for item in refused(torn, "theirs")}
    assert {place for place in before if before[place] != after[place]} == {("Ann", "age")}


def test_delete_update_conflict_shows_the_state_of_each_side() -> None:
    graph = make(records=[person("Ann", age=1), person("Bob"), edge("Knows", "k", "Ann", "Bob", since=1)])
    graph.branches.create("theirs")
    graph.mutate('query q() { delete Knows where from = "Ann" }')
    put(graph, edge("Knows", "k", "Bob", "Ann", since=1), branch="theirs")
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("delete_vs_update", "Knows", "k", None)]
    assert found["message"] == "delete/update conflict for id 'k'"
    assert found["base"]["endpoints"] == {"from": "Ann", "to": "Bob"}
    assert found["ours"] is None
    assert found["theirs"] == {
        "properties": {"code": None, "since": 1},
        "endpoints": {"from": "Bob", "to": "Ann"},
    }


def test_merge_of_rows_in_memory_leaves_out_those_that_were_deleted() -> None:
    graph = make(records=[person(f"base{number}", age=1) for number in range(3)])
    graph.branches.create("theirs")
    graph.load([person(name, age=2) for name in ("new1", "new2", "new3", "base1")], "merge", branch="theirs")
    graph.mutate('query gone() { delete Person where name = "new2" }', branch="theirs")
    # Ours changes more rows, so those of theirs are applied to it.
    ours = {f"ours{number}": 3 for number in range(10)} | {"base0": 3}
    graph.load([person(name, age=age) for name, age in ours.items()], "merge")
    assert graph.branches.merge("theirs").outcome == "merged"
    cold = og.open(graph.uri)
    for handle in (graph, cold):
        ages = {name: row["age"] for name, row in state(handle)["Person"].items()}
        assert ages == ours | {"base1": 2, "base2": 1, "new1": 2, "new3": 2}

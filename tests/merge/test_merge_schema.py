"""Branches whose schemas have changed merge with their rows."""

from __future__ import annotations

import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation
from tests.merge.merges import change, column, edge, kinds, make, node, only, put, refused, state

BASE = """
node Person { name: String @key  age: I32?  mood: enum(good, bad)? }
node City { name: String @key  size: I64? }
edge Lives: Person -> City
"""
ROWS = [
    node("Person", "Ann", age=1, mood="good"),
    node("Person", "Bob", age=1),
    node("City", "Rom"),
    edge("Lives", "l", "Ann", "Rom"),
]
SIDES = pytest.mark.parametrize("side", ["main", "theirs"])
OTHER = {"main": "theirs", "theirs": "main"}


@pytest.fixture
def graph() -> og.Graph:
    """A graph with a branch that has not changed yet."""
    found = make(BASE, ROWS)
    found.branches.create("theirs")
    return found


def apply(graph: og.Graph, old: str, new: str, branch: str = "main", **options: object) -> og.Commit:
    """Change the schema of a branch by replacing a piece of its text."""
    text = graph.schema.source(branch)
    assert old in text
    commit = graph.schema.apply(text.replace(old, new), branch=branch, **options).commit  # type: ignore[arg-type]
    assert commit is not None
    return commit


def check_usable(graph: og.Graph) -> None:
    """What came of a merge can be read, written, compacted and merged back."""
    assert graph.branches.merge("theirs").outcome == "already_up_to_date"
    assert graph.branches.merge("main", "theirs").outcome == "fast_forward"
    assert state(graph, "theirs") == state(graph)
    assert graph.schema.source("theirs") == graph.schema.source()
    before = state(graph)
    graph.optimize()
    assert state(graph) == before
    put(graph, node("City", "afterwards"))
    assert "afterwards" in state(graph)["City"]


AGE = "age: I32?"


# --- properties ---------------------------------------------------------------------------------------------


@SIDES
def test_merge_of_added_property_with_rows_changed_on_the_other_side(graph: og.Graph, side: str) -> None:
    apply(graph, AGE, f"{AGE}  nick: String?", side)
    put(graph, node("Person", "Ann", age=1, mood="good", nick="A"), branch=side)
    put(graph, node("Person", "Ann", age=2, mood="good"), node("Person", "New"), branch=OTHER[side])
    graph.branches.merge("theirs")
    assert column(graph, "nick") == {"Ann": "A", "Bob": None, "New": None}
    assert column(graph, "age") == {"Ann": 2, "Bob": 1, "New": None}
    check_usable(graph)


@SIDES
def test_merge_of_added_property_without_changed_rows_reads_no_rows(graph: og.Graph, side: str) -> None:
    apply(graph, AGE, f"{AGE}  nick: String?", side)
    put(graph, node("City", "Ulm"), branch=OTHER[side])
    done = graph.branches.merge("theirs")
    assert done.affected == {}
    assert column(graph, "nick") == {"Ann": None, "Bob": None}
    assert "Ulm" in state(graph)["City"]
    check_usable(graph)


def test_merge_of_different_added_properties_keeps_both(graph: og.Graph) -> None:
    apply(graph, AGE, f"{AGE}  nick: String?")
    apply(graph, AGE, f"{AGE}  tall: Bool?", "theirs")
    put(graph, node("Person", "Ann", age=1, nick="A"))
    put(graph, node("Person", "Bob", age=1, tall=True), node("Person", "New", tall=False), branch="theirs")
    graph.branches.merge("theirs")
    assert column(graph, "nick") == {"Ann": "A", "Bob": None, "New": None}
    assert column(graph, "tall") == {"Ann": None, "Bob": True, "New": False}
    check_usable(graph)


def test_merge_of_different_added_properties_without_changed_rows_keeps_both(graph: og.Graph) -> None:
    apply(graph, AGE, f"{AGE}  nick: String?")
    apply(graph, AGE, f"{AGE}  tall: Bool?", "theirs")
    graph.branches.merge("theirs")
    assert column(graph, "nick") == column(graph, "tall") == {"Ann": None, "Bob": None}
    check_usable(graph)


def test_merge_of_same_added_property_keeps_one(graph: og.Graph) -> None:
    for branch in ("main", "theirs"):
        apply(graph, AGE, f"{AGE}  nick: String?", branch)
    put(graph, node("Person", "Ann", age=1, mood="good", nick="A"))
    put(graph, node("Person", "Bob", age=1, nick="B"), node("Person", "New", nick="N"), branch="theirs")
    graph.branches.merge("theirs")
    assert column(graph, "nick") == {"Ann": "A", "Bob": "B", "New": "N"}
    check_usable(graph)


def test_merge_of_same_added_property_with_different_values_is_a_conflict(graph: og.Graph) -> None:
    for branch, nick in (("main", "A"), ("theirs", "B")):
        apply(graph, AGE, f"{AGE}  nick: String?", branch)
        put(graph, node("Person", "Ann", age=1, mood="good", nick=nick), branch=branch)
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("divergent_update", "Person", "Ann", "nick")]
    graph.branches.merge("theirs", resolve={found["id"]: "theirs"})
    assert column(graph, "nick")["Ann"] == "B"


def test_merge_of_same_added_property_with_two_types_is_a_schema_conflict(graph: og.Graph) -> None:
    apply(graph, AGE, f"{AGE}  nick: String?")
    apply(graph, AGE, f"{AGE}  nick: I32?", "theirs")
    put(graph, node("Person", "Bob", nick="B"))
    put(graph, node("Person", "Ann", nick=3), branch="theirs")
    found = refused(graph, "theirs")
    assert {item["kind"] for item in found} == {"schema_conflict"}
    assert {(item["type_name"], item["property"]) for item in found} == {("Person", "nick")}
    assert list(graph.branches.merge("theirs", dry_run=True).conflicts) == found


@SIDES
def test_merge_of_entity_inserted_on_both_sides_ignores_properties_of_one_side(
    graph: og.Graph, side: str
) -> None:
    apply(graph, AGE, f"{AGE}  nick: String?", side)
    put(graph, node("Person", "New", age=5, nick="N"), branch=side)
    put(graph, node("Person", "New", age=5), branch=OTHER[side])
    graph.branches.merge("theirs")
    assert state(graph)["Person"]["New"] == {"id": "New", "name": "New", "age": 5, "mood": None, "nick": "N"}


@SIDES
def test_merge_of_added_required_property_reports_rows_without_value(graph: og.Graph, side: str) -> None:
    apply(graph, AGE, f"{AGE}  rank: I32", side, backfill={"Person.rank": 7})
    put(graph, node("Person", "New"), node("Person", "Bob", age=2), branch=OTHER[side])
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("value_constraint_violation", "Person", None, "rank")]
    change(graph, 'delete Person where name = "New"', OTHER[side])
    graph.branches.merge("theirs")
    assert column(graph, "rank") == {"Ann": 7, "Bob": 7}
    assert column(graph, "age") == {"Ann": 1, "Bob": 2}
    check_usable(graph)


@SIDES
def test_merge_of_backfilled_property_keeps_its_values(graph: og.Graph, side: str) -> None:
    apply(graph, AGE, f"{AGE}  label: String", side, backfill={"Person.label": og.expr("$this.name")})
    put(graph, node("City", "Ulm"), branch=OTHER[side])
    graph.branches.merge("theirs")
    assert column(graph, "label") == {"Ann": "Ann", "Bob": "Bob"}
    check_usable(graph)


@SIDES
def test_merge_of_renamed_property_takes_values_of_the_other_side(graph: og.Graph, side: str) -> None:
    apply(graph, AGE, 'years: I32? @rename_from("age")', side)
    put(graph, node("Person", "Bob", years=5), branch=side)
    put(graph, node("Person", "Ann", age=9, mood="good"), branch=OTHER[side])
    graph.branches.merge("theirs")
    assert column(graph, "years") == {"Ann": 9, "Bob": 5}
    check_usable(graph)


@SIDES
def test_merge_conflict_in_renamed_property_has_the_new_name(graph: og.Graph, side: str) -> None:
    apply(graph, AGE, 'years: I32? @rename_from("age")', side)
    put(graph, node("Person", "Ann", years=5, mood="good"), branch=side)
    put(graph, node("Person", "Ann", age=9, mood="good"), branch=OTHER[side])
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("divergent_update", "Person", "Ann", "years")]
    graph.branches.merge("theirs", resolve={found["id"]: {"value": 6}})
    assert column(graph, "years")["Ann"] == 6


@SIDES
@pytest.mark.parametrize("for_good", [False, True])
def test_merge_of_dropped_property_keeps_the_other_changes(
    graph: og.Graph, side: str, for_good: bool
) -> None:
    apply(graph, AGE, "", side, allow_data_loss=for_good)
    put(graph, node("Person", "Ann", age=1, mood="bad"), node("Person", "New"), branch=OTHER[side])
    graph.branches.merge("theirs")
    assert state(graph)["Person"]["Ann"] == {"id": "Ann", "name": "Ann", "mood": "bad"}
    assert column(graph, "mood") == {"Ann": "bad", "Bob": None, "New": None}
    check_usable(graph)


# --- enums --------------------------------------------------------------------------------------------------


def test_merge_of_enum_extended_on_both_sides_has_all_values(graph: og.Graph) -> None:
    apply(graph, "(good, bad)", "(good, bad, calm)")
    apply(graph, "(good, bad)", "(good, bad, wild)", "theirs")
    put(graph, node("Person", "Ann", mood="calm"))
    put(graph, node("Person", "Bob", mood="wild"), branch="theirs")
    graph.branches.merge("theirs")
    assert column(graph, "mood") == {"Ann": "calm", "Bob": "wild"}
    check_usable(graph)
    with pytest.raises(ConstraintViolation):
        put(graph, node("Person", "Ann", mood="odd"))


@SIDES
def test_merge_of_value_removed_from_enum_is_a_conflict(graph: og.Graph, side: str) -> None:
    graph = make(BASE, ROWS)
    extended = apply(graph, "(good, bad)", "(good, bad, calm)")
    graph.branches.create("theirs")
    graph.revert(extended.id, branch=side)
    put(graph, node("Person", "New", mood="calm"), branch=OTHER[side])
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("value_constraint_violation", "Person", None, "mood")]
    assert found["message"].startswith("invalid enum value 'calm'")


# --- types --------------------------------------------------------------------------------------------------


@SIDES
def test_merge_of_added_type_keeps_its_rows(graph: og.Graph, side: str) -> None:
    text = "node Pet { name: String @key }\nedge Has: Person -> Pet"
    graph.schema.apply(BASE + text, branch=side)
    put(graph, node("Pet", "Rex"), edge("Has", "h", "Ann", "Rex"), branch=side)
    put(graph, node("Person", "Bob", age=2), branch=OTHER[side])
    graph.branches.merge("theirs")
    assert state(graph)["Pet"].keys() == {"Rex"}
    assert state(graph)["Has"]["h"] == {"id": "h", "src": "Ann", "dst": "Rex"}
    assert column(graph, "age") == {"Ann": 1, "Bob": 2}
    check_usable(graph)


def test_merge_of_same_added_type_has_the_rows_of_both_sides(graph: og.Graph) -> None:
    for branch, pet in (("main", "Rex"), ("theirs", "Tom")):
        graph.schema.apply(
            BASE + "node Pet { name: String @key  kind: String? }\nedge Has: Person -> Pet", branch=branch
        )
        records = [node("Pet", pet), node("Pet", "Both", kind="cat"), edge("Has", pet, "Ann", pet)]
        put(graph, *records, branch=branch)
    graph.branches.merge("theirs")
    assert column(graph, "kind", type_name="Pet") == {"Rex": None, "Tom": None, "Both": "cat"}
    assert state(graph)["Has"].keys() == {"Rex", "Tom"}
    check_usable(graph)


def test_merge_of_same_added_type_with_different_rows_is_a_conflict(graph: og.Graph) -> None:
    for branch, kind in (("main", "cat"), ("theirs", "dog")):
        graph.schema.apply(BASE + "node Pet { name: String @key  kind: String? }", branch=branch)
        put(graph, node("Pet", "Rex", kind=kind), branch=branch)
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("divergent_insert", "Pet", "Rex", "kind")]
    graph.branches.merge("theirs", resolve="theirs")
    assert column(graph, "kind", type_name="Pet") == {"Rex": "dog"}
    check_usable(graph)


def test_merge_of_different_added_types_keeps_both(graph: og.Graph) -> None:
    for branch, name in (("main", "Cat"), ("theirs", "Dog")):
        graph.schema.apply(BASE + f"node {name} {{ name: String @key }}", branch=branch)
        put(graph, node(name, name), branch=branch)
    graph.branches.merge("theirs")
    assert (set(state(graph)["Cat"]), set(state(graph)["Dog"])) == ({"Cat"}, {"Dog"})
    check_usable(graph)


@SIDES
@pytest.mark.parametrize("resolve", ["ours", "theirs"])
def test_merge_of_edge_of_added_type_to_deleted_node_is_an_orphan_conflict(
    graph: og.Graph, side: str, resolve: str
) -> None:
    graph.schema.apply(BASE + "edge Likes: Person -> City", branch=side)
    put(graph, edge("Likes", "x", "Ann", "Rom"), edge("Likes", "y", "Bob", "Rom"), branch=side)
    change(graph, 'delete Person where name = "Bob"', OTHER[side])
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("orphan_edge", "Likes", "y", "from")]
    graph.branches.merge("theirs", resolve={found["id"]: resolve})
    stays = (resolve == "ours") == (side == "main")
    assert state(graph)["Likes"].keys() == ({"x", "y"} if stays else {"x"})
    assert state(graph)["Person"].keys() == ({"Ann", "Bob"} if stays else {"Ann"})
    check_usable(graph)


@SIDES
def test_resolve_orphan_edge_of_type_with_added_property(graph: og.Graph, side: str) -> None:
    """What is settled against a side's rows holds though that side's version has the columns."""
    apply(graph, "edge Lives: Person -> City", "edge Lives: Person -> City { since: I32? }", side)
    put(graph, edge("Lives", "new", "Bob", "Rom", since=3), branch=side)
    change(graph, 'delete Person where name = "Bob"', OTHER[side])
    graph.branches.merge("theirs", resolve="theirs" if side == "main" else "ours")
    assert state(graph)["Lives"].keys() == {"l"}
    assert state(graph)["Person"].keys() == {"Ann"}
    check_usable(graph)


@SIDES
def test_merge_of_renamed_type_takes_rows_of_the_other_side(graph: og.Graph, side: str) -> None:
    renamed = BASE.replace("node City {", 'node Town @rename_from("City") {').replace("-> City", "-> Town")
    graph.schema.apply(renamed, branch=side)
    put(graph, node("City", "Ulm", size=5), edge("Lives", "m", "Bob", "Ulm"), branch=OTHER[side])
    put(graph, node("Town", "Rom", size=9), branch=side)
    graph.branches.merge("theirs")
    assert column(graph, "size", type_name="Town") == {"Rom": 9, "Ulm": 5}
    assert state(graph)["Lives"].keys() == {"l", "m"}


@SIDES
def test_merge_of_dropped_type_without_changed_rows_drops_it(graph: og.Graph, side: str) -> None:
    graph.schema.apply("node Person { name: String @key  age: I32?  mood: enum(good, bad)? }", branch=side)
    put(graph, node("Person", "Bob", age=2), branch=OTHER[side])
    graph.branches.merge("theirs")
    assert state(graph).keys() == {"Person"}
    assert column(graph, "age") == {"Ann": 1, "Bob": 2}


@SIDES
def test_merge_of_dropped_type_with_changed_rows_is_a_conflict(graph: og.Graph, side: str) -> None:
    graph.schema.apply("node Person { name: String @key  age: I32?  mood: enum(good, bad)? }", branch=side)
    put(graph, node("City", "Ulm"), branch=OTHER[side])
    found = only(refused(graph, "theirs"))
    assert kinds([found]) == [("schema_conflict", "City", None, None)]
    # Nothing but a choice of the side that dropped it may lose those rows.
    kept = "theirs" if side == "main" else "ours"
    assert refused(graph, "theirs", resolve=kept) == [found]


@SIDES
def test_resolve_dropped_type_with_the_dropping_side_drops_it(graph: og.Graph, side: str) -> None:
    graph.schema.apply("node Person { name: String @key  age: I32?  mood: enum(good, bad)? }", branch=side)
    put(graph, node("City", "Ulm"), branch=OTHER[side])
    graph.branches.merge("theirs", resolve="ours" if side == "main" else "theirs")
    assert state(graph).keys() == {"Person"}


# --- interfaces ---------------------------------------------------------------------------------------------

NAMED = "interface Named { name: String }\nnode Tool implements Named { name: String @key }\n"


@SIDES
@pytest.mark.parametrize("rows", [0, 2])
def test_merge_of_added_type_has_the_property_added_to_its_interface(side: str, rows: int) -> None:
    graph = make(NAMED, [node("Tool", "saw")])
    graph.branches.create("theirs")
    graph.schema.apply(NAMED.replace("name: String }", "name: String  note: String? }", 1), branch=side)
    graph.schema.apply(NAMED + "node Toy implements Named { name: String @key }", branch=OTHER[side])
    if rows:
        put(graph, *(node("Toy", f"t{number}") for number in range(rows)), branch=OTHER[side])
    graph.branches.merge("theirs")
    put(graph, node("Toy", "new", note="n"), node("Tool", "saw", note="s"))
    assert column(graph, "note", type_name="Toy") == {**{f"t{n}": None for n in range(rows)}, "new": "n"}
    assert column(graph, "note", type_name="Tool") == {"saw": "s"}


# --- reverting ----------------------------------------------------------------------------------------------


def test_revert_of_schema_change_and_of_its_revert(graph: og.Graph) -> None:
    before = state(graph)
    done = apply(graph, AGE, f"{AGE}  rank: I32", backfill={"Person.rank": 7})
    changed = state(graph)
    undone = graph.revert(done.id)
    assert undone.commit is not None
    assert state(graph) == before
    assert graph.schema.source() == BASE
    graph.revert(undone.commit.id)
    assert state(graph) == changed


def test_revert_of_schema_change_keeps_later_rows(graph: og.Graph) -> None:
    done = apply(graph, AGE, f"{AGE}  nick: String?")
    put(graph, node("Person", "Ann", age=5, mood="good", nick="A"), node("Person", "New"))
    graph.revert(done.id)
    assert column(graph, "age") == {"Ann": 5, "Bob": 1, "New": None}
    assert "nick" not in state(graph)["Person"]["Ann"]


def test_revert_of_dropped_type_restores_its_rows(graph: og.Graph) -> None:
    before = state(graph)
    done = graph.schema.apply("node Person { name: String @key  age: I32?  mood: enum(good, bad)? }").commit
    assert done is not None
    put(graph, node("Person", "Bob", age=2))
    graph.revert(done.id)
    assert state(graph)["City"] == before["City"]
    assert state(graph)["Lives"] == before["Lives"]
    assert column(graph, "age") == {"Ann": 1, "Bob": 2}

"""Assignment of identities, and which changes keep them."""

from __future__ import annotations

from omnigraph.catalog.catalog import Catalog, accept
from omnigraph.catalog.migration.evolve import evolve
from omnigraph.catalog.migration.planner import plan_migration
from omnigraph.lang.pg.schema_compiler import load_schema

TEXT = """
edge Knows: Person -> Person { since: Date? }
node Person implements Named { age: I32? }
node City { zip: String @key }
interface Named { name: String }
edge At: Person -> City
"""


def catalog_of(text: str) -> Catalog:
    return accept(load_schema(text), text)


def changed(catalog: Catalog, text: str, *, counter: int = 1) -> Catalog:
    desired = load_schema(text)
    return evolve(catalog, desired, text, plan_migration(catalog, desired), counter=counter)


def test_types_come_first_then_properties_then_tables() -> None:
    identities = catalog_of(TEXT).identities
    assert [(item.id, item.kind, item.name) for item in identities.types] == [
        (1, "interface", "Named"),
        (2, "node", "City"),
        (3, "node", "Person"),
        (4, "edge", "At"),
        (5, "edge", "Knows"),
    ]
    assert [(item.id, item.owner, item.name) for item in identities.properties] == [
        (6, 1, "name"),
        (7, 2, "zip"),
        (8, 3, "age"),
        (9, 3, "name"),
        (10, 5, "since"),
    ]
    assert [item.table for item in identities.types] == [None, 11, 12, 13, 14]
    assert identities.next_id == 15


def test_later_additions_continue_the_counter_in_the_same_order() -> None:
    after = changed(
        catalog_of("node B { x: I32 }"),
        "node A { z: I32 }  node B { w: I32?  x: I32 }  edge E: A -> B",
    ).identities
    assert [(item.id, item.name, item.table) for item in after.types] == [
        (1, "B", 3),
        (4, "A", 8),
        (5, "E", 9),
    ]
    # Ordered by owner id; B is older than A.
    assert [(item.id, item.name) for item in after.properties] == [(2, "x"), (6, "w"), (7, "z")]
    assert after.next_id == 10


def test_a_rename_keeps_type_property_table_and_column() -> None:
    before = catalog_of("node A { x: I32 }")
    after = changed(before, 'node B @rename_from("A") { y: I32 @rename_from("x") }')
    assert after.identities.of_type("node", "B").id == before.identities.of_type("node", "A").id
    assert after.table("node", "B").path == before.table("node", "A").path
    assert after.table("node", "B").physical("y") == before.table("node", "A").physical("x")
    assert after.next_id == before.next_id


def test_dropping_and_adding_again_gives_a_new_number_and_a_new_column() -> None:
    first = catalog_of("node A { x: I32?  y: I32 }")
    again = changed(changed(first, "node A { y: I32 }"), "node A { x: I32?  y: I32 }")
    assert again.hash == first.hash
    assert again.fingerprint != first.fingerprint
    assert (first.table("node", "A").physical("x"), again.table("node", "A").physical("x")) == ("x_2", "x_5")


def test_dropping_and_adding_a_type_again_gives_a_new_table() -> None:
    both = "node A { x: I32 }  node B { x: I32 }"
    first = catalog_of(both)
    again = changed(changed(first, "node A { x: I32 }"), both)
    assert first.table("node", "B").path == "nodes/2"
    assert again.table("node", "B").path == "nodes/7"
    assert again.table("node", "A") == first.table("node", "A")


def test_a_freed_name_and_a_renamed_property_never_share_a_column() -> None:
    first = catalog_of("node A { x: I32?  y: I32? }")
    moved = changed(first, 'node A { z: I32? @rename_from("x")  y: I32? }')
    back = changed(moved, 'node A { x: I32?  z: I32? @rename_from("x")  y: I32? }')
    columns = [column.physical for column in back.table("node", "A").columns]
    assert columns == ["id", "x_5", "y_3", "x_2"]


def test_a_higher_counter_of_another_branch_is_respected() -> None:
    after = changed(catalog_of("node A { x: I32 }"), "node A { x: I32  y: I32? }", counter=40)
    assert after.identities.of_property("node", "A", "y").id == 40
    assert after.next_id == 41

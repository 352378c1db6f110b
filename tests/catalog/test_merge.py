"""Schema merge: an example for each rule."""

from __future__ import annotations

import re

import pytest

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.schema_merge.merge import MergedCatalog, MergedTable, merge_catalogs
from omnigraph.errors import InvalidInput
from omnigraph.lang.pg.schema_compiler import load_schema
from tests.catalog.merge_cases import CASES, PEACEFUL, Case, Three, grown, three
from tests.catalog.test_identity import catalog_of

every_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def table_of(merged: MergedCatalog, key: str) -> MergedTable:
    (found,) = (item for item in merged.tables if item.table.key == key)
    return found


def physical(table: MergedTable, name: str) -> list[str | None]:
    (found,) = (item for item in table.columns if item.column.name == name)
    sides = (found.column, found.base, found.ours, found.theirs)
    return [None if side is None else side.physical for side in sides]


@every_case
def test_merge_of_change_on_one_side_takes_it(case: Case) -> None:
    base, *sides, _ = case
    for text in sides:
        for found in (three(base, text, base), three(base, base, text)):
            changed = found.ours if found.theirs is found.base else found.theirs
            merged = found.merge()
            assert merged.conflicts == ()
            assert merged.catalog is changed


@every_case
def test_merge_of_equal_changes_takes_them_once_with_our_ids(case: Case) -> None:
    base, *sides, _ = case
    for text in sides:
        found = three(base, text, text)
        merged = found.merge()
        assert merged.conflicts == ()
        assert merged.catalog.hash == found.ours.hash
        assert merged.catalog.identities.types == found.ours.identities.types
        assert merged.catalog.identities.properties == found.ours.identities.properties
        assert merged.catalog.source == text
        assert all(None not in (item.ours, item.theirs) for item in merged.tables)


@every_case
def test_merge_of_different_changes_is_a_conflict_with_our_state(case: Case) -> None:
    base, ours, theirs, expected = case
    found = three(base, ours, theirs)
    merged = found.merge()
    assert [(item.entity, item.aspect) for item in merged.conflicts] == expected
    assert merged.catalog.hash == found.ours.hash
    assert merged.catalog.next_id == max(found.ours.next_id, found.theirs.next_id)


@every_case
def test_merge_with_a_chosen_side_has_no_conflicts(case: Case) -> None:
    base, ours, theirs, _ = case
    found = three(base, ours, theirs)
    for chosen, merged in ((found.ours, found.merge_all("ours")), (found.theirs, found.merge_all("theirs"))):
        assert merged.conflicts == ()
        assert merged.catalog.hash == chosen.hash


@every_case
def test_merge_with_sides_swapped_mirrors_the_conflicts(case: Case) -> None:
    base, ours, theirs, _ = case
    found = three(base, ours, theirs)
    swapped = Three(found.base, found.theirs, found.ours).merge().conflicts
    assert {
        (item.entity, item.aspect, item.base, item.ours, item.theirs) for item in found.merge().conflicts
    } == {(item.entity, item.aspect, item.base, item.theirs, item.ours) for item in swapped}


def test_conflict_has_three_states_and_a_stable_id() -> None:
    found = three("node A { x: I32 }", "node A { x: I64 }", "node A { x: F64? }")
    (conflict,) = found.merge().conflicts
    assert (conflict.base, conflict.ours, conflict.theirs) == ("I32", "I64", "F64?")
    assert conflict.message == "both sides changed the type of node:A.x differently"
    assert re.fullmatch(r"schema:[0-9a-f]{12}", conflict.id)
    more = "  node B { y: I32 }"
    again = three(*(side.source + more for side in (found.base, found.ours, found.theirs)))
    assert [item.id for item in again.merge().conflicts] == [conflict.id]


def test_merge_resolves_each_conflict_separately() -> None:
    found = three("node A { x: I32  y: I32 }", "node A { x: I64  y: I64 }", "node A { x: F64  y: F64 }")
    first, second = found.merge().conflicts
    merged = merge_catalogs(
        found.base, found.ours, found.theirs, choose={first.id: "theirs", "row:1": "theirs"}
    )
    assert merged.conflicts == (second,)
    assert merged.catalog.schema == load_schema("node A { x: F64  y: I64 }")


def test_merge_with_unknown_side_is_refused() -> None:
    found = three("node A { x: I32 }", "node A { x: I64 }", "node A { x: F64 }")
    with pytest.raises(InvalidInput, match="expected 'ours' or 'theirs', got 'base'"):
        merge_catalogs(found.base, found.ours, found.theirs, choose={"schema:1": "base"})  # type: ignore[dict-item]


@pytest.mark.parametrize("texts", PEACEFUL.values(), ids=PEACEFUL.keys())
def test_merge_of_independent_changes_takes_all(texts: tuple[str, str, str, str]) -> None:
    found = three(*texts[:3])
    expected = catalog_of(texts[3])
    for sides in (found, Three(found.base, found.theirs, found.ours)):
        merged = sides.merge()
        assert merged.conflicts == ()
        assert merged.catalog.hash == expected.hash
        assert load_schema(merged.catalog.source) == merged.catalog.schema
        assert Catalog.from_json(merged.catalog.to_json()) == merged.catalog


def test_merge_of_rename_and_addition_keeps_every_column() -> None:
    found = three(
        "node A { x: I32 }",
        'node B @rename_from("A") { y: I32 @rename_from("x") }',
        "node A { x: I32  z: I32? }",
    )
    table = table_of(found.merge(), "node:B")
    assert [side and side.key for side in (table.base, table.ours, table.theirs)] == [
        "node:A", "node:B", "node:A",
    ]  # fmt: skip
    assert table.table.path == found.base.table("node", "A").path
    assert physical(table, "id") == ["id", "id", "id", "id"]
    assert physical(table, "y") == ["x_2", "x_2", "x_2", "x_2"]
    new = found.theirs.table("node", "A").physical("z")
    assert physical(table, "z") == [new, None, None, new]


def test_merge_of_property_added_on_both_sides_maps_two_columns() -> None:
    text = "node A { x: I32  y: I32? }  node N { p: I32 }"
    found = three("node A { x: I32 }", text, text)
    merged = found.merge()
    ours, theirs = (side.table("node", "A").physical("y") for side in (found.ours, found.theirs))
    assert ours != theirs
    assert physical(table_of(merged, "node:A"), "y") == [ours, None, ours, theirs]
    table = table_of(merged, "node:N")
    assert table.table == found.ours.table("node", "N")
    assert (table.base, table.theirs) == (None, found.theirs.table("node", "N"))


def test_second_merge_matches_elements_by_name() -> None:
    text = "node A { x: I32  y: I32? }  node N { p: I32 }"
    found = three("node A { x: I32 }", text, text)
    target = found.merge().catalog
    source = grown(
        found.theirs,
        'node A { x: I32  z: I32? @rename_from("y") }  node N { p: I32  q: I32? }',
        counter=target.next_id,
    )
    # The merged source is the base of the next merge and has its own numbers for y and N.
    again = merge_catalogs(found.theirs, target, source)
    assert again.conflicts == ()
    assert again.catalog.hash == source.hash
    assert again.catalog.identities.of_type("node", "N") == target.identities.of_type("node", "N")
    mine = target.table("node", "A").physical("y")
    other = source.table("node", "A").physical("z")
    assert physical(table_of(again, "node:A"), "z") == [mine, other, mine, other]
    back = merge_catalogs(source, source, again.catalog)
    assert back.catalog is again.catalog


def test_merge_of_type_dropped_and_added_again_matches_by_name() -> None:
    first = catalog_of("node A { x: I32 }  node B { y: I32 }")
    dropped = grown(first, "node A { x: I32 }")
    again = grown(dropped, "node A { x: I32 }  node B { y: I32  z: I32? }")
    other = grown(first, "node A { x: I32 }  node B { y: I32  w: I32? }", counter=again.next_id)
    for sides in (Three(first, again, other), Three(first, other, again)):
        merged = sides.merge()
        assert merged.conflicts == ()
        assert merged.catalog.table("node", "B").path == again.table("node", "B").path
        assert set(merged.catalog.schema.nodes[1].by_name) == {"w", "y", "z"}


def test_merge_lists_dropped_types_with_the_tables_of_both_sides() -> None:
    found = three(
        "node A { x: I32 }  node B { x: I32 }  edge E: A -> B",
        "node A { x: I32 }",
        "node A { x: I32 }  node B { x: I32 }  edge E: A -> B",
    )
    merged = found.merge()
    assert [(item.base.key, item.ours, item.theirs and item.theirs.key) for item in merged.dropped] == [
        ("node:B", None, "node:B"),
        ("edge:E", None, "edge:E"),
    ]
    assert [item.table.key for item in merged.tables] == ["node:A"]


def test_merge_does_not_list_kept_types_as_dropped() -> None:
    found = three(
        "node A { x: I32 }  node B { x: I32 }",
        "node A { x: I32 }",
        "node A { x: I32 }  node B { x: I32  y: I32? }",
    )
    assert [item.base.key for item in found.merge().dropped] == ["node:B"]
    kept = found.merge_all("theirs")
    assert kept.dropped == ()
    table = table_of(kept, "node:B")
    assert (table.ours, table.theirs) == (None, found.theirs.table("node", "B"))


def test_merge_that_creates_a_property_reserves_a_new_id() -> None:
    found = three(
        "interface F { f: I32? }  node A implements F { }",
        "interface F { f: I32?  g: I32? }  node A implements F { }",
        "interface F { f: I32? }  node A implements F { }  node B implements F { }",
    )
    highest = max(found.ours.next_id, found.theirs.next_id)
    assert found.merge().catalog.table("node", "B").physical("g") == f"g_{highest}"
    assert found.merge().catalog.next_id == highest + 1
    merged = merge_catalogs(found.base, found.ours, found.theirs, counter=100)
    assert merged.catalog.table("node", "B").physical("g") == "g_100"
    assert physical(table_of(merged, "node:B"), "g") == ["g_100", None, None, None]


def test_merge_without_new_elements_keeps_the_id_counter() -> None:
    found = three("node A { x: I32 }", "node A { x: I32  y: I32? }", "node A { x: I32  z: I32? }")
    merged = merge_catalogs(found.base, found.ours, found.theirs, counter=100)
    assert merged.catalog.next_id == max(found.ours.next_id, found.theirs.next_id)


def test_merge_of_renamed_inherited_property_keeps_its_column() -> None:
    found = three(
        "interface F { f: String }  node A implements F { }",
        'interface F { g: String @rename_from("f") }  node A implements F { }',
        'interface F { h: String @rename_from("f") }  node A implements F { }',
    )
    assert [(item.entity, item.aspect) for item in found.merge().conflicts] == [("interface:F.f", "name")]
    column = found.base.table("node", "A").physical("f")
    assert found.merge_all("ours").catalog.table("node", "A").physical("g") == column
    assert found.merge_all("theirs").catalog.table("node", "A").physical("h") == column


def test_merge_that_does_not_compile_is_a_schema_conflict() -> None:
    # Each side makes another property the key.
    found = three(
        "node A { x: I32  y: I32 }", "node A { x: I32 @key  y: I32 }", "node A { x: I32  y: I32 @key }"
    )
    merged = found.merge()
    (conflict,) = merged.conflicts
    assert (conflict.entity, conflict.aspect) == ("schema", "schema")
    assert "multiple @key constraints" in conflict.message
    assert merged.catalog is found.ours
    assert found.merge_all("theirs").catalog is found.theirs
    assert table_of(merged, "node:A").theirs == found.theirs.table("node", "A")


def test_merge_keeps_the_text_of_a_side_that_equals_the_result() -> None:
    commented = "// people\nnode A { x: I32 }"
    found = three(commented, commented, "node A { x: I32  y: I32? }")
    assert merge_catalogs(found.base, found.theirs, found.ours).catalog.source == found.theirs.source
    both = "// mine\nnode A { x: I32  y: I32? }"
    alike = three(commented, both, "node A { y: I32?  x: I32 }").merge()
    assert alike.catalog.source == both


def test_merge_of_interface_order_changed_on_one_side_takes_it() -> None:
    faces = 'interface F { p: I32 @description("f") }  interface G { p: I32 @description("g") }  '
    found = three(faces + "node A implements F, G { }", *[faces + "node A implements G, F { }"] * 2)
    assert merge_catalogs(found.base, found.base, found.theirs).catalog is found.theirs
    assert merge_catalogs(found.base, found.ours, found.base).catalog is found.ours

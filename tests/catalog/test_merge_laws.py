"""Properties of schema merges over random schemas and random changes on two branches."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.catalog import Catalog, accept
from omnigraph.catalog.schema_merge.merge import MergedCatalog, merge_catalogs
from omnigraph.catalog.schema_merge.three_way import Side
from omnigraph.catalog.schema_text import schema_text
from omnigraph.catalog.shape import schema_hash
from omnigraph.lang.pg.schema_compiler import load_schema
from tests.catalog.compiled import compiled_schemas, successors
from tests.catalog.merge_cases import Three

LAW = settings(max_examples=12, deadline=None)


@st.composite
def branches(draw: st.DrawFn) -> Three:
    """Draw a schema and its versions on two branches, each after up to two changes."""
    schema = draw(compiled_schemas)
    base = accept(schema, schema_text(schema))
    ours, theirs = base, base
    for _ in range(2):
        ours = draw(successors(ours, counter=theirs.next_id))
        theirs = draw(successors(theirs, counter=ours.next_id))
    return Three(base, ours, theirs)


def check_is_sound(merged: MergedCatalog, three: Three) -> None:
    catalog = merged.catalog
    assert schema_hash(load_schema(catalog.source)) == catalog.hash
    assert Catalog.from_json(catalog.to_json()) == catalog
    numbers = [item.id for item in catalog.identities.types]
    numbers += [item.id for item in catalog.identities.properties]
    assert len(set(numbers)) == len(numbers)
    assert catalog.next_id > max(numbers, default=0)
    assert [item.table for item in merged.tables] == list(catalog.tables.values())
    for item in merged.tables:
        assert tuple(column.column for column in item.columns) == item.table.columns
        sides = ((item.base, three.base), (item.ours, three.ours), (item.theirs, three.theirs))
        for place, (table, side) in enumerate(sides):
            held = [(column.base, column.ours, column.theirs)[place] for column in item.columns]
            found = [column for column in held if column is not None]
            assert len({column.physical for column in found}) == len(found)
            if table is None:
                assert found == []
            else:
                assert table == side.tables[table.key]
                assert set(found) <= set(table.columns)


@LAW
@given(branches())
def test_merging_with_an_unchanged_side_gives_the_other_side(three: Three) -> None:
    for changed in (three.ours, three.theirs):
        for one, two in ((three.base, changed), (changed, three.base)):
            merged = merge_catalogs(three.base, one, two)
            assert merged.conflicts == ()
            assert merged.catalog == changed


@LAW
@given(branches())
def test_merging_a_side_with_itself_gives_that_side(three: Three) -> None:
    merged = merge_catalogs(three.base, three.ours, three.ours)
    assert merged.conflicts == ()
    assert merged.catalog == three.ours


@LAW
@given(branches())
def test_the_sides_may_be_swapped(three: Three) -> None:
    one = three.merge()
    two = Three(three.base, three.theirs, three.ours).merge()
    # A name collision may depend on an unresolved conflict, which resolves to ours.
    first_order = {"type", "annotations", "constraints", "endpoints", "existence"}
    assert {
        (item.entity, item.aspect, item.base, item.ours, item.theirs)
        for item in one.conflicts
        if item.aspect in first_order
    } == {
        (item.entity, item.aspect, item.base, item.theirs, item.ours)
        for item in two.conflicts
        if item.aspect in first_order
    }
    assert bool(one.conflicts) == bool(two.conflicts)
    if not one.conflicts:
        assert one.catalog.hash == two.catalog.hash


@LAW
@given(branches(), st.data())
def test_any_decisions_lead_to_a_sound_catalog(three: Three, data: st.DataObject) -> None:
    choose: dict[str, Side] = {}
    merged = three.merge()
    check_is_sound(merged, three)
    # A resolution may cause another conflict, but the number of rounds is bounded.
    for _ in range(10):
        for item in merged.conflicts:
            choose[item.id] = data.draw(st.sampled_from(["ours", "theirs"]), label=item.message)
        merged = merge_catalogs(three.base, three.ours, three.theirs, choose=choose)
        check_is_sound(merged, three)
    assert merged.conflicts == ()


@LAW
@given(branches(), st.data())
def test_after_a_merge_a_branch_that_went_on_merges_again(three: Three, data: st.DataObject) -> None:
    target = three.merge_all("theirs").catalog
    source = data.draw(successors(three.theirs, counter=target.next_id))
    again = merge_catalogs(three.theirs, target, source)
    check_is_sound(again, Three(three.theirs, target, source))
    if target.hash == three.theirs.hash:
        assert again.conflicts == ()
        assert again.catalog.hash == source.hash

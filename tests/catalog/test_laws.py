"""Properties of the catalog over random schemas: hashes, plans, identities and the stored form."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.catalog import Catalog, accept
from omnigraph.catalog.migration.evolve import evolve
from omnigraph.catalog.migration.planner import plan_migration
from omnigraph.catalog.shape import schema_hash
from omnigraph.lang.schema import Schema
from tests.catalog.edits import edited
from tests.catalog.strategies import schemas, shuffled

# Most of the time is spent on drawing schemas, so that a deadline would not measure the code.
LAW = settings(max_examples=25, deadline=None)


def numbers(catalog: Catalog) -> list[int]:
    found = [item.id for item in catalog.identities.types]
    found += [item.table for item in catalog.identities.types if item.table is not None]
    return found + [item.id for item in catalog.identities.properties]


@LAW
@given(schemas())
def test_a_schema_planned_against_itself_has_no_steps(schema: Schema) -> None:
    assert plan_migration(accept(schema, ""), schema).steps == ()


@LAW
@given(schemas(), st.integers())
def test_order_and_hints_change_neither_the_hash_nor_the_plan(schema: Schema, seed: int) -> None:
    other = shuffled(schema, seed)
    assert schema_hash(other) == schema_hash(schema)
    assert plan_migration(accept(schema, ""), other).steps == ()


@LAW
@given(schemas(), schemas())
def test_a_plan_is_empty_exactly_when_the_hashes_agree(old: Schema, new: Schema) -> None:
    assert (plan_migration(accept(old, ""), new).steps == ()) == (schema_hash(old) == schema_hash(new))


@LAW
@given(schemas(), schemas())
def test_a_plan_says_json_that_reads_back(old: Schema, new: Schema) -> None:
    found = plan_migration(accept(old, ""), new)
    assert json.loads(json.dumps(found.to_json())) == found.to_json()
    assert found.supported == all(step["kind"] != "unsupported_change" for step in found.to_json()["steps"])


@LAW
@given(schemas(), schemas())
def test_allowing_data_loss_changes_the_mode_of_drops_and_nothing_else(old: Schema, new: Schema) -> None:
    soft = plan_migration(accept(old, ""), new).to_json()
    hard = plan_migration(accept(old, ""), new, allow_data_loss=True).to_json()
    for step in soft["steps"]:
        if "mode" in step:
            assert step["mode"] == "soft"
            step["mode"] = "hard"
    assert hard == soft


@LAW
@given(schemas())
def test_the_first_identities_count_from_one_without_gaps(schema: Schema) -> None:
    catalog = accept(schema, "")
    assert sorted(numbers(catalog)) == list(range(1, catalog.next_id))


@LAW
@given(schemas(), st.text())
def test_a_catalog_survives_its_stored_form(schema: Schema, source: str) -> None:
    catalog = accept(schema, source)
    stored = json.dumps(catalog.to_json())
    again = Catalog.from_json(json.loads(stored))
    assert again == catalog
    assert json.dumps(again.to_json()) == stored
    assert (again.hash, again.fingerprint) == (catalog.hash, catalog.fingerprint)


@LAW
@given(st.data())
def test_over_any_history_numbers_and_columns_are_used_once(data: st.DataObject) -> None:
    catalog = accept(data.draw(schemas(), label="first"), "v0")
    meaning: dict[int, tuple[object, ...]] = {}
    columns: dict[str, int] = {}
    for step in range(data.draw(st.integers(1, 4))):
        desired = data.draw(edited(catalog.schema), label=f"v{step + 1}")
        found = plan_migration(catalog, desired)
        assert found.supported, found.refusal
        after = evolve(catalog, desired, f"v{step + 1}", found)

        # The catalog has the desired schema, and so has its stored form.
        assert plan_migration(after, desired).steps == ()
        assert Catalog.from_json(json.loads(json.dumps(after.to_json()))) == after
        assert after.next_id >= catalog.next_id

        # A number is unique and was never assigned to another element.
        taken = numbers(after)
        assert len(taken) == len(set(taken))
        assert all(number < catalog.next_id or number not in meaning for number in taken)
        for kind in after.identities.types:
            assert meaning.setdefault(kind.id, ("type", kind.kind, kind.table)) == (
                "type",
                kind.kind,
                kind.table,
            )
        for prop in after.identities.properties:
            told = ("property", prop.owner, prop.column)
            assert meaning.setdefault(prop.id, told) == told
            if prop.column is not None:
                assert columns.setdefault(prop.column.lower(), prop.id) == prop.id
        catalog = after

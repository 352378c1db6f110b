"""Migration plans as a whole; the golden corpus covers the single steps."""

from __future__ import annotations

import pytest

from omnigraph.catalog.migration.planner import plan_migration
from omnigraph.catalog.migration.step_text import render_plan
from omnigraph.catalog.migration.steps import MigrationPlan
from omnigraph.errors import InvalidInput
from omnigraph.lang.pg.schema_compiler import load_schema
from tests.catalog.test_identity import catalog_of


def plan_between(old: str, new: str) -> MigrationPlan:
    return plan_migration(catalog_of(old), load_schema(new))


def test_a_plan_without_refusal_is_supported() -> None:
    found = plan_between("node A { x: I32 }", "node A { x: I32  y: I32? }")
    assert found.supported
    assert found.refusal is None


def test_the_refusal_is_that_of_the_first_unsupported_step_with_its_code() -> None:
    found = plan_between("node A { x: I32  y: I32 }", "node A { w: I32?  x: I64  y: I32 @unique }")
    assert not found.supported
    assert (
        found.refusal
        == "[OG-MF-106] changing property type for 'A.x' is not supported in schema migration v1"
    )


def test_a_refusal_without_code_is_its_reason() -> None:
    found = plan_between("node A { x: I32 }", "node A { x: I32 @unique }")
    assert found.refusal == (
        "adding a property-level @unique constraint to 'A.x' is not supported in schema migration v1"
    )


def test_an_empty_plan_says_so() -> None:
    assert render_plan(MigrationPlan()) == "no schema changes"
    assert MigrationPlan().to_json() == {"supported": True, "steps": []}


def test_a_misspelt_old_name_gets_a_suggestion() -> None:
    with pytest.raises(InvalidInput) as caught:
        plan_between("node Person { x: I32 }", 'node Human @rename_from("Persn") { x: I32 }')
    assert caught.value.hint == "did you mean `Person`?"
    with pytest.raises(InvalidInput) as caught:
        plan_between("node A { name: String }", 'node A { title: String @rename_from("nam") }')
    assert caught.value.hint == "did you mean `name`?"


def test_all_wrong_hints_are_reported_at_once() -> None:
    with pytest.raises(InvalidInput, match=r"\(and 1 more\)$") as caught:
        plan_between("node A { x: I32 }", 'node A { y: I32 @rename_from("p")  z: I32 @rename_from("q") }')
    assert len(caught.value.details["errors"]) == 2


def test_names_that_trade_places_are_left_alone() -> None:
    # Both new names exist in the accepted schema, so that both hints have no effect.
    old = "node A { x: I32 }  node B { x: I32 }"
    new = 'node A @rename_from("B") { x: I32 }  node B @rename_from("A") { x: I32 }'
    assert plan_between(old, new).steps == ()


def test_an_edge_may_only_change_the_case_of_its_name_by_a_hint() -> None:
    old = "node A { x: I32 }  edge Knows: A -> A"
    renamed = plan_between(old, 'node A { x: I32 }  edge KNOWS: A -> A @rename_from("Knows")')
    assert [step.to_json()["kind"] for step in renamed.steps] == ["rename_type"]

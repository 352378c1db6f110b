"""The Schema page in a browser: the picture, the details of a type, and the preview of a migration."""

from __future__ import annotations

from tests.studio.browser import Studio


def test_schema_shows_types_with_counts_and_constraints(studio: Studio) -> None:
    studio.open("schema")
    assert "49" in studio.find(".type-card[data-type=Person]").text
    studio.run("document.querySelector('[data-type=Person]').focus()")
    studio.press(" ")
    details = studio.find(".type-details", "Person").text
    assert "enum(designer, engineer, manager, researcher)" in details
    assert "handle matches ^[a-z]+$" in details
    studio.run("document.querySelector('[data-type=MemberOf]').focus()")
    studio.press(" ")
    studio.find(".type-details", "0 to 2 edges for each Person")
    assert "type=MemberOf" in studio.address


def test_migration_preview_lists_steps_and_changes_nothing(studio: Studio) -> None:
    studio.open("schema", view="plan")
    studio.write("node Person { handle: String @key }\nnode Room { code: String @key }")
    studio.click("#plan")
    steps = studio.find(".steps").text
    assert "add type" in steps
    assert "rejected" in steps
    studio.open("schema")
    studio.find(".type-card[data-type=Team]")


def test_migration_without_permission_offers_no_apply(reader: Studio) -> None:
    reader.open("schema", view="plan")
    reader.find(".plan-panel", "The policy does not let you apply it.")
    assert "Apply" not in reader.find(".plan-panel .row").text

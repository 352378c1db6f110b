"""What holds for every page: no serious accessibility findings, no overflow, keyboard, links, and the policy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.studio.browser import DESKTOP, PHONE, Studio
from tests.studio.screenshots import PICTURES

DOCS = Path(__file__).parents[2] / "docs"
# Each view with an element that shows that it has loaded.
VIEWS = {
    "query": ("query", {}, ".cm-content"),
    "explore": ("explore", {"type": "Team", "chosen": "Team/storage"}, ".edge-counts"),
    "explore-types": ("explore", {}, ".graph-canvas[data-settled]"),
    "schema": ("schema", {}, ".type-card"),
    "history": ("history", {}, ".entity-change"),
    "compare": ("history", {"view": "compare", "after": "raises"}, ".entity-change"),
    "entity": ("history", {"view": "entity", "type": "Person", "id": "adadahl"}, ".blame td"),
    "review-list": ("review", {}, ".branch-list a"),
    "review": ("review", {"branch": "raises"}, ".entity-change"),
    "conflicts": ("review", {"branch": "raises", "view": "conflicts"}, ".conflict"),
    "operate": ("operate", {}, ".types-table a"),
    "maintenance": ("operate", {"view": "maintenance"}, ".job .primary"),
    "metrics": ("operate", {"view": "metrics"}, ".tile"),
    "checks": ("review", {"branch": "raises", "view": "checks"}, ".checks .table"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_page_is_accessible_in_both_themes_and_fits_a_phone(studio: Studio, view: str) -> None:
    page, params, loaded = VIEWS[view]
    for size, first, second in ((DESKTOP, "light", "dark"), (PHONE, "dark", "light")):
        studio.resize(size)
        studio.use_theme(first)
        studio.open(page, **params)
        studio.find(loaded)
        assert studio.accessibility_violations() == [], (size, first)
        # The theme changes colours only.
        studio.use_theme(second)
        assert studio.accessibility_violations(only="color-contrast") == [], (size, second)
        assert studio.overflow() <= 0


def test_pictures_of_the_guide_are_those_of_the_script_and_small() -> None:
    guide = (DOCS / "guide" / "studio.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\(\.\./assets/studio-(\w+)\.webp\)", guide))
    assert shown == set(PICTURES)
    for name in shown:
        assert 5_000 < (DOCS / "assets" / f"studio-{name}.webp").stat().st_size < 150_000


def test_shortcuts_and_palette_reach_pages_and_branches(studio: Studio) -> None:
    studio.open("schema")
    studio.find(".type-card")
    studio.press("g")
    studio.press("q")
    studio.find(".cm-content")
    studio.run("document.activeElement.blur()")
    studio.press(Keys.CONTROL, "k")
    studio.find(".palette-input").send_keys("branch raises", Keys.ENTER)
    studio.find("#branch-picker", "raises")
    assert "branch=raises" in studio.address


def test_inline_script_is_blocked_by_the_security_policy(studio: Studio) -> None:
    studio.open("schema")
    studio.find(".type-card")
    studio.run(
        "const found = document.createElement('script'); found.textContent = 'window.ran = true';"
        "document.body.append(found);"
    )
    assert studio.run("return window.ran === undefined")
    # The same check that fails every other test on a violation.
    assert any("Content Security Policy" in text for text in studio.problems())

"""What holds for every page: no serious accessibility findings, no overflow, keyboard, links, and the policy."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys

from tests.studio.browser import PHONE, Studio

# Each page with an element that shows that it has loaded.
PAGES = {
    "query": ".cm-content",
    "schema": ".type-card",
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_page_has_no_serious_accessibility_findings(studio: Studio, page: str, theme: str) -> None:
    studio.use_theme(theme)
    studio.open(page)
    studio.find(PAGES[page])
    assert studio.accessibility_violations() == []


@pytest.mark.parametrize("page", PAGES)
def test_page_fits_a_phone(studio: Studio, page: str) -> None:
    studio.resize(PHONE)
    studio.open(page)
    studio.find(PAGES[page])
    assert studio.overflow() <= 0
    assert studio.accessibility_violations() == []


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

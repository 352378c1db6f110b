"""The page about servers does what it says: its Python runs against a real one."""

from __future__ import annotations

from pathlib import Path

from tests.api.test_guides import run_page
from tests.client.conftest import Served

ROOT = Path(__file__).parents[2]
PAGE = "docs/guide/server.md"


def test_the_python_of_the_page_does_what_its_comments_say(served: Served) -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    for shown, real in (
        ("http://127.0.0.1:8080", served.url),
        ('graph="team"', f'graph="{served.graph_id}"'),
    ):
        assert shown in text
        text = text.replace(shown, real)
    assert run_page(text, PAGE) >= 6

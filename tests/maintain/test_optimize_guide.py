"""The examples of the maintenance guide work as described."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.test_guides import run_page
from tests.cli.console import replay
from tests.support.workers import ROOT

PAGE = ROOT / "docs" / "guide" / "maintenance.md"


def test_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    assert run_page(text, PAGE.name) == 4
    shown, real = replay(text)
    assert len(shown) == 1
    assert real == shown

"""The example of the schema evolution guide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "schema-evolution.md"


def test_the_example_prints_what_its_comments_say(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(
        r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    exec(compile(code, GUIDE.name, "exec"), {})
    said = [line.partition("#")[2].strip() for line in code.splitlines() if "#" in line]
    assert capsys.readouterr().out.splitlines() == said

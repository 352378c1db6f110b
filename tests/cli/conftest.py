"""Each test works in an empty directory of its own, with a schema and a query file in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import PEOPLE, READ, write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "people.pg", PEOPLE)
    write(tmp_path / "read.gq", READ)
    return tmp_path

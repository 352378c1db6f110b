"""The guide on clusters shows what the commands print."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.cli.console import exchanges
from tests.cli.running import ROOT, run

GUIDE = ROOT / "docs" / "guide" / "cluster.md"
# Values that depend on the release that wrote the file or on the run.
VARYING = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\b[0-9a-f]{12}\b")


def test_every_command_of_the_guide_prints_what_the_guide_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples" / "cluster", tmp_path / "examples" / "cluster")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    shown = exchanges(GUIDE.read_text(encoding="utf-8"))
    assert len(shown) > 6
    for item in shown:
        if item.command.startswith("sed -i "):
            schema = tmp_path / "examples" / "cluster" / "knowledge.pg"
            schema.write_text(schema.read_text().replace("body: String?", "body: String?\n  year: I32?"))
            continue
        words = item.command.split()
        assert words.pop(0) == "omnigraph"
        outcome = run(*words)
        assert VARYING.sub("_", outcome.output) == VARYING.sub("_", item.output), item.command
        assert outcome.code == 0

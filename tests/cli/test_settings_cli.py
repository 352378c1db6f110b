"""`omnigraph settings`: text and JSON output, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.graphs import make_graph
from tests.cli.running import run


@pytest.fixture
def graph(folder: Path) -> Path:
    make_graph("g.omni")
    return folder


def test_settings_set_then_show_prints_the_new_retention(graph: Path) -> None:
    assert graph.is_dir()
    assert run("settings", "show", "g.omni").stdout == "retention: keep=1000,older_than=1m,thinned=30d\n"
    outcome = run("settings", "set", "g.omni", "--retention", "keep=1000,older_than=1h")
    assert (outcome.code, outcome.stderr) == (0, "omnigraph settings set → g.omni (direct, local)\n")
    assert outcome.stdout == "retention: keep=1000,older_than=1h,thinned=30d\n"
    shown = json.loads(run("settings", "show", "g.omni", "--json").stdout)
    assert shown == {"uri": "g.omni", "retention": {"keep": 1000, "older_than": "1h", "thinned": "30d"}}
    assert run("settings", "set", "g.omni", "--retention", "forever").stdout == "retention: forever\n"


def test_settings_set_with_an_invalid_value_names_the_forms(graph: Path) -> None:
    assert graph.is_dir()
    outcome = run("settings", "set", "g.omni", "--retention", "never")
    assert outcome.code == 1
    assert "'never' is not a duration" in outcome.stderr

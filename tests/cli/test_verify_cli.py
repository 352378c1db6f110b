"""`omnigraph verify`: exit codes, the report for people and as JSON, and graphs that cannot be opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.graphs import add_people, make_graph
from tests.cli.running import run
from tests.maintain.damage import flip_bit, truncate

pytestmark = pytest.mark.usefixtures("graph", "home")


@pytest.fixture
def graph(folder: Path) -> Path:
    make_graph("g.omni")
    add_people("g.omni", "Ann", "Bob")
    return folder / "g.omni"


def document(*args: str, code: int = 0) -> Any:
    outcome = run("verify", "g.omni", "--json", *args)
    assert outcome.code == code, outcome.stderr
    return json.loads(outcome.stdout)


def data_file(graph: Path) -> Path:
    (found,) = graph.glob("nodes/*/data/*")
    return found


def test_verify_undamaged_graph_exits_with_0() -> None:
    outcome = run("verify", "g.omni")
    assert outcome.code == 0
    assert outcome.stdout.startswith("verify g.omni — 1 commit, ")
    assert outcome.stdout.endswith("OK    no damage found\n")


def test_verify_damaged_file_exits_with_1_and_describes_it(graph: Path) -> None:
    file = data_file(graph)
    truncate(file)
    outcome = run("verify", "g.omni")
    assert outcome.code == 1
    lines = outcome.stdout.splitlines()
    assert f"ERROR {file.relative_to(graph)}: truncated" in lines
    assert "      type:     node:Person (all properties)" in lines
    assert "      branches: main" in lines
    assert "      affected: 2 rows" in lines
    assert any("omnigraph repair --reset-branch main" in line for line in lines)
    assert lines[-1] == "ERROR 1 damage found"


def test_verify_json_has_the_whole_report(graph: Path) -> None:
    truncate(data_file(graph))
    report = document("--quick", code=1)
    assert (report["uri"], report["ok"], report["quick"], report["all_commits"]) == (
        "g.omni",
        False,
        True,
        False,
    )
    (damage,) = report["damage"]
    assert (damage["kind"], damage["type_key"], damage["rows"]) == ("truncated", "node:Person", 2)
    (branch,) = report["branches"]
    assert not branch["intact"]
    assert branch["newest_intact"] not in (None, branch["head"])


def test_verify_graph_that_cannot_be_opened_is_reported(graph: Path) -> None:
    (registry,) = graph.glob("__manifest/data/registry-*")
    flip_bit(registry)
    truncate(registry)
    assert run("snapshot", "g.omni").code == 1
    report = document(code=1)
    assert [item["file"] for item in report["damage"]] == [str(registry.relative_to(graph))]
    assert [item["branch"] for item in report["branches"]] == ["main"]


def test_verify_options_choose_the_scope() -> None:
    assert document("--all-commits")["commits"] == 2
    assert document("--branch", "main")["commits"] == 1
    assert run("verify", "g.omni", "--branch", "other").code == 1


def test_verify_record_adds_missing_digests_once() -> None:
    missing = document()["not_recorded"]
    assert document("--record")["recorded"] == missing
    assert document("--record")["recorded"] == 0
    assert document()["not_recorded"] == 0

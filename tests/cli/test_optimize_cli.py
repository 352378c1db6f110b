"""`omnigraph optimize`: text and JSON output by type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.cli.graphs import add_people, make_graph
from tests.cli.running import run


@pytest.fixture
def graph(folder: Path) -> Path:
    make_graph("g.omni")
    for name in ("Ann", "Bob", "Cid"):
        add_people("g.omni", name)
    return folder


def document(*args: str) -> Any:
    return json.loads(run("optimize", "g.omni", "--json", *args).stdout)


@pytest.mark.usefixtures("graph")
def test_it_says_what_became_of_each_type_and_then_that_there_is_nothing_to_do() -> None:
    outcome = run("optimize", "g.omni")
    assert (outcome.code, outcome.stderr) == (0, "omnigraph optimize → g.omni (direct, local)\n")
    assert outcome.stdout == (
        "optimize g.omni — 2 datasets\nnode:Person: frags 3 → 1 ✓, indexes id, name ✓\nedge:Knows: no-op\n"
    )
    again = run("optimize", "g.omni")
    assert again.stdout == "optimize g.omni — 2 datasets\nnode:Person: no-op\nedge:Knows: no-op\n"
    assert len(run("commit", "list", "g.omni").stdout.splitlines()) == 5


@pytest.mark.usefixtures("graph")
def test_as_json_it_has_the_fields_of_the_contract() -> None:
    found = document()
    assert found["uri"] == "g.omni"
    version = found["datasets"][0]["published_dataset_version"]
    assert f"published_dataset_version={version} " in run("snapshot", "g.omni").stdout
    assert found["datasets"][0] == {
        "type_key": "node:Person",
        "fragments_removed": 3,
        "fragments_added": 1,
        "committed": True,
        "skipped": None,
        "published_dataset_version": version,
        "lance_head_version": version,
        "indexes": ["id", "name"],
        "pending_indexes": [],
        "error": None,
    }
    assert not any(item["committed"] for item in document()["datasets"])


@pytest.mark.usefixtures("graph")
def test_a_branch_and_a_message_can_be_named() -> None:
    run("branch", "create", "dev", "--uri", "g.omni")
    assert run("optimize", "g.omni", "--branch", "dev", "--message", "weekly").code == 0
    newest = og.open("g.omni").commits("dev")[0]
    assert (newest.branch, newest.operation, newest.message) == ("dev", "optimize", "weekly")
    assert og.open("g.omni").commits()[0].operation == "mutate"
    missing = run("optimize", "g.omni", "--branch", "other")
    assert (missing.code, "branch 'other' not found" in missing.stderr) == (1, True)


def test_a_type_that_fails_is_told_and_fails_the_command(graph: Path) -> None:
    [lost, *_] = (graph / "g.omni" / "nodes").rglob("*.lance")
    lost.unlink()
    outcome = run("optimize", "g.omni")
    assert outcome.code == 1
    assert "node:Person: skipped (Failed)" in outcome.stdout
    assert "error: node:Person: could not " in outcome.stderr


@pytest.mark.usefixtures("graph")
def test_it_is_no_command_of_a_server() -> None:
    assert run("optimize", "--server", "prod").code == 1

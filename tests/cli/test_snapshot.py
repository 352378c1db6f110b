"""`omnigraph snapshot`: the types of a state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.graph.format_version import CURRENT
from tests.cli.graphs import add_people, make_graph
from tests.cli.running import run


@pytest.fixture(autouse=True)
def genesis(folder: Path) -> str:
    assert folder.is_dir()
    return make_graph("g.omni")


def test_a_branch_is_shown_type_by_type() -> None:
    outcome = run("snapshot", "g.omni")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout == (
        "graph_branch: main\n"
        "graph_manifest_version: 1\n"
        f"internal_schema_version: {CURRENT}\n"
        "node type 'Person' published_dataset_version=1 native_dataset_branch=main entities=0\n"
        "edge type 'Knows' published_dataset_version=1 native_dataset_branch=main entities=0\n"
    )


def test_a_branch_counts_its_own_entities() -> None:
    run("branch", "create", "dev", "--uri", "g.omni")
    add_people("g.omni", "Ann", "Bob", branch="dev")
    own = run("snapshot", "g.omni", "--branch", "dev").stdout
    assert own.startswith("graph_branch: dev\ngraph_manifest_version: 2\n")
    assert "node type 'Person' " in own
    assert own.splitlines()[3].endswith(" native_dataset_branch=main entities=2")
    assert run("snapshot", "g.omni").stdout.splitlines()[3].endswith(" entities=0")


def test_snapshot_json_dataset_versions_are_small_integers() -> None:
    add_people("g.omni", "Ann")
    document = json.loads(run("snapshot", "g.omni", "--json").stdout)
    person, knows = document.pop("datasets")
    assert document == {
        "graph_branch": "main",
        "graph_manifest_version": 2,
        "internal_schema_version": CURRENT,
    }
    version, path = person.pop("published_dataset_version"), person.pop("dataset_path")
    assert version == 2
    assert path.startswith("nodes/")
    assert person == {
        "entity_kind": "node",
        "type_name": "Person",
        "native_dataset_branch": None,
        "entity_count": 1,
    }
    assert (knows["entity_kind"], knows["published_dataset_version"]) == ("edge", 1)


def test_an_earlier_state_is_named_by_its_commit(genesis: str) -> None:
    run("branch", "create", "dev", "--uri", "g.omni")
    first = add_people("g.omni", "Ann", branch="dev")
    add_people("g.omni", "Bob", branch="dev")
    shown = run("snapshot", "g.omni", "--at", first).stdout
    assert shown.startswith("graph_branch: dev\ngraph_manifest_version: 2\n")
    assert shown.splitlines()[3].endswith(" entities=1")
    assert run("snapshot", "g.omni", "--at", genesis).stdout == run("snapshot", "g.omni").stdout


def test_an_earlier_state_is_named_by_a_time() -> None:
    add_people("g.omni", "Ann")
    assert run("snapshot", "g.omni", "--at", "9999-01-01").stdout == run("snapshot", "g.omni").stdout
    outcome = run("snapshot", "g.omni", "--at", "1990-01-01T00:00Z")
    assert (outcome.code, outcome.stderr) == (1, "error: the graph did not exist yet at that time\n")


def test_a_commit_needs_no_branch(genesis: str) -> None:
    assert run("snapshot", "g.omni", "--at", genesis, "--branch", "main").code == 2


def test_an_unknown_commit_is_one_sentence() -> None:
    outcome = run("snapshot", "g.omni", "--at", "nothing")
    assert (outcome.code, outcome.stderr) == (1, "error: commit 'nothing' not found\n")

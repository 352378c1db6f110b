"""`omnigraph schema apply`, and `schema plan` against a graph."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.graphs import add_people, make_graph
from tests.cli.running import PEOPLE, run, write

pytestmark = pytest.mark.usefixtures("folder")

GROWN = (
    PEOPLE.replace("  age: I32?\n", "  age: I32?\n  email: String?\n") + "\nnode City { name: String @key }\n"
)
REQUIRED = PEOPLE.replace("  age: I32?\n", "  age: I32?\n  level: I32\n  label: String\n")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A graph with two people."""
    found = str(tmp_path / "graph.omni")
    make_graph(found)
    add_people(found, "Ann", "Bob")
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run, with the schemas that are wanted."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "grown.pg", GROWN)
    write(tmp_path / "required.pg", REQUIRED)
    write(tmp_path / "people.pg", PEOPLE)
    return tmp_path


def test_an_applied_schema_is_told_line_by_line(uri: str) -> None:
    outcome = run("schema", "apply", uri, "--schema", "grown.pg")
    assert outcome.code == 0
    assert outcome.stderr == f"omnigraph schema apply → {uri} (direct, local)\n"
    assert outcome.stdout == (
        f"schema apply for {uri}\n"
        "supported: yes\n"
        "applied: yes\n"
        "graph_manifest_version: 3\n"
        "- add node type 'City'\n"
        "- add property 'Person.email' (String?) on node 'Person'\n"
    )
    assert run("schema", "show", uri).stdout == GROWN


def test_the_json_has_exactly_these_fields(uri: str) -> None:
    outcome = run("schema", "apply", uri, "--schema", "grown.pg", "--json", "--quiet")
    assert (outcome.code, outcome.stderr) == (0, "")
    document = json.loads(outcome.stdout)
    assert list(document) == ["uri", "supported", "applied", "step_count", "graph_manifest_version", "steps"]
    assert document["steps"][0] == {"kind": "add_type", "type_kind": "node", "name": "City"}
    assert {key: document[key] for key in list(document)[:5]} == {
        "uri": uri,
        "supported": True,
        "applied": True,
        "step_count": 2,
        "graph_manifest_version": 3,
    }


def test_the_same_schema_changes_nothing(uri: str) -> None:
    outcome = run("schema", "apply", uri, "--schema", "people.pg")
    assert outcome.stdout == (
        f"schema apply for {uri}\nsupported: yes\napplied: no\ngraph_manifest_version: 2\nno schema changes\n"
    )
    assert outcome.code == 0


def test_a_refused_change_fails_with_its_code_and_changes_nothing(uri: str) -> None:
    outcome = run("schema", "apply", uri, "--schema", "required.pg", "--quiet")
    assert outcome.code == 1
    assert outcome.stdout.startswith(
        f"schema apply for {uri}\nsupported: no\napplied: no\ngraph_manifest_version: 2\n- unsupported change on"
    )
    assert outcome.stderr.startswith("error: [OG-MF-103] adding required property 'Person.label'")
    assert run("schema", "show", uri).stdout == PEOPLE

    outcome = run("schema", "apply", uri, "--schema", "required.pg", "--quiet", "--json")
    document = json.loads(outcome.stdout)
    assert (outcome.code, document["supported"], document["applied"]) == (1, False, False)
    assert document["step_count"] == len(document["steps"]) == 2


def test_backfills_are_values_or_expressions(uri: str) -> None:
    given = ["--backfill", "Person.level=7", "--backfill-expr", "Person.label=$this.name"]
    planned = run("schema", "plan", uri, "--schema", "required.pg", *given, "--json")
    assert list(json.loads(planned.stdout)) == ["uri", "supported", "step_count", "steps"]
    assert json.loads(planned.stdout)["supported"] is True
    assert run("schema", "apply", uri, "--schema", "required.pg", *given, "--message", "levels").code == 0
    with og.open(uri, "r") as graph:
        assert graph.get("Person", "Ann") == {
            "id": "Ann",
            "name": "Ann",
            "age": None,
            "label": "Ann",
            "level": 7,
        }
        assert graph.commits()[0].message == "levels"


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (["--backfill", "Person.level=seven"], 1, "the backfill of Person.level is not valid JSON"),
        (["--backfill", "level"], 2, "TYPE.PROPERTY"),
        (["--backfill", "A.b=1", "--backfill-expr", "A.b=1"], 2, "given twice"),
        (["--backfill", "Person.nope=1"], 1, "backfill 'Person.nope' is not a new property"),
    ],
)
def test_a_backfill_that_says_nothing_is_an_error(uri: str, given: list[str], code: int, said: str) -> None:
    outcome = run("schema", "apply", uri, "--schema", "required.pg", "--quiet", *given)
    assert (outcome.code, outcome.stdout) == (code, "")
    assert said in outcome.stderr


def test_a_branch_changes_alone_and_for_its_actor(uri: str) -> None:
    assert run("branch", "create", "dev", "--uri", uri).code == 0
    given = ["--schema", "grown.pg", "--branch", "dev"]
    assert run("schema", "apply", uri, *given, "--as", "ana").code == 0
    assert run("schema", "show", uri).stdout == PEOPLE
    planned = run("schema", "plan", uri, *given)
    assert planned.stdout == f"schema plan for {uri}\nsupported: yes\nno schema changes\n"
    assert "- add node type 'City'" in run("schema", "plan", "--store", uri, "--schema", "grown.pg").stdout
    with og.open(uri, "r") as graph:
        assert graph.commits("dev")[0].actor == "ana"


def test_a_missing_branch_is_an_error_with_a_suggestion(uri: str) -> None:
    run("branch", "create", "develop", "--uri", uri)
    outcome = run("schema", "apply", uri, "--schema", "grown.pg", "--branch", "devlop")
    assert outcome.code == 1
    assert "hint: did you mean `develop`?" in outcome.stderr


def test_allowed_data_loss_drops_for_good(uri: str, folder: Path) -> None:
    write(folder / "less.pg", "node Person { name: String @key }\n")
    outcome = run("schema", "apply", uri, "--schema", "less.pg", "--allow-data-loss")
    assert "- drop property 'Person.age' of node 'Person' (hard mode)\n" in outcome.stdout
    with og.open(uri, "r") as graph, pytest.raises(og.errors.NotFound, match="reclaimed"):
        graph.get("Person", "Ann", at=graph.commits()[1].id)


def test_a_graph_of_a_cluster_is_left_to_the_cluster(tmp_path: Path) -> None:
    place = tmp_path / "graphs" / "a.omni"
    make_graph(str(place))
    write(tmp_path / "__cluster" / "state.json", "{}")
    outcome = run("schema", "apply", str(place), "--schema", "grown.pg")
    assert outcome.code == 1
    assert "belongs to the cluster" in outcome.stderr


def test_a_wanted_schema_with_an_error_shows_where_it_is(uri: str, folder: Path) -> None:
    write(folder / "bad.pg", "node A { a: Strin }")
    outcome = run("schema", "apply", uri, "--schema", "bad.pg", "--quiet")
    assert outcome.code == 1
    assert "bad.pg:1:13" in outcome.stderr

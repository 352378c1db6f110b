"""`omnigraph get` and `schema show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.graphs import add_people, make_graph
from tests.cli.running import PEOPLE, run

STORE = ("--store", "g.omni")


@pytest.fixture(autouse=True)
def commit(folder: Path) -> str:
    assert folder.is_dir()
    make_graph("g.omni")
    return add_people("g.omni", "Ann")


def test_an_entity_is_shown_by_its_properties() -> None:
    outcome = run("get", "Person", "Ann", *STORE)
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "id: Ann\nage: null\nname: Ann\n", "")


def test_a_value_of_several_lines_is_told_from_several_values() -> None:
    add_people("g.omni", "Bob\nage: 7\x1b[2J")
    outcome = run("get", "Person", "Bob\nage: 7\x1b[2J", *STORE)
    assert outcome.stdout == "id: Bob\n  age: 7\\x1b[2J\nage: null\nname: Bob\n  age: 7\\x1b[2J\n"


def test_an_edge_has_its_ends() -> None:
    run("mutate", "-e", 'query k() { insert Knows { from: "Ann", to: "Ann" } }', *STORE)
    id_ = json.loads(run("export", "g.omni", "--type", "Knows").stdout)["data"]["id"]
    assert run("get", "Knows", id_, *STORE).stdout == f"id: {id_}\nfrom: Ann\nto: Ann\n"


def test_the_document_is_the_entity() -> None:
    outcome = run("get", "Person", "Ann", *STORE, "--json")
    assert json.loads(outcome.stdout) == {"id": "Ann", "age": None, "name": "Ann"}


def test_an_entity_is_there_where_it_was_added(commit: str) -> None:
    run("branch", "create", "more", "--uri", "g.omni")
    add_people("g.omni", "Bob", branch="more")
    assert run("get", "Person", "Bob", *STORE, "--branch", "more").code == 0
    on_main = run("get", "Person", "Bob", *STORE)
    assert (on_main.code, on_main.stdout) == (1, "")
    assert on_main.stderr == "error: no Person has the id 'Bob' on branch main\n"
    add_people("g.omni", "Bob")
    earlier = run("get", "Person", "Bob", *STORE, "--snapshot", commit, "--json")
    assert (earlier.code, earlier.stdout) == (1, "")
    assert json.loads(earlier.stderr)["error"] == f"no Person has the id 'Bob' on snapshot {commit}"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("Persn", "Ann"), 1, "error: unknown type 'Persn'; did you mean `Person`?\n"),
        (("Person", "Ann", "--branch", "mian"), 1, "error: branch 'mian' not found\n"),
        (("Person", "Ann", "--branch", "main", "--snapshot", "x"), 2, "Usage: omnigraph get"),
        (("Person",), 2, "Usage: omnigraph get"),
        (("Person", "Ann", "--as", "ann"), 1, "error: `get` records no actor; --as does not apply.\n"),
    ],
)
def test_what_cannot_be_looked_up_is_refused(arguments: tuple[str, ...], code: int, message: str) -> None:
    outcome = run("get", *arguments, *STORE)
    assert (outcome.code, outcome.stdout) == (code, "")
    assert outcome.stderr.lstrip().startswith(message)


@pytest.mark.parametrize("name", ["show", "get"])
def test_a_schema_is_shown_as_it_was_written(name: str) -> None:
    outcome = run("schema", name, "g.omni")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, PEOPLE, "")
    assert json.loads(run("schema", name, *STORE, "--json").stdout) == {"schema_source": PEOPLE}


def test_a_schema_needs_a_graph_to_be_shown_and_none_to_be_checked() -> None:
    assert run("schema", "show").stderr.startswith("error: no graph addressed")
    assert run("schema", "check", "people.pg", *STORE).code == 1

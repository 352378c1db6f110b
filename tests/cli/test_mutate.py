"""`omnigraph mutate`: output, errors, and the exit code of a failed precondition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.graphs import make_graph
from tests.cli.running import run, run_without

STORE = ("--store", "g.omni")
ADD = "query add($n: String) { insert Person { name: $n } }"


@pytest.fixture(autouse=True)
def genesis(folder: Path) -> str:
    assert folder.is_dir()
    return make_graph("g.omni")


def test_a_mutation_is_one_commit_and_says_what_it_changed() -> None:
    outcome = run("mutate", "-e", ADD, "--params", '{"n": "Ann"}', *STORE, "--as", "ana")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout == "changed main via add: 1 nodes, 0 edges\nactor_id: ana\n"
    assert "actor=ana" in run("commit", "list", "g.omni").stdout


def test_the_document_has_the_commit() -> None:
    found = json.loads(run("mutate", "-e", ADD, "--params", '{"n": "Ann"}', *STORE, "--json").stdout)
    assert (found["branch"], found["query_name"]) == ("main", "add")
    assert (found["affected_nodes"], found["affected_edges"]) == (1, 0)
    assert found["commit"]["graph_manifest_version"] == 2
    assert found["actor_id"] is None


def test_nothing_is_written_when_nobody_could_hear_of_it() -> None:
    found = run_without("stdout", "mutate", "-e", ADD, "--params", '{"n": "Ann"}', *STORE, "--json")
    assert found[0] == 1
    assert json.loads(found[1])["error"] == "cannot write the output: stdout is closed"
    assert run("export", "g.omni").stdout == ""


def test_what_matches_nothing_has_no_commit() -> None:
    outcome = run("mutate", "-e", 'query q() { delete Person where name = "Z" }', *STORE, "--json")
    assert json.loads(outcome.stdout)["commit"] is None


def test_a_query_is_chosen_by_name_from_a_file() -> None:
    Path("q.gq").write_text(f'{ADD}\nquery gone() {{ delete Person where name = "Ann" }}\n')
    Path("p.json").write_text('{"n": "Ann"}')
    assert run("mutate", "add", "--query", "q.gq", "--params-file", "p.json", *STORE).code == 0
    assert run("mutate", "gone", "--query", "q.gq", *STORE).stdout.startswith(
        "changed main via gone: 1 nodes"
    )
    several = run("mutate", "--query", "q.gq", *STORE)
    assert several.code == 1
    assert "choose one by name" in several.stderr


def test_a_lost_precondition_has_a_code_of_its_own(genesis: str) -> None:
    insert = ("mutate", "-e", ADD, "--params", '{"n": "Ann"}', *STORE, "--if-commit", genesis)
    assert run(*insert).code == 0
    lost = run(*insert)
    assert lost.code == 4
    assert "precondition failed on branch 'main'" in lost.stderr
    document = run(*insert, "--json")
    assert document.code == 4
    assert json.loads(document.stdout)["precondition_failure"]["expected"] == genesis


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-e", "query q() { match { $p: Person } return { $p } }"), "is a read"),
        (("-e", 'query q() { insert Persn { name: "x" } }'), "did you mean `Person`?"),
        (("-e", ADD, "--params", "{"), "not valid JSON"),
        (("-e", ADD), "parameter 'n' not provided"),
        (("stored",), "stored mutation 'stored' can only be run on a server"),
        ((), "no mutation given"),
    ],
)
def test_what_cannot_run_is_refused_with_a_reason(arguments: tuple[str, ...], message: str) -> None:
    outcome = run("mutate", *arguments, *STORE)
    assert outcome.code == 1
    assert message in outcome.stderr
    assert len(run("commit", "list", "g.omni").stdout.splitlines()) == 1

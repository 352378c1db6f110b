"""`omnigraph alias`: stored reads by their aliases in the settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import Outcome, run, write
from tests.server.running import TOKENS, Running, names

STORED_ALIASES = """\
  everybody: {{ server: lab, graph: team, query: everybody }}
  older: {{ server: lab, graph: team, query: older, args: [a, names], params: {{ a: 26 }}, format: csv }}
  hire: {{ server: lab, graph: team, query: hire, args: [n] }}
  nowhere: {{ server: lab, graph: other, query: everybody }}
  unheard: {{ server: lab, graph: team, query: unheard }}
  anywhere: {{ server: lab, query: everybody }}
  misled: {{ server: prod, graph: team, query: everybody }}
"""


@pytest.fixture(autouse=True)
def settings(home: Path, team: Running) -> None:
    write(
        home / "config.yaml",
        f"servers: {{lab: {{url: '{team.url}'}}}}\ndefaults: {{output: kv}}\naliases:\n"
        + STORED_ALIASES.format(),
    )
    write(home / "credentials", f"[lab]\ntoken = {TOKENS['ann']}\n").chmod(0o600)


def rows(*args: str) -> list[str]:
    outcome = run("alias", *args)
    assert (outcome.code, outcome.stderr) == (0, "")
    return outcome.stdout.splitlines()


def test_a_stored_read_runs_under_the_operators_name() -> None:
    assert rows("everybody", "--format", "csv") == ["name", "Ann", "Bob"]


def test_values_of_the_command_line_outrank_those_of_the_settings() -> None:
    assert rows("older") == ["name", "Ann"]
    assert rows("older", "20") == ["name", "Ann", "Bob"]
    assert rows("older", "20", '["Ann"]') == ["name", "Ann", "Bob"]
    assert rows("older", "20", "--params", '{"a": 40}') == ["name"]


def test_a_value_that_is_no_json_is_a_text() -> None:
    outcome = run("alias", "older", "many")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert "many" in outcome.stderr


def test_the_format_is_that_of_the_option_then_the_alias_then_the_settings() -> None:
    assert rows("everybody")[:2] == ["2 rows from branch main via everybody", "row 1"]
    assert rows("older")[0] == "name"
    assert rows("older", "--format", "table")[0] == "1 rows from branch main via older"
    found = json.loads("\n".join(rows("older", "--format", "table", "--json")))
    assert (found["query_name"], found["rows"]) == ("older", [{"name": "Ann"}])


def test_a_stored_mutation_is_refused_and_not_run(team: Running) -> None:
    outcome = run("alias", "hire", "Zoe")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr == "error: 'hire' is a mutation — use omnigraph mutate hire\n"
    with team.client("ann") as client:
        assert names(client) == ["Ann", "Bob"]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["evrybody"], "no alias named 'evrybody'; did you mean `everybody`?"),
        (["everybody", "1"], "alias 'everybody' takes no values, got 1"),
        (["older", "1", "2", "3"], "alias 'older' takes at most 2 values (a, names), got 3"),
        (["older", "--params", "[1]"], "parameters must be an object"),
        (["nowhere"], "graph 'other' not found"),
        (["unheard"], "stored query not found"),
        (["misled"], "no server named 'prod'"),
        (["anywhere"], "alias 'anywhere' is a server: choose one of its graphs"),
    ],
)
def test_what_cannot_be_meant_is_refused(args: list[str], problem: str) -> None:
    outcome: Outcome = run("alias", *args)
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(f"error: {problem}")

"""`omnigraph schema check` and `omnigraph schema plan`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.running import PEOPLE, run, write

pytestmark = pytest.mark.usefixtures("folder")

GROWN = """\
node Person {
  name: String @key
  years: I32? @rename_from("age")
  email: String?
}
"""

REFUSED = """\
node Person {
  name: String @key
  age: I64?
  email: String
}

edge Knows: Person -> Person
"""


def test_a_good_schema_is_summed_up_with_its_hash() -> None:
    outcome = run("schema", "check", "people.pg")
    assert (outcome.code, outcome.stderr) == (0, "")
    first, second = outcome.stdout.splitlines()
    assert first == "OK    schema people.pg: 1 node type, 1 edge type, 2 properties"
    assert re.fullmatch(r" {6}sha256:[0-9a-f]{64}", second)


def test_layout_comments_and_order_do_not_change_the_hash(folder: Path) -> None:
    write(folder / "same.pg", "edge Knows:Person->Person // a\nnode Person{age:I32? name:String @key}")
    one, other = json.loads(run("schema", "check", "people.pg", "same.pg", "--json").stdout)
    assert one["hash"] == other["hash"]


def test_the_json_summary_names_what_is_declared(folder: Path) -> None:
    write(folder / "with.pg", "interface Named { name: String }\n" + PEOPLE)
    document = json.loads(run("schema", "check", "with.pg", "--json").stdout)
    assert document.pop("hash").startswith("sha256:")
    assert document == {
        "status": "ok",
        "schema_path": "with.pg",
        "interfaces": ["Named"],
        "node_types": ["Person"],
        "edge_types": ["Knows"],
        "properties": 2,
        "errors": 0,
        "diagnostics": [],
    }


def test_every_error_of_a_schema_is_shown(folder: Path) -> None:
    write(folder / "bad.pg", "node A {\n  a: Strin\n}\n\nedge E: A -> Nowhere\n")
    outcome = run("schema", "check", "bad.pg", "people.pg")
    assert outcome.code == 1
    assert outcome.stdout.startswith(
        "ERROR schema bad.pg: 1 error\n"
        "      parse error: unknown type: Strin\n"
        "      bad.pg:2:6\n"
        "          a: Strin\n"
        "             ^^^^^\n"
        "      hint: did you mean `String`?\n"
        "OK    schema people.pg: "
    )


def test_errors_in_json_carry_their_places(folder: Path) -> None:
    write(folder / "bad.pg", "node A { a: Strin }")
    outcome = run("schema", "check", "bad.pg", "--json")
    assert outcome.code == 1
    document = json.loads(outcome.stdout)
    assert (document["status"], document["errors"]) == ("error", 1)
    (found,) = document["diagnostics"]
    assert (found["file"], found["line"], found["column"]) == ("bad.pg", 1, 13)


def test_a_schema_can_come_from_stdin() -> None:
    outcome = run("schema", "check", "-", stdin=PEOPLE)
    assert outcome.stdout.startswith("OK    schema <stdin>: 1 node type")


def test_a_plan_lists_its_steps(folder: Path) -> None:
    write(folder / "grown.pg", GROWN)
    outcome = run("schema", "plan", "--from", "people.pg", "--schema", "grown.pg")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout == (
        "schema plan for people.pg\n"
        "supported: yes\n"
        "- add property 'Person.email' (String?) on node 'Person'\n"
        "- rename property 'Person.age' -> 'Person.years' on node 'Person'\n"
        "- drop edge type 'Knows' (soft mode)\n"
    )


def test_allowed_data_loss_makes_drops_hard(folder: Path) -> None:
    write(folder / "grown.pg", GROWN)
    outcome = run("schema", "plan", "--from", "people.pg", "--schema", "grown.pg", "--allow-data-loss")
    assert "- drop edge type 'Knows' (hard mode)\n" in outcome.stdout


def test_a_refused_change_has_its_code_and_is_no_failure(folder: Path) -> None:
    write(folder / "refused.pg", REFUSED)
    outcome = run("schema", "plan", "--from", "people.pg", "--schema", "refused.pg")
    assert outcome.code == 0
    lines = outcome.stdout.splitlines()
    assert lines[1] == "supported: no"
    assert lines[2].startswith("- unsupported change on node:Person.age [OG-MF-106, destructive]: changing")
    assert lines[3] == (
        "- unsupported change on node:Person.email [OG-MF-103, validated]: adding required property 'Person.email' "
        "requires a backfill: pass --backfill Person.email=JSON"
    )


def test_the_same_schema_needs_no_change() -> None:
    outcome = run("schema", "plan", "--from", "people.pg", "--schema", "people.pg")
    assert outcome.stdout == "schema plan for people.pg\nsupported: yes\nno schema changes\n"


def test_a_plan_in_json_counts_its_steps(folder: Path) -> None:
    write(folder / "grown.pg", GROWN)
    outcome = run("schema", "plan", "--from", "people.pg", "--schema", "grown.pg", "--json")
    document = json.loads(outcome.stdout)
    assert set(document) == {"supported", "step_count", "steps"}
    assert document["supported"] is True
    assert document["step_count"] == len(document["steps"]) == 3
    assert document["steps"][2] == {"kind": "drop_type", "type_kind": "edge", "name": "Knows", "mode": "soft"}


def test_every_rename_that_refers_to_nothing_is_reported(folder: Path) -> None:
    text = 'node Person { name: String @key  a: I32? @rename_from("agee")  b: I32? @rename_from("zzz") }'
    write(folder / "lost.pg", text)
    outcome = run("schema", "plan", "--from", "people.pg", "--schema", "lost.pg")
    assert (outcome.code, outcome.stdout) == (1, "")
    first, hint, second = outcome.stderr.splitlines()
    assert first.startswith("error: @rename_from(\"agee\") on property 'Person.a': ")
    assert hint == "hint: did you mean `age`?"
    assert second.startswith("error: @rename_from(\"zzz\") on property 'Person.b': ")


def test_a_plan_starts_from_a_graph_or_a_file_not_both() -> None:
    outcome = run("schema", "plan", "graph.omni", "--from", "people.pg", "--schema", "people.pg")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert "--from excludes a graph URI" in outcome.stderr


def test_a_plan_from_nothing_says_how_to_name_a_graph() -> None:
    outcome = run("schema", "plan", "--schema", "people.pg")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert "no graph addressed" in outcome.stderr


def test_a_plan_without_the_wanted_schema_is_a_usage_error() -> None:
    assert run("schema", "plan", "--from", "people.pg").code == 2

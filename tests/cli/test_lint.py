"""`omnigraph lint`: text output, JSON output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.graphs import make_graph
from tests.cli.running import PEOPLE, READ, run, write

BROKEN = """\
query wrong() {
  match {
    $p: Person
  }
  return { $p.naem, $p.aeg }
}
"""

pytestmark = pytest.mark.usefixtures("folder")


def test_lint_of_valid_file_prints_ok_for_each_query() -> None:
    outcome = run("lint", "--schema", "people.pg", "--query", "read.gq")
    assert outcome.code == 0
    assert outcome.stderr == ""
    assert outcome.stdout == (
        "OK    query `everybody` (read)\n"
        "INFO  Lint complete: 1 queries processed (0 error(s), 0 warning(s), 0 info item(s))\n"
    )


def test_lint_error_shows_line_and_marker(folder: Path) -> None:
    write(folder / "wrong.gq", BROKEN)
    outcome = run("lint", "--schema", "people.pg", "--query", "wrong.gq")
    assert outcome.code == 1
    message = "type error: T6: node type `Person` has no property `naem`; did you mean `name`?"
    assert outcome.stdout.splitlines()[:4] == [
        f"ERROR query `wrong`: {message}",
        "      wrong.gq:5:15",
        "          return { $p.naem, $p.aeg }",
        "                      ^^^^",
    ]


def test_lint_shows_every_error_and_counts_the_query_once(folder: Path) -> None:
    write(folder / "wrong.gq", BROKEN)
    outcome = run("lint", "--schema", "people.pg", "--query", "wrong.gq")
    assert outcome.stdout.count("ERROR query `wrong`") == 1
    assert "      also: type error: T6: node type `Person` has no property `aeg`" in outcome.stdout
    assert outcome.stdout.endswith("1 queries processed (1 error(s), 0 warning(s), 0 info item(s))\n")


def test_lint_of_unparsable_file_shows_the_error_code(folder: Path) -> None:
    write(folder / "torn.gq", "query torn( {")
    outcome = run("lint", "--schema", "people.pg", "--query", "torn.gq")
    assert outcome.code == 1
    assert outcome.stdout.startswith("ERROR Q000: parse error: ")
    assert "      torn.gq:1:13\n        query torn( {\n                    ^\n" in outcome.stdout


def test_lint_warnings_do_not_fail(folder: Path) -> None:
    write(folder / "fixed.gq", 'query add() { insert Person { name: "Al" } }\n')
    outcome = run("lint", "--schema", "people.pg", "--query", "fixed.gq")
    assert outcome.code == 0
    assert outcome.stdout.splitlines()[:2] == [
        "OK    query `add` (mutation)",
        "WARN  query `add`: mutation declares no params; hardcoded mutations are easy to miss",
    ]


def test_lint_warns_of_property_that_no_update_sets(folder: Path) -> None:
    text = "query touch($n: String) { update Person set { age: 1 } where name = $n }\n"
    write(folder / "schema.pg", "node Person { name: String @key  age: I32?  city: String? }")
    write(folder / "touch.gq", text)
    outcome = run("lint", "--schema", "schema.pg", "--query", "touch.gq")
    assert outcome.code == 0
    assert "WARN  L201: Person.city exists in schema but no update query sets it\n" in outcome.stdout


def test_lint_json_of_one_file_is_one_document() -> None:
    outcome = run("lint", "--schema", "people.pg", "--query", "read.gq", "--json")
    assert outcome.code == 0
    assert outcome.stdout.startswith('{\n  "status": "ok",\n')
    assert json.loads(outcome.stdout) == {
        "status": "ok",
        "schema_source": {"kind": "file", "path": "people.pg"},
        "query_path": "read.gq",
        "queries_processed": 1,
        "errors": 0,
        "warnings": 0,
        "infos": 0,
        "results": [
            {
                "name": "everybody",
                "kind": "read",
                "status": "ok",
                "warnings": [],
                "operation": {
                    "result": [{"name": "name", "kind": "string", "nullable": False}],
                    "reads": [{"kind": "node", "type_name": "Person"}],
                    "writes": [],
                },
            }
        ],
        "findings": [],
    }


def test_lint_json_with_error_has_its_text_and_fails(folder: Path) -> None:
    write(folder / "wrong.gq", BROKEN)
    outcome = run("lint", "--schema", "people.pg", "--query", "wrong.gq", "--json")
    document = json.loads(outcome.stdout)
    assert outcome.code == 1
    assert (document["status"], document["errors"]) == ("error", 1)
    (result,) = document["results"]
    assert result["error"].startswith("type error: T6: ")
    assert "operation" not in result


def test_lint_of_several_files_prints_an_array_and_a_total(folder: Path) -> None:
    write(folder / "wrong.gq", BROKEN)
    named = ("--schema", "people.pg", "--query", "read.gq", "--query", "wrong.gq")
    assert [item["query_path"] for item in json.loads(run("lint", *named, "--json").stdout)] == [
        "read.gq",
        "wrong.gq",
    ]
    lines = run("lint", *named).stdout.splitlines()
    assert [line for line in lines if line.startswith("FILE")] == ["FILE  read.gq", "FILE  wrong.gq"]
    assert (
        lines[-1] == "INFO  Lint complete: 2 queries processed in 2 files "
        "(1 error(s), 0 warning(s), 0 info item(s))"
    )


def test_lint_of_directory_checks_the_query_files_below_it(folder: Path) -> None:
    for name in ("q/b.gq", "q/deep/a.gq", "q/.hidden/c.gq", "q/notes.txt"):
        write(folder / name, READ)
    outcome = run("lint", "--schema", "people.pg", "q", "--json")
    assert [item["query_path"] for item in json.loads(outcome.stdout)] == ["q/b.gq", "q/deep/a.gq"]
    alone = run("lint", "--schema", "people.pg", "q/deep", "--json")
    assert len(json.loads(alone.stdout)) == 1


def test_lint_of_repeated_file_checks_it_once() -> None:
    outcome = run("lint", "--schema", "people.pg", "--query", "read.gq", "read.gq")
    assert outcome.stdout.count("OK ") == 1


def test_lint_reads_queries_from_stdin() -> None:
    outcome = run("lint", "--schema", "people.pg", "--query", "-", stdin="query q( {")
    assert outcome.code == 1
    assert "      <stdin>:1:10\n" in outcome.stdout


def test_lint_with_stdin_for_schema_and_queries_is_refused() -> None:
    outcome = run("lint", "--schema", "-", "--query", "-")
    assert outcome.code == 2
    assert "can be used for one file only" in outcome.stderr


def test_lint_of_directory_without_queries_is_refused(folder: Path) -> None:
    (folder / "empty").mkdir()
    outcome = run("lint", "--schema", "people.pg", "empty")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (1, "", "error: no .gq files in empty\n")


def test_lint_with_invalid_schema_stops(folder: Path) -> None:
    write(folder / "bad.pg", "node Person { name: Strin @key }\nnode Person { age: Integer }\n")
    outcome = run("lint", "--schema", "bad.pg", "--query", "read.gq")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith(
        "error: bad.pg:1:21: parse error: unknown type: Strin\n"
        "  node Person { name: Strin @key }\n"
        "                      ^^^^^\n"
        "  hint: did you mean `String`?\n"
        "error: bad.pg:2:20: "
    )


def test_lint_without_schema_or_graph_prints_a_hint() -> None:
    outcome = run("lint", "--query", "read.gq")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("error: no graph addressed — pass a positional URI, --store <uri>, ")
    assert outcome.stderr.endswith("\nhint: or pass --schema <file> to check without a graph\n")


def test_lint_without_query_file_is_a_usage_error() -> None:
    outcome = run("lint", "--schema", "people.pg")
    assert outcome.code == 2
    assert "--query" in outcome.stderr


@pytest.mark.usefixtures("home")
class TestAgainstAGraph:
    """Without --schema, queries are checked against the schema that a graph has now."""

    @pytest.fixture(autouse=True)
    def _graph(self, folder: Path) -> None:
        make_graph("g.omni")
        (folder / "g.omni").rename(folder / "plain")
        (folder / "g.omni").symlink_to("plain")
        write(folder / "site.yaml", "graphs: {team: {uri: g.omni}}")

    @pytest.mark.parametrize(
        "address",
        [
            ["g.omni"],
            ["plain"],
            ["--store", "g.omni"],
            ["--cluster", "site.yaml", "--graph", "team"],
            ["--cluster", "site.yaml"],
        ],
        ids=" ".join,
    )
    def test_lint_finds_the_graph_by_address_or_configuration(self, address: list[str], folder: Path) -> None:
        write(folder / "wrong.gq", BROKEN)
        outcome = run("lint", *address, "--query", "wrong.gq", "read.gq")
        assert (outcome.code, outcome.stderr) == (1, "")
        assert "ERROR query `wrong`: type error: T6: " in outcome.stdout
        assert "OK    query `everybody` (read)" in outcome.stdout

    def test_lint_report_names_the_graph(self) -> None:
        report = json.loads(run("lint", "g.omni", "--query", "read.gq", "--json").stdout)
        assert report["schema_source"] == {"kind": "graph", "uri": "g.omni"}
        assert report["queries_processed"] == 1

    def test_lint_uses_the_current_schema_of_the_graph(self, folder: Path) -> None:
        write(folder / "read.gq", "query q() { match { $p: Person } return { $p.nick } }")
        assert run("lint", "g.omni", "--query", "read.gq").code == 1
        write(folder / "next.pg", PEOPLE.replace("age: I32?", "age: I32?\n  nick: String?"))
        assert run("schema", "apply", "g.omni", "--schema", "next.pg").code == 0
        assert run("lint", "g.omni", "--query", "read.gq").code == 0

    def test_lint_with_missing_graph_is_refused(self) -> None:
        outcome = run("lint", "other.omni", "--query", "read.gq")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert "there is no graph at " in outcome.stderr

    def test_lint_with_two_graphs_is_refused(self) -> None:
        outcome = run("lint", "g.omni", "plain", "--query", "read.gq")
        assert outcome.code == 1
        assert outcome.stderr.startswith("error: two graphs addressed: g.omni and plain; ")

    @pytest.mark.parametrize("address", [["g.omni"], ["--store", "g.omni"], ["--cluster", "site.yaml"]])
    def test_lint_with_schema_file_opens_no_graph(self, address: list[str]) -> None:
        outcome = run("lint", *address, "--query", "read.gq", "--schema", "people.pg")
        assert outcome.code == 1
        assert outcome.stderr == (
            f"error: `lint --schema` does not use a graph; {address[0]} does not apply.\n"
        )

    def test_lint_with_server_option_is_refused(self) -> None:
        outcome = run("lint", "--server", "http://127.0.0.1:1", "--query", "read.gq")
        assert outcome.code == 1
        assert outcome.stderr.startswith("error: `lint` is a direct (storage-native) command; --server ")


def test_lint_with_server_url_as_address_is_refused() -> None:
    outcome = run("lint", "https://graph.example.org", "--query", "read.gq")
    assert outcome.code == 1
    assert "must be addressed with --server <url>" in outcome.stderr


@pytest.mark.parametrize("words", [("check",), ("query", "lint"), ("query", "check")])
def test_lint_under_old_names_prints_a_warning(words: tuple[str, ...]) -> None:
    outcome = run(*words, "--schema", "people.pg", "--query", "read.gq")
    assert outcome.code == 0
    assert outcome.stderr == f"warning: `omnigraph {' '.join(words)}` is now `omnigraph lint`\n"
    assert outcome.stdout.startswith("OK ")

"""Merge conflicts on the command line: the table, and the formats of `--resolve`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.merge_options import read_resolve
from tests.cli.merges import disagree, heads, make_two_branches, merge, person, put, table
from tests.cli.running import write

DELETE = "query go($n: String) { delete Person where name = $n }"


@pytest.fixture(autouse=True)
def graph(folder: Path) -> og.Graph:
    assert folder.is_dir()
    return make_two_branches()


class TestConflicts:
    def test_merge_conflicts_print_a_table_and_a_hint(self, graph: og.Graph) -> None:
        ids = disagree(graph)
        before = heads(graph)
        outcome = merge()
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr.splitlines()[0] == (
            "error: merge conflicts: node type 'Person', entity id 'Ann' (divergent_update);"
            " node type 'Person', entity id 'Ann' (divergent_update)"
        )
        common = {"kind": "divergent_update", "entity": "node Person 'Ann'"}
        assert table(outcome.stderr) == [
            {"id": ids["age"], **common, "property": "age", "base": "30", "ours": "32", "theirs": "31"},
            {
                "id": ids["born"],
                **common,
                "property": "born",
                "base": "null",
                "ours": "1994-04-01",
                "theirs": "1995-05-01",
            },
        ]
        assert outcome.stderr.splitlines()[-4:] == [
            "ours is branch main, theirs is branch review",
            "resolve them with --resolve ours or --resolve theirs, or one by one with --resolve FILE, for example:",
            f"  {ids['age']}: ours  # or theirs, or {{value: ...}}",
            f"  {ids['born']}: ours  # or theirs, or {{value: ...}}",
        ]
        assert heads(graph) == before

    def test_suggested_resolutions_resolve_the_merge(self, graph: og.Graph) -> None:
        disagree(graph)
        suggested = [line for line in merge().stderr.splitlines() if line.startswith("  ")]
        assert merge("--resolve", "-", stdin="\n".join(suggested)).code == 0

    def test_merge_conflicts_json_prints_the_error_body(self, graph: og.Graph) -> None:
        ids = disagree(graph)
        outcome = merge("--json")
        assert (outcome.code, outcome.stderr) == (1, "")
        found = json.loads(outcome.stdout)
        assert found.keys() == {"error", "code", "merge_conflicts"}
        assert (found["code"], found["error"][:17]) == ("conflict", "merge conflicts: ")
        assert found["merge_conflicts"][0] == {
            "id": ids["age"],
            "entity_kind": "node",
            "type_name": "Person",
            "entity_id": "Ann",
            "kind": "divergent_update",
            "property": "age",
            "message": "divergent update for id 'Ann'",
            "base": 30,
            "ours": 32,
            "theirs": 31,
        }

    def test_delete_update_conflict_shows_the_changed_properties(self, graph: og.Graph) -> None:
        graph.mutate(DELETE, {"n": "Bob"}, branch="review")
        put(graph, "main", name="Bob", age=44)
        (row,) = table(merge().stderr)
        assert (row["kind"], row["property"]) == ("delete_vs_update", "")
        assert (row["base"], row["ours"], row["theirs"]) == ('{"age":30}', '{"age":44}', "<absent>")

    def test_insert_conflict_shows_no_base_value(self, graph: og.Graph) -> None:
        put(graph, "review", name="Dan", email="d" * 40)
        put(graph, "main", name="Dan", email=None)
        (row,) = table(merge().stderr)
        assert (row["kind"], row["base"], row["ours"]) == ("divergent_insert", "<absent>", "null")
        assert row["theirs"] == "d" * 23 + "…"

    def test_constraint_conflict_shows_its_message(self, graph: og.Graph) -> None:
        put(graph, "review", name="Dan", email="x@y")
        put(graph, "main", name="Eve", email="x@y")
        outcome = merge()
        (row,) = table(outcome.stderr)
        assert (row["kind"], row["property"], row["theirs"]) == ("unique_violation", "email", "x@y")
        assert f"{row['id']}: @unique violation on Person.email" in outcome.stderr
        # A value cannot settle it.
        assert outcome.stderr.endswith(f"  {row['id']}: ours  # or theirs\n")

    def test_conflict_without_entity_is_printed(self, graph: og.Graph) -> None:
        graph.load({"Knows": [{"from": "Ann", "to": "Bob"}]}, branch="review")
        graph.load({"Knows": [{"from": "Ann", "to": "Cid"}]})
        outcome = merge()
        (row,) = table(outcome.stderr)
        assert (row["kind"], row["entity"], row["property"]) == ("cardinality_violation", "edge Knows", "")
        assert "@card violation on edge Knows: source 'Ann' has 2 edges (max 1)" in outcome.stderr

    def test_conflict_values_escape_control_characters(self, graph: og.Graph) -> None:
        put(graph, "review", name="A\x1b[2Jb", age=1)
        put(graph, "main", name="A\x1b[2Jb", age=2)
        block = merge()
        assert "\x1b" not in block.stderr
        assert table(block.stderr)[0]["entity"] == "node Person 'A\\x1b[2Jb'"

    def test_many_conflicts_print_the_first_and_a_count(self, graph: og.Graph) -> None:
        for branch, age in (("review", 1), ("main", 2)):
            people = [{"name": f"p{number:02}", "age": age} for number in range(25)]
            graph.load({"Person": people}, branch=branch)
        outcome = merge()
        assert len(table(outcome.stderr)) == 20
        lines = outcome.stderr.splitlines()
        assert lines[23] == "and 5 more"
        assert (len(lines), lines[-1]) == (30, "  '*': theirs  # the rest")
        assert len(json.loads(merge("--json").stdout)["merge_conflicts"]) == 25


class TestResolutions:
    @pytest.mark.parametrize(("side", "age"), [("ours", 32), ("theirs", 31)])
    def test_resolve_with_a_side_resolves_all_conflicts(self, graph: og.Graph, side: str, age: int) -> None:
        disagree(graph)
        assert merge("--resolve", side).stdout == "merged review into main: merged\n"
        assert (person(graph, "Ann") or {})["age"] == age

    @pytest.mark.parametrize(
        "form",
        [
            "{age}: theirs\n{born}: {{value: 1990-01-01}}\n",
            "'{age}': theirs  # hers\n'{born}':\n  value: '1990-01-01'\n",
            '{{"{age}": "theirs", "{born}": {{"value": "1990-01-01"}}}}',
            '{{\n\t"{born}": {{"value": "1990-01-01"}},\n\t"*": "theirs"\n}}',
            "{born}: {{value: 1990-01-01}}\n'*': theirs\n",
        ],
    )
    def test_resolve_with_a_file_resolves_conflicts_by_id(
        self, graph: og.Graph, folder: Path, form: str
    ) -> None:
        write(folder / "answers.yaml", form.format(**disagree(graph)))
        assert merge("--resolve", "answers.yaml").code == 0
        assert (person(graph, "Ann") or {}).items() >= {"age": 31, "born": "1990-01-01"}.items()

    def test_resolve_with_null_value_stores_null(self, graph: og.Graph) -> None:
        ids = disagree(graph)
        assert merge("--resolve", "-", stdin=f"{ids['born']}: {{value: null}}\n'*': ours").code == 0
        assert (person(graph, "Ann") or {})["born"] is None

    def test_resolve_of_some_conflicts_reports_the_others(self, graph: og.Graph) -> None:
        ids = disagree(graph)
        outcome = merge("--resolve", "-", stdin=f"{ids['age']}: ours")
        assert outcome.code == 1
        assert [row["id"] for row in table(outcome.stderr)] == [ids["born"]]

    def test_resolve_file_reads_ids_and_times_as_text(self) -> None:
        answers = ["1234567890123456: ours", "0012345670123456: {value: 7}", "1_0: {value: 2026-05-04}"]
        write(Path("answers.yaml"), "\n".join(answers))
        assert read_resolve("answers.yaml") == {
            "1234567890123456": "ours",
            "0012345670123456": {"value": 7},
            "1_0": {"value": "2026-05-04"},
        }

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "<stdin>: expected a mapping of conflict ids to resolutions"),
            ("ours", "<stdin>: expected a mapping of conflict ids to resolutions"),
            ('["ours"]', "<stdin>: expected a mapping of conflict ids to resolutions"),
            ("[a, b]: ours", "<stdin>: expected a mapping of conflict ids to resolutions"),
            ("a: ours\na: theirs", "<stdin>: duplicate key a"),
            ('{"a": "ours", "a": "theirs"}', "<stdin>: duplicate key a"),
            ("a: {ours", "<stdin>: line 1: expected ',' or '}', but got '<stream end>'"),
            ("a: !!python/none x", "<stdin>: line 1: could not determine a constructor for the tag"),
            (
                "a: mine",
                "<stdin>: the resolution of conflict a must be 'ours' or 'theirs', got 'mine'",
            ),
            ("a: 7", "<stdin>: the resolution of conflict a must be 'ours', 'theirs' or {\"value\": ...}"),
            ("'*': {value: 7}", "<stdin>: the resolution of '*' must be 'ours' or 'theirs', not a value"),
        ],
    )
    def test_resolve_with_invalid_file_is_refused(self, graph: og.Graph, text: str, message: str) -> None:
        disagree(graph)
        before = heads(graph)
        outcome = merge("--resolve", "-", stdin=text)
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr.startswith(f"error: {message}")
        assert "internal error" not in outcome.stderr
        assert heads(graph) == before

    def test_resolve_with_value_of_wrong_type_is_refused(self, graph: og.Graph) -> None:
        ids = disagree(graph)
        outcome = merge("--resolve", "-", stdin=f"{ids['age']}: {{value: old}}\n'*': ours")
        assert outcome.code == 1
        assert "age" in outcome.stderr

    def test_resolve_with_neither_side_nor_file_is_refused(self) -> None:
        outcome = merge("--resolve", "mine")
        assert outcome.stderr == (
            "error: no such file: mine\nhint: pass ours, theirs, or a file of resolutions\n"
        )
        write(Path("mine.yaml"), "a: ours")
        assert merge("--resolve", "mine.yml").stderr.endswith("hint: did you mean `mine.yaml`?\n")

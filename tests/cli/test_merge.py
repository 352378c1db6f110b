"""`omnigraph branch merge` and `omnigraph revert`: what they print, refuse, and take as an answer to conflicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.cli.running import Outcome, run, write

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
  born: Date?
  email: String? @unique
}

edge Knows: Person -> Person @card(0..1)
"""
TO = ("--uri", "g.omni")
TARGET = "omnigraph branch merge → g.omni (direct, local)\n"
DELETE = "query go($n: String) { delete Person where name = $n }"


@pytest.fixture(autouse=True)
def graph(folder: Path) -> og.Graph:
    """Three people, and a branch `review` that has done nothing yet."""
    made = og.init(str(folder / "g.omni"), schema=SCHEMA, durability="os")
    made.load({"Person": [{"name": name, "age": 30} for name in ("Ann", "Bob", "Cid")]})
    made.branches.create("review")
    return made


def put(graph: og.Graph, branch: str, **row: Any) -> str:
    """Write one person, whole; gives the commit."""
    done = graph.load({"Person": [{"age": 30, **row}]}, mode="merge", branch=branch)
    assert done.commit is not None
    return done.commit.id


def disagree(graph: og.Graph) -> dict[str, str]:
    """Let both branches change Ann's age and date of birth; gives the ids of the conflicts by property."""
    put(graph, "review", name="Ann", age=31, born="1995-05-01")
    put(graph, "main", name="Ann", age=32, born="1994-04-01")
    found = graph.branches.merge("review", dry_run=True).conflicts
    return {item["property"]: item["id"] for item in found}


def merge(*args: str, stdin: str = "") -> Outcome:
    return run("branch", "merge", "review", *args, *TO, "--quiet", stdin=stdin)


def person(graph: og.Graph, name: str) -> dict[str, Any] | None:
    return graph.get("Person", name)


def heads(graph: og.Graph) -> list[str]:
    return [graph.snapshot(name).commit_id for name in graph.branches.list()]


def table(text: str) -> list[dict[str, str]]:
    """The rows of the table in a text."""
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if set(line) == {"-", "+"})
    names = [part.strip() for part in lines[start - 1].split(" | ")]
    rows = []
    for line in lines[start + 1 :]:
        if " | " not in line:
            break
        rows.append(dict(zip(names, (part.strip() for part in line.split(" | ")), strict=True)))
    return rows


class TestMerge:
    def test_a_branch_is_merged_and_the_target_named(self, graph: og.Graph) -> None:
        put(graph, "review", name="Dan")
        outcome = run("branch", "merge", "review", *TO)
        assert (outcome.code, outcome.stdout) == (0, "merged review into main: fast_forward\n")
        assert outcome.stderr == TARGET
        assert person(graph, "Dan") is not None
        again = merge()
        assert (again.code, again.stdout, again.stderr) == (
            0,
            "merged review into main: already_up_to_date\n",
            "",
        )

    def test_what_both_sides_did_comes_together_property_by_property(self, graph: og.Graph) -> None:
        put(graph, "review", name="Ann", born="1995-05-01")
        put(graph, "main", name="Ann", age=31)
        assert merge().stdout == "merged review into main: merged\n"
        assert person(graph, "Ann") == {
            "id": "Ann",
            "age": 31,
            "born": "1995-05-01",
            "email": None,
            "name": "Ann",
        }

    def test_another_target_can_be_named_and_spaces_do_not_count(self, graph: og.Graph) -> None:
        put(graph, "main", name="Dan")
        outcome = run("branch", "merge", " main ", "--into", " review ", *TO, "--quiet")
        assert outcome.stdout == "merged main into review: fast_forward\n"
        assert graph.get("Person", "Dan", branch="review") is not None

    def test_json_has_the_members_of_a_merge_and_what_it_did(self, graph: og.Graph) -> None:
        theirs = put(graph, "review", name="Ann", born="1995-05-01")
        ours = put(graph, "main", name="Bob", age=31)
        found = json.loads(merge("--json", "--as", "ann", "--message", "all good").stdout)
        commit = found.pop("commit")
        assert found == {
            "source": "review",
            "target": "main",
            "outcome": "merged",
            "actor_id": "ann",
            "affected": {"Person": {"inserted": 0, "updated": 1, "deleted": 0}},
            "taken": [],
            "conflicts": [],
            "dry_run": False,
        }
        assert (commit["parent_commit_id"], commit["merged_parent_commit_id"]) == (ours, theirs)
        assert (commit["actor_id"], commit["graph_branch"]) == ("ann", None)
        newest = graph.commits(limit=1)[0]
        assert (newest.id, newest.message, newest.operation) == (
            commit["graph_commit_id"],
            "all good",
            "merge",
        )

    def test_json_of_a_fast_forward_names_the_types_that_were_taken(self, graph: og.Graph) -> None:
        put(graph, "review", name="Dan")
        found = json.loads(merge("--json").stdout)
        assert (found["outcome"], found["taken"], found["affected"]) == ("fast_forward", ["Person"], {})
        again = json.loads(merge("--json").stdout)
        assert (again["outcome"], again["commit"], again["actor_id"]) == ("already_up_to_date", None, None)

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["main"], "branch_merge requires distinct source and target branches"),
            (["nowhere"], "branch 'nowhere' not found"),
            (["review", "--into", "nowhere"], "branch 'nowhere' not found"),
            (["reveiw"], "branch 'reveiw' not found\nhint: did you mean `review`?"),
        ],
    )
    def test_what_cannot_be_merged_is_refused(self, graph: og.Graph, args: list[str], message: str) -> None:
        before = heads(graph)
        outcome = run("branch", "merge", *args, *TO, "--quiet")
        assert (outcome.code, outcome.stdout, outcome.stderr) == (1, "", f"error: {message}\n")
        assert heads(graph) == before

    def test_a_source_is_needed(self) -> None:
        assert run("branch", "merge", *TO).code == 2


class TestDeletingTheSource:
    def test_the_source_goes_when_it_has_been_merged(self, graph: og.Graph) -> None:
        put(graph, "review", name="Dan")
        outcome = merge("--delete-branch")
        assert outcome.stdout == "merged review into main: fast_forward\ndeleted branch review\n"
        assert graph.branches.list() == ["main"]

    def test_the_source_goes_when_there_was_nothing_to_merge(self, graph: og.Graph) -> None:
        found = json.loads(merge("--delete-branch", "--json").stdout)
        assert (found["outcome"], found["branch_deleted"]) == ("already_up_to_date", True)
        assert "branch_delete_error" not in found
        assert graph.branches.list() == ["main"]

    def test_a_deletion_that_fails_is_a_warning(self, graph: og.Graph) -> None:
        put(graph, "main", name="Dan")
        outcome = run("branch", "merge", "main", "--into", "review", "--delete-branch", *TO, "--quiet")
        assert (outcome.code, outcome.stdout) == (0, "merged main into review: fast_forward\n")
        assert (
            outcome.stderr
            == "warning: merged, but could not delete branch 'main': cannot delete branch 'main'\n"
        )
        told = run("branch", "merge", "main", "--into", "review", "--delete-branch", "--json", *TO, "--quiet")
        found = json.loads(told.stdout)
        assert (found["branch_deleted"], found["branch_delete_error"]) == (
            False,
            "cannot delete branch 'main'",
        )

    def test_the_source_stays_when_it_was_not_merged(self, graph: og.Graph) -> None:
        disagree(graph)
        assert merge("--delete-branch").code == 1
        assert merge("--delete-branch", "--dry-run", "--resolve", "ours").code == 0
        assert graph.branches.list() == ["main", "review"]


class TestConflicts:
    def test_conflicts_are_one_block_with_a_table_and_what_to_do(self, graph: og.Graph) -> None:
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
            "ours is what main has, theirs is what review has",
            "settle them with --resolve ours or --resolve theirs, or one by one with --resolve FILE, such as:",
            f"  {ids['age']}: ours  # or theirs, or {{value: ...}}",
            f"  {ids['born']}: ours  # or theirs, or {{value: ...}}",
        ]
        assert heads(graph) == before

    def test_the_answers_that_are_suggested_are_a_resolution(self, graph: og.Graph) -> None:
        disagree(graph)
        suggested = [line for line in merge().stderr.splitlines() if line.startswith("  ")]
        assert merge("--resolve", "-", stdin="\n".join(suggested)).code == 0

    def test_json_is_the_error_body_on_stdout(self, graph: og.Graph) -> None:
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

    def test_an_entity_that_one_side_deleted_shows_what_the_other_changed(self, graph: og.Graph) -> None:
        graph.mutate(DELETE, {"n": "Bob"}, branch="review")
        put(graph, "main", name="Bob", age=44)
        (row,) = table(merge().stderr)
        assert (row["kind"], row["property"]) == ("delete_vs_update", "")
        assert (row["base"], row["ours"], row["theirs"]) == ('{"age":30}', '{"age":44}', "<absent>")

    def test_what_both_inserted_was_not_there_before(self, graph: og.Graph) -> None:
        put(graph, "review", name="Dan", email="d" * 40)
        put(graph, "main", name="Dan", email=None)
        (row,) = table(merge().stderr)
        assert (row["kind"], row["base"], row["ours"]) == ("divergent_insert", "<absent>", "null")
        assert row["theirs"] == "d" * 23 + "…"

    def test_a_broken_rule_is_told_in_words(self, graph: og.Graph) -> None:
        put(graph, "review", name="Dan", email="x@y")
        put(graph, "main", name="Eve", email="x@y")
        outcome = merge()
        (row,) = table(outcome.stderr)
        assert (row["kind"], row["property"], row["theirs"]) == ("unique_violation", "email", "x@y")
        assert f"{row['id']}: @unique violation on Person.email" in outcome.stderr
        # A value cannot settle it.
        assert outcome.stderr.endswith(f"  {row['id']}: ours  # or theirs\n")

    def test_a_conflict_need_not_be_about_one_entity(self, graph: og.Graph) -> None:
        graph.load({"Knows": [{"from": "Ann", "to": "Bob"}]}, branch="review")
        graph.load({"Knows": [{"from": "Ann", "to": "Cid"}]})
        outcome = merge()
        (row,) = table(outcome.stderr)
        assert (row["kind"], row["entity"], row["property"]) == ("cardinality_violation", "edge Knows", "")
        assert "@card violation on edge Knows: source 'Ann' has 2 edges (max 1)" in outcome.stderr

    def test_what_a_terminal_would_act_upon_is_escaped(self, graph: og.Graph) -> None:
        put(graph, "review", name="A\x1b[2Jb", age=1)
        put(graph, "main", name="A\x1b[2Jb", age=2)
        block = merge()
        assert "\x1b" not in block.stderr
        assert table(block.stderr)[0]["entity"] == "node Person 'A\\x1b[2Jb'"

    def test_of_many_the_first_are_shown_and_the_others_counted(self, graph: og.Graph) -> None:
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
    def test_a_side_settles_everything(self, graph: og.Graph, side: str, age: int) -> None:
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
    def test_a_file_settles_each_by_its_id(self, graph: og.Graph, folder: Path, form: str) -> None:
        write(folder / "answers.yaml", form.format(**disagree(graph)))
        assert merge("--resolve", "answers.yaml").code == 0
        assert (person(graph, "Ann") or {}).items() >= {"age": 31, "born": "1990-01-01"}.items()

    def test_a_value_may_be_nothing(self, graph: og.Graph) -> None:
        ids = disagree(graph)
        assert merge("--resolve", "-", stdin=f"{ids['born']}: {{value: null}}\n'*': ours").code == 0
        assert (person(graph, "Ann") or {})["born"] is None

    def test_what_is_not_settled_is_still_a_conflict(self, graph: og.Graph) -> None:
        ids = disagree(graph)
        outcome = merge("--resolve", "-", stdin=f"{ids['age']}: ours")
        assert outcome.code == 1
        assert [row["id"] for row in table(outcome.stderr)] == [ids["born"]]

    def test_ids_that_look_like_numbers_are_ids_all_the_same(self) -> None:
        from omnigraph.cli.conflicts import read_resolve

        write(Path("answers.yaml"), "1234567890123456: ours\n0012345670123456: {value: 7}\n1_000: theirs\n")
        assert read_resolve("answers.yaml") == {
            "1234567890123456": "ours",
            "0012345670123456": {"value": 7},
            "1_000": "theirs",
        }

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "<stdin>: conflict ids with resolutions expected"),
            ("ours", "<stdin>: conflict ids with resolutions expected"),
            ('["ours"]', "<stdin>: conflict ids with resolutions expected"),
            ("[a, b]: ours", "<stdin>: conflict ids with resolutions expected"),
            ("a: ours\na: theirs", "<stdin>: a is there twice"),
            ('{"a": "ours", "a": "theirs"}', "<stdin>: a is there twice"),
            ("a: {ours", "<stdin>, line 1: expected ',' or '}', but got '<stream end>'"),
            ("a: !!python/none x", "<stdin>, line 1: could not determine a constructor for the tag"),
            (
                "a: mine",
                "<stdin>: the resolution of conflict a must be 'ours' or 'theirs', got 'mine'",
            ),
            ("a: 7", "<stdin>: the resolution of conflict a must be 'ours', 'theirs' or {\"value\": ...}"),
            ("'*': {value: 7}", "<stdin>: one value cannot settle every conflict"),
        ],
    )
    def test_a_file_that_cannot_be_meant_is_refused(self, graph: og.Graph, text: str, message: str) -> None:
        disagree(graph)
        before = heads(graph)
        outcome = merge("--resolve", "-", stdin=text)
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr.startswith(f"error: {message}")
        assert "internal error" not in outcome.stderr
        assert heads(graph) == before

    def test_a_value_of_the_wrong_type_is_refused(self, graph: og.Graph) -> None:
        ids = disagree(graph)
        outcome = merge("--resolve", "-", stdin=f"{ids['age']}: {{value: old}}\n'*': ours")
        assert outcome.code == 1
        assert "age" in outcome.stderr

    def test_neither_a_side_nor_a_file_is_refused(self) -> None:
        outcome = merge("--resolve", "mine")
        assert outcome.stderr == (
            "error: no such file: mine\nhint: pass ours, theirs, or a file of resolutions\n"
        )
        write(Path("mine.yaml"), "a: ours")
        assert merge("--resolve", "mine.yml").stderr.endswith("hint: did you mean `mine.yaml`?\n")


class TestDryRun:
    def test_a_dry_run_tells_what_would_become_of_each_type(self, graph: og.Graph) -> None:
        put(graph, "review", name="Dan")
        before = heads(graph)
        outcome = merge("--dry-run")
        assert (outcome.code, outcome.stderr) == (0, "")
        assert outcome.stdout == "would merge review into main: fast_forward\nPerson: taken over as it is\n"
        found = json.loads(merge("--dry-run", "--json").stdout)
        assert (found["dry_run"], found["commit"], found["taken"]) == (True, None, ["Person"])
        assert heads(graph) == before

    def test_a_dry_run_can_be_of_answers(self, graph: og.Graph) -> None:
        disagree(graph)
        before = heads(graph)
        outcome = merge("--dry-run", "--resolve", "theirs")
        assert outcome.code == 0
        assert outcome.stdout.splitlines()[0] == "would merge review into main: merged"
        assert heads(graph) == before

    def test_a_dry_run_with_conflicts_lists_them_as_its_result_and_fails(self, graph: og.Graph) -> None:
        ids = disagree(graph)
        outcome = merge("--dry-run")
        assert (outcome.code, outcome.stderr) == (1, "")
        assert outcome.stdout.splitlines()[0] == "would merge review into main: 2 conflicts"
        assert [row["id"] for row in table(outcome.stdout)] == list(ids.values())
        told = merge("--dry-run", "--json")
        assert told.code == 1
        assert [item["id"] for item in json.loads(told.stdout)["conflicts"]] == list(ids.values())


class TestPrecondition:
    @pytest.mark.parametrize("command", ["merge", "revert"])
    def test_a_branch_that_moved_is_left_alone(self, graph: og.Graph, command: str) -> None:
        seen = graph.snapshot().commit_id
        put(graph, "review", name="Dan")
        now = put(graph, "main", name="Eve")
        what = ("branch", "merge", "review") if command == "merge" else ("revert", now)
        outcome = run(*what, "--if-commit", seen, *TO, "--quiet")
        assert (outcome.code, outcome.stdout) == (4, "")
        assert outcome.stderr.startswith("error: precondition failed on branch 'main'")
        told = run(*what, "--if-commit", seen, "--json", *TO, "--quiet")
        assert (told.code, told.stderr) == (4, "")
        assert json.loads(told.stdout)["precondition_failure"] == {"expected": seen, "actual": now}
        assert graph.snapshot().commit_id == now
        assert run(*what, "--if-commit", now, *TO).code == 0


class TestRevert:
    def test_a_commit_is_undone_by_a_new_one_and_what_came_later_stays(self, graph: og.Graph) -> None:
        mistake = put(graph, "main", name="Ann", age=99)
        put(graph, "main", name="Bob", age=31)
        outcome = run("revert", mistake, *TO, "--as", "ann", "--message", "no")
        newest = graph.commits(limit=1)[0]
        assert (outcome.code, outcome.stdout) == (0, f"reverted {mistake} on main: {newest.id}\n")
        assert outcome.stderr == "omnigraph revert → g.omni (direct, local)\n"
        assert (newest.operation, newest.actor, newest.message) == ("revert", "ann", "no")
        assert [(person(graph, name) or {})["age"] for name in ("Ann", "Bob")] == [30, 31]

    def test_what_has_been_undone_is_not_undone_again(self, graph: og.Graph) -> None:
        mistake = put(graph, "main", name="Ann", age=99)
        run("revert", mistake, *TO)
        outcome = run("revert", mistake, *TO, "--quiet")
        assert (outcome.code, outcome.stdout) == (0, "nothing to revert\n")
        assert json.loads(run("revert", mistake, *TO, "--json").stdout)["commit"] is None

    def test_json_names_the_commit_that_was_undone_and_the_new_one(self, graph: og.Graph) -> None:
        mistake = put(graph, "review", name="Ann", age=99)
        outcome = run("revert", mistake, "--branch", "review", "--json", "--as", "ann", *TO)
        found = json.loads(outcome.stdout)
        commit = found.pop("commit")
        assert found == {
            "branch": "review",
            "reverted_commit_id": mistake,
            "outcome": "fast_forward",
            "actor_id": "ann",
            "affected": {},
            "taken": ["Person"],
            "conflicts": [],
            "dry_run": False,
        }
        assert (commit["parent_commit_id"], commit["graph_branch"]) == (mistake, "review")

    def test_a_dry_run_undoes_nothing(self, graph: og.Graph) -> None:
        mistake = put(graph, "main", name="Ann", age=99)
        outcome = run("revert", mistake, "--dry-run", *TO, "--quiet")
        assert outcome.code == 0
        assert (
            outcome.stdout == f"would revert {mistake} on main: fast_forward\nPerson: taken over as it is\n"
        )
        assert graph.snapshot().commit_id == mistake

    def test_what_was_changed_again_is_a_conflict_to_be_settled(self, graph: og.Graph) -> None:
        mistake = put(graph, "main", name="Ann", age=99)
        put(graph, "main", name="Ann", age=98)
        outcome = run("revert", mistake, *TO, "--quiet")
        assert (outcome.code, outcome.stdout) == (1, "")
        (row,) = table(outcome.stderr)
        assert (row["base"], row["ours"], row["theirs"]) == ("99", "98", "30")
        assert f"ours is what main has, theirs is what was there before {mistake}\n" in outcome.stderr
        assert run("revert", mistake, "--dry-run", *TO).code == 1
        told = run("revert", mistake, "--json", *TO)
        assert (told.code, len(json.loads(told.stdout)["merge_conflicts"])) == (1, 1)
        assert run("revert", mistake, "--resolve", "theirs", *TO).code == 0
        assert (person(graph, "Ann") or {})["age"] == 30

    @pytest.mark.parametrize("args", [["nothing"], ["nothing", "--branch", "nowhere"]])
    def test_what_is_not_there_cannot_be_undone(self, args: list[str]) -> None:
        outcome = run("revert", *args, *TO, "--quiet")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert "not found" in outcome.stderr

    def test_the_first_commit_cannot_be_undone(self, graph: og.Graph) -> None:
        first = graph.commits()[-1].id
        outcome = run("revert", first, *TO, "--quiet")
        assert outcome.code == 1
        assert outcome.stderr == f"error: commit '{first}' is the first one: there is nothing before it\n"

    def test_a_commit_of_another_branch_cannot_be_undone_here(self, graph: og.Graph) -> None:
        other = put(graph, "review", name="Dan")
        outcome = run("revert", other, *TO, "--quiet")
        assert outcome.code == 1
        assert outcome.stderr.startswith(f"error: commit '{other}' is not part of branch 'main'\n")

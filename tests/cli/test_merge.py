"""`omnigraph branch merge` and `omnigraph revert`: effects, output and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.render.conflict_table import SideNames, print_preview
from tests.cli.merges import TO, disagree, heads, make_two_branches, merge, person, put, table
from tests.cli.running import run

TARGET = "omnigraph branch merge → g.omni (direct, local)\n"


@pytest.fixture(autouse=True)
def graph(folder: Path) -> og.Graph:
    assert folder.is_dir()
    return make_two_branches()


class TestMerge:
    def test_merge_prints_source_and_target(self, graph: og.Graph) -> None:
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

    def test_merge_of_both_sides_merges_by_property(self, graph: og.Graph) -> None:
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

    def test_merge_into_option_strips_spaces(self, graph: og.Graph) -> None:
        put(graph, "main", name="Dan")
        outcome = run("branch", "merge", " main ", "--into", " review ", *TO, "--quiet")
        assert outcome.stdout == "merged main into review: fast_forward\n"
        assert graph.get("Person", "Dan", branch="review") is not None

    def test_merge_json_has_the_documented_members(self, graph: og.Graph) -> None:
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

    def test_merge_json_of_fast_forward_names_adopted_types(self, graph: og.Graph) -> None:
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
    def test_merge_of_missing_or_same_branch_is_refused(
        self, graph: og.Graph, args: list[str], message: str
    ) -> None:
        before = heads(graph)
        outcome = run("branch", "merge", *args, *TO, "--quiet")
        assert (outcome.code, outcome.stdout, outcome.stderr) == (1, "", f"error: {message}\n")
        assert heads(graph) == before

    def test_merge_without_source_is_a_usage_error(self) -> None:
        assert run("branch", "merge", *TO).code == 2


class TestDeletingTheSource:
    def test_merge_delete_branch_deletes_the_source(self, graph: og.Graph) -> None:
        put(graph, "review", name="Dan")
        outcome = merge("--delete-branch")
        assert outcome.stdout == "merged review into main: fast_forward\ndeleted branch review\n"
        assert graph.branches.list() == ["main"]

    def test_merge_delete_branch_when_up_to_date_deletes_the_source(self, graph: og.Graph) -> None:
        found = json.loads(merge("--delete-branch", "--json").stdout)
        assert (found["outcome"], found["branch_deleted"]) == ("already_up_to_date", True)
        assert "branch_delete_error" not in found
        assert graph.branches.list() == ["main"]

    def test_merge_delete_branch_that_fails_prints_a_warning(self, graph: og.Graph) -> None:
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

    def test_merge_delete_branch_with_conflicts_keeps_the_source(self, graph: og.Graph) -> None:
        disagree(graph)
        assert merge("--delete-branch").code == 1
        assert merge("--delete-branch", "--dry-run", "--resolve", "ours").code == 0
        assert graph.branches.list() == ["main", "review"]


class TestDryRun:
    def test_merge_dry_run_prints_the_result_of_each_type(self, graph: og.Graph) -> None:
        put(graph, "review", name="Dan")
        before = heads(graph)
        outcome = merge("--dry-run")
        assert (outcome.code, outcome.stderr) == (0, "")
        assert outcome.stdout == "would merge review into main: fast_forward\nPerson: taken over\n"
        found = json.loads(merge("--dry-run", "--json").stdout)
        assert (found["dry_run"], found["commit"], found["taken"]) == (True, None, ["Person"])
        assert heads(graph) == before

    def test_merge_dry_run_counts_changed_rows(self, capsys: pytest.CaptureFixture[str]) -> None:
        counts = {"Person": {"inserted": 1, "updated": 2, "deleted": 4}}
        found = og.Merged("merged", affected=counts, taken=("Knows",), dry_run=True)
        print_preview("would merge a into b", found, SideNames("branch b", "branch a"))
        assert capsys.readouterr().out.splitlines() == [
            "would merge a into b: merged",
            "Person: 1 inserted, 2 updated, 4 deleted",
            "Knows: taken over",
        ]

    def test_merge_dry_run_applies_resolutions(self, graph: og.Graph) -> None:
        disagree(graph)
        before = heads(graph)
        outcome = merge("--dry-run", "--resolve", "theirs")
        assert outcome.code == 0
        assert outcome.stdout.splitlines()[0] == "would merge review into main: merged"
        assert heads(graph) == before

    def test_merge_dry_run_with_conflicts_lists_them_and_fails(self, graph: og.Graph) -> None:
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
    def test_merge_if_commit_with_other_head_is_refused(self, graph: og.Graph, command: str) -> None:
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
    def test_revert_undoes_the_commit_and_keeps_later_changes(self, graph: og.Graph) -> None:
        mistake = put(graph, "main", name="Ann", age=99)
        put(graph, "main", name="Bob", age=31)
        outcome = run("revert", mistake, *TO, "--as", "ann", "--message", "no")
        newest = graph.commits(limit=1)[0]
        assert (outcome.code, outcome.stdout) == (0, f"reverted {mistake} on main: {newest.id}\n")
        assert outcome.stderr == "omnigraph revert → g.omni (direct, local)\n"
        assert (newest.operation, newest.actor, newest.message) == ("revert", "ann", "no")
        assert [(person(graph, name) or {})["age"] for name in ("Ann", "Bob")] == [30, 31]

    def test_revert_of_reverted_commit_makes_no_commit(self, graph: og.Graph) -> None:
        mistake = put(graph, "main", name="Ann", age=99)
        run("revert", mistake, *TO)
        outcome = run("revert", mistake, *TO, "--quiet")
        assert (outcome.code, outcome.stdout) == (0, "nothing to revert\n")
        assert json.loads(run("revert", mistake, *TO, "--json").stdout)["commit"] is None

    def test_revert_json_names_both_commits(self, graph: og.Graph) -> None:
        mistake = put(graph, "review", name="Ann", age=99)
        outcome = run("revert", mistake, "--branch", "review", "--json", "--as", "ann", *TO)
        found = json.loads(outcome.stdout)
        commit = found.pop("commit")
        assert found == {
            "branch": "review",
            "reverted_commit_id": mistake,
            "outcome": "merged",
            "actor_id": "ann",
            "affected": {"Person": {"inserted": 0, "updated": 1, "deleted": 0}},
            "taken": [],
            "conflicts": [],
            "dry_run": False,
        }
        assert (commit["parent_commit_id"], commit["graph_branch"]) == (mistake, "review")

    def test_revert_dry_run_changes_nothing(self, graph: og.Graph) -> None:
        mistake = put(graph, "main", name="Ann", age=99)
        outcome = run("revert", mistake, "--dry-run", *TO, "--quiet")
        assert outcome.code == 0
        assert outcome.stdout == f"would revert {mistake} on main: merged\nPerson: 1 updated\n"
        assert graph.snapshot().commit_id == mistake

    def test_revert_of_property_changed_later_is_a_conflict(self, graph: og.Graph) -> None:
        mistake = put(graph, "main", name="Ann", age=99)
        put(graph, "main", name="Ann", age=98)
        outcome = run("revert", mistake, *TO, "--quiet")
        assert (outcome.code, outcome.stdout) == (1, "")
        (row,) = table(outcome.stderr)
        assert (row["base"], row["ours"], row["theirs"]) == ("99", "98", "30")
        assert f"ours is branch main, theirs is the state before {mistake}\n" in outcome.stderr
        assert run("revert", mistake, "--dry-run", *TO).code == 1
        told = run("revert", mistake, "--json", *TO)
        assert (told.code, len(json.loads(told.stdout)["merge_conflicts"])) == (1, 1)
        assert run("revert", mistake, "--resolve", "theirs", *TO).code == 0
        assert (person(graph, "Ann") or {})["age"] == 30

    @pytest.mark.parametrize("args", [["nothing"], ["nothing", "--branch", "nowhere"]])
    def test_revert_of_unknown_commit_is_refused(self, args: list[str]) -> None:
        outcome = run("revert", *args, *TO, "--quiet")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert "not found" in outcome.stderr

    def test_revert_of_first_commit_is_refused(self, graph: og.Graph) -> None:
        first = graph.commits()[-1].id
        outcome = run("revert", first, *TO, "--quiet")
        assert outcome.code == 1
        assert (
            outcome.stderr
            == f"error: commit '{first}' is the first commit of the graph and cannot be reverted\n"
        )

    def test_revert_of_commit_outside_the_branch_is_refused(self, graph: og.Graph) -> None:
        other = put(graph, "review", name="Dan")
        outcome = run("revert", other, *TO, "--quiet")
        assert outcome.code == 1
        assert outcome.stderr.startswith(f"error: commit '{other}' is not part of branch 'main'\n")

"""`omnigraph branch`: output, errors, and the start of a branch."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.graphs import add_people, make_graph
from tests.cli.running import run

TO = ("--uri", "g.omni")


@pytest.fixture(autouse=True)
def genesis(folder: Path) -> str:
    assert folder.is_dir()
    return make_graph("g.omni")


def branches() -> list[str]:
    return run("branch", "list", *TO).stdout.splitlines()


def head(branch: str) -> str:
    return run("commit", "list", "g.omni", "--branch", branch).stdout[:26]


def test_a_branch_is_created_and_the_target_named() -> None:
    outcome = run("branch", "create", "review", *TO)
    assert (outcome.code, outcome.stdout) == (0, "created branch review from main\n")
    assert outcome.stderr == "omnigraph branch create → g.omni (direct, local)\n"
    assert branches() == ["main", "review"]


def test_a_branch_is_deleted_without_a_question_on_a_local_disk() -> None:
    run("branch", "create", "review", *TO)
    outcome = run("branch", "delete", "review", *TO)
    assert (outcome.code, outcome.stdout) == (0, "deleted branch review\n")
    assert outcome.stderr == "omnigraph branch delete → g.omni (direct, local)\n"
    assert branches() == ["main"]


@pytest.mark.parametrize("args", [["--quiet", "branch", "create", "x"], ["branch", "create", "x", "--quiet"]])
def test_quiet_keeps_the_target_to_itself(args: list[str]) -> None:
    assert run(*args, *TO).stderr == ""


def test_json_is_one_document_of_fixed_shape() -> None:
    made = run("branch", "create", " review ", "--as", "ann", "--json", *TO)
    assert json.loads(made.stdout) == {
        "uri": "g.omni",
        "from": "main",
        "name": "review",
        "actor_id": "ann",
    }
    assert json.loads(run("branch", "list", "--json", *TO).stdout) == {"branches": ["main", "review"]}
    gone = run("branch", "delete", " review ", "--json", *TO)
    assert json.loads(gone.stdout) == {"uri": "g.omni", "name": "review", "actor_id": None}
    assert made.stdout.startswith('{\n  "uri"')


def test_list_with_limit_prints_a_page_and_how_to_continue() -> None:
    for name in ("agent 1", "agent 2", "zoo"):
        run("branch", "create", name, *TO)
    page = run("branch", "list", "--limit", "2", *TO)
    assert page.stdout == "agent 1\nagent 2\n"
    assert page.stderr == "more branches follow: add --after 'agent 2'\n"
    rest = run("branch", "list", "--limit", "2", "--after", "agent 2", *TO)
    assert (rest.stdout, rest.stderr) == ("main\nzoo\n", "")
    assert run("branch", "list", "--prefix", "agent", *TO).stdout == "agent 1\nagent 2\n"
    document = json.loads(run("branch", "list", "--limit", "1", "--json", *TO).stdout)
    assert document == {"branches": ["agent 1"], "next_after": "agent 1"}
    whole = json.loads(run("branch", "list", "--limit", "4", "--json", *TO).stdout)
    assert whole == {"branches": ["agent 1", "agent 2", "main", "zoo"]}
    assert run("branch", "list", "--limit", "0", *TO).code == 2


def test_a_branch_begins_where_another_stands() -> None:
    run("branch", "create", "a", *TO)
    tip = add_people("g.omni", "Ann", branch="a")
    outcome = run("branch", "create", "b", "--from", "a", *TO)
    assert outcome.stdout == "created branch b from a\n"
    assert head("b") == tip


def test_a_branch_can_begin_at_a_commit(genesis: str) -> None:
    add_people("g.omni", "Ann")
    outcome = run("branch", "create", "before", "--at", genesis, *TO)
    assert outcome.stdout == f"created branch before from {genesis}\n"
    assert head("before") == genesis


def test_a_branch_can_begin_at_a_time(genesis: str) -> None:
    made = json.loads(run("commit", "show", genesis, "--json", *TO).stdout)["created_at"]
    # Times count by the millisecond, so the next commit waits for the next one.
    while datetime.now(UTC).timestamp() * 1000 < made // 1000 + 2:
        continue
    add_people("g.omni", "Ann")
    moment = datetime.fromtimestamp(made / 1_000_000, UTC).isoformat(timespec="milliseconds")
    assert run("branch", "create", "then", "--at", moment, *TO).code == 0
    assert head("then") == genesis
    early = run("branch", "create", "never", "--at", "1990-01-01", *TO)
    assert (early.code, early.stderr.splitlines()[-1]) == (
        1,
        "error: the graph did not exist yet at that time",
    )


def test_a_commit_needs_no_branch_to_begin_from(genesis: str) -> None:
    assert run("branch", "create", "x", "--at", genesis, "--from", "main", *TO).code == 2


def test_names_may_begin_with_one_another_and_hold_any_readable_text() -> None:
    for name in ("a", "a/b", "äöü", "with space"):
        assert run("branch", "create", name, *TO).code == 0
    assert branches() == ["a", "a/b", "main", "with space", "äöü"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["create", "main"], "cannot create branch 'main'"),
        (["delete", "main"], "cannot delete branch 'main'"),
        (["create", "  "], "branch name cannot be empty"),
        (
            ["create", "__schema_apply_lock__"],
            "create does not allow internal system ref '__schema_apply_lock__'",
        ),
        (["create", "x", "--from", "nowhere"], "branch 'nowhere' not found"),
        (["create", "x", "--at", "nothing"], "commit 'nothing' not found"),
        (["delete", "nowhere"], "branch 'nowhere' not found"),
    ],
)
def test_what_cannot_be_is_refused(args: list[str], message: str) -> None:
    outcome = run("branch", *args, *TO, "--quiet")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.splitlines()[0] == f"error: {message}"
    assert branches() == ["main"]


def test_a_name_that_is_taken_is_refused() -> None:
    run("branch", "create", "x", *TO)
    outcome = run("branch", "create", "x", *TO, "--quiet")
    assert (outcome.code, outcome.stderr) == (1, "error: branch 'x' already exists\n")


def test_a_misspelt_branch_is_not_deleted_but_suggested() -> None:
    run("branch", "create", "review", *TO)
    outcome = run("branch", "delete", "reveiw", *TO, "--quiet")
    assert outcome.stderr == "error: branch 'reveiw' not found\nhint: did you mean `review`?\n"


def test_branches_write_no_commits() -> None:
    before = run("commit", "list", "g.omni").stdout
    run("branch", "create", "x", *TO)
    run("branch", "delete", "x", *TO)
    assert run("commit", "list", "g.omni").stdout == before

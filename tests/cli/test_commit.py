"""`omnigraph commit`: the history of a branch, one commit, and the records of recovery."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from omnigraph.graph.repository import Repository
from tests.cli.graphs import abandon_load, add_people, heal, make_graph
from tests.cli.running import run

ADD = 'query add() { insert Person { name: "Zoe" } }'
RECOVERY = ("--filter", "actor=omnigraph:recovery")


@pytest.fixture(autouse=True)
def genesis(folder: Path) -> str:
    assert folder.is_dir()
    return make_graph("g.omni", actor="ann")


def listed(*args: str) -> list[str]:
    outcome = run("commit", "list", "g.omni", *args)
    assert (outcome.code, outcome.stderr) == (0, "")
    return outcome.stdout.splitlines()


def document(*args: str) -> Any:
    return json.loads(run("commit", "list", "g.omni", "--json", *args).stdout)


def test_commit_list_shows_the_message(genesis: str) -> None:
    run("mutate", "-e", ADD, "--message", "first\n\x1b[2J", "--store", "g.omni")
    made, before = document()["commits"]
    id_ = made["graph_commit_id"]
    assert (made["message"], before["graph_commit_id"]) == ("first\n\x1b[2J", genesis)
    assert "message" not in before
    assert listed()[0] == f"{id_} graph_branch=main graph_manifest_version=2 message=first\\n\\x1b[2J"
    assert run("commit", "show", id_, "--uri", "g.omni").stdout.endswith("\nmessage: first\\n\\x1b[2J\n")
    assert "message" not in run("commit", "show", genesis, "--uri", "g.omni").stdout


def test_commit_list_is_newest_first_and_shows_the_actor(genesis: str) -> None:
    second = add_people("g.omni", "Ann")
    third = add_people("g.omni", "Bob", actor="bob")
    assert listed() == [
        f"{third} graph_branch=main graph_manifest_version=3 actor=bob",
        f"{second} graph_branch=main graph_manifest_version=2",
        f"{genesis} graph_branch=main graph_manifest_version=1 actor=ann",
    ]


def test_commit_list_of_branch_includes_inherited_commits(genesis: str) -> None:
    run("branch", "create", "dev", "--uri", "g.omni")
    own = add_people("g.omni", "Ann", branch="dev")
    add_people("g.omni", "Bob")
    assert listed("--branch", "dev") == [
        f"{own} graph_branch=dev graph_manifest_version=2",
        f"{genesis} graph_branch=main graph_manifest_version=1 actor=ann",
    ]


def test_commit_list_json_has_the_documented_members(genesis: str) -> None:
    run("branch", "create", "dev", "--uri", "g.omni")
    own = add_people("g.omni", "Ann", branch="dev")
    newest, oldest = document("--branch", "dev")["commits"]
    created = newest.pop("created_at")
    assert newest == {
        "graph_commit_id": own,
        "graph_branch": "dev",
        "graph_manifest_version": 2,
        "parent_commit_id": genesis,
        "merged_parent_commit_id": None,
        "actor_id": None,
    }
    assert oldest["graph_branch"] is None
    assert 0 < created - oldest["created_at"] < 60_000_000


def test_commit_list_limit_keeps_the_newest() -> None:
    newest = [add_people("g.omni", name) for name in ("Ann", "Bob")][::-1]
    assert [line[:26] for line in listed("--limit", "2")] == newest
    assert run("commit", "list", "g.omni", "--limit", "0").code == 2


def test_commit_list_filter_by_actor(genesis: str) -> None:
    add_people("g.omni", "Ann", actor="ann")
    bob = add_people("g.omni", "Bob", actor="bob")
    nobody = add_people("g.omni", "Cid")
    assert [line[:26] for line in listed("--filter", "actor=bob")] == [bob]
    assert [line[:26] for line in listed("--filter", "actor=bob", "--filter", "actor=")] == [nobody, bob]
    assert [line[:26] for line in listed("--filter", "actor=ann")][-1] == genesis
    assert listed("--filter", "actor=eve") == []
    assert document("--filter", "actor=eve") == {"commits": []}


@pytest.mark.parametrize("text", ["ann", "author=ann", "=ann", ""])
def test_commit_list_with_invalid_filter_is_a_usage_error(text: str) -> None:
    outcome = run("commit", "list", "g.omni", "--filter", text)
    assert (outcome.code, outcome.stdout) == (2, "")


def test_commit_show_prints_line_by_line(genesis: str) -> None:
    id_ = add_people("g.omni", "Ann", actor="bob")
    outcome = run("commit", "show", id_, "--uri", "g.omni")
    assert (outcome.code, outcome.stderr) == (0, "")
    *lines, created = outcome.stdout.splitlines()
    assert lines == [
        f"graph_commit_id: {id_}",
        "graph_branch: main",
        "graph_manifest_version: 2",
        f"parent_commit_id: {genesis}",
        "merged_parent_commit_id: null",
        "actor_id: bob",
    ]
    assert re.fullmatch(r"created_at: \d{16} \(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\)", created)


def test_commit_show_json_equals_the_list_entry(genesis: str) -> None:
    shown = json.loads(run("commit", "show", genesis, "--store", "g.omni", "--json").stdout)
    assert document()["commits"] == [shown]


def test_commit_show_of_unknown_commit_prints_one_error() -> None:
    outcome = run("commit", "show", "nothing", "--uri", "g.omni")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (1, "", "error: commit 'nothing' not found\n")


def test_commit_show_escapes_control_characters() -> None:
    id_ = add_people("g.omni", "Ann", actor="eve\x1b[2J\nbob")
    assert listed()[0].endswith(r" actor=eve\x1b[2J\nbob")
    assert r"actor_id: eve\x1b[2J\nbob" in run("commit", "show", id_, "--uri", "g.omni").stdout


class TestWhatRecoveryDid:
    def test_recovered_commit_shows_its_actor_and_the_recovery(self) -> None:
        add_people("g.omni", "Ann", actor="ann")
        abandon_load("g.omni", "Bob", complete=True, actor="bob")
        heal("g.omni")
        (line,) = listed(*RECOVERY)
        assert line[26:] == (
            " graph_branch=main graph_manifest_version=3 actor=bob recovered_by=omnigraph:recovery"
        )
        found = document(*RECOVERY)
        (commit,), (record,) = found["commits"], found["recoveries"]
        assert (commit["actor_id"], commit["recovered_by"]) == ("bob", "omnigraph:recovery")
        assert (record["outcome"], record["graph_commit_id"]) == ("rolled_forward", commit["graph_commit_id"])
        assert run("commit", "show", line[:26], "--uri", "g.omni").stdout.endswith(
            "\nrecovered_by: omnigraph:recovery\n"
        )

    def test_discarded_write_shows_actor_and_reason(self) -> None:
        operation = abandon_load("g.omni", "Bob", complete=False, actor="bob")
        heal("g.omni")
        (line,) = listed(*RECOVERY)
        assert line == (
            f"discarded {operation} graph_branch=main operation=load actor=bob: "
            "it was interrupted before it was complete"
        )
        found = document(*RECOVERY)
        (record,) = found["recoveries"]
        assert record.pop("created_at") > 0
        assert found == {"commits": [], "recoveries": [record]}
        assert record == {
            "operation_id": operation,
            "outcome": "discarded",
            "graph_branch": None,
            "operation": "load",
            "actor_id": "bob",
            "graph_commit_id": None,
            "reason": "it was interrupted before it was complete",
        }

    def test_recoveries_of_other_and_deleted_branches_are_listed(self) -> None:
        for branch in ("dev", "gone"):
            run("branch", "create", branch, "--uri", "g.omni")
        forward = abandon_load("g.omni", "Bob", complete=True, branch="dev", actor="bob")
        heal("g.omni")
        orphan = abandon_load("g.omni", "Cid", complete=True, branch="gone")
        delete_without_healing("gone")
        heal("g.omni")
        lines = listed(*RECOVERY)
        assert lines[0] == (f"orphaned {orphan} graph_branch=gone operation=load: branch 'gone' was deleted")
        (published,) = listed(*RECOVERY, "--branch", "dev")
        assert lines[1] == (
            f"rolled_forward {published[:26]} graph_branch=dev operation=load actor=bob: "
            "it was complete and has been published"
        )
        assert len(lines) == 2
        assert published.endswith("recovered_by=omnigraph:recovery")
        assert forward not in published

    def test_commit_list_without_recovery_filter_omits_recoveries(self) -> None:
        abandon_load("g.omni", "Bob", complete=False, actor="ann")
        heal("g.omni")
        assert "recoveries" not in document()
        assert "recoveries" not in document("--filter", "actor=ann")
        assert len(listed("--filter", "actor=ann", *RECOVERY)) == 2


def delete_without_healing(branch: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Repository, "recover", lambda _self: [])
        with closing(Repository.open("g.omni", durability="os")) as graph:
            graph.delete_branch(branch)

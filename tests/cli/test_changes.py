"""`omnigraph diff`, `commit changes` and `changes`: text and JSON output."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_guides import run_page
from tests.cli.console import replay
from tests.cli.graphs import add_people, make_graph
from tests.cli.running import ROOT, run, run_process, write

ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


@pytest.fixture(autouse=True)
def genesis(folder: Path) -> str:
    assert folder.is_dir()
    return make_graph("g.omni", actor="ann")


def printed(*args: str) -> str:
    outcome = run(*args, "--uri", "g.omni")
    assert (outcome.code, outcome.stderr) == (0, "")
    return outcome.stdout


def document(*args: str) -> Any:
    text = printed(*args, "--json")
    found = json.loads(text)
    # Exactly as one call would print it, though it never is in one piece.
    assert text == json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    return found


def refused(*args: str) -> str:
    outcome = run(*args, "--uri", "g.omni")
    assert (outcome.code, outcome.stdout) == (1, "")
    return outcome.stderr


def load(folder: Path, *records: dict[str, Any], mode: str = "merge", branch: str = "main") -> str:
    text = "".join(json.dumps(record) + "\n" for record in records)
    path = write(folder / "rows.ndjson", text)
    outcome = run(
        "load", "g.omni", "--data", str(path), "--mode", mode, "--branch", branch, "--json", "--as", "bob"
    )
    assert outcome.code == 0, outcome.stderr
    return str(json.loads(outcome.stdout)["commit"]["graph_commit_id"])


def person(name: str, **values: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **values}}


def knows(one: str, other: str, **values: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": one, "to": other, "data": values}


def test_guide_on_changes_shows_the_real_output(folder: Path) -> None:
    shutil.copytree(ROOT / "examples", folder / "examples")
    page = (ROOT / "docs" / "guide" / "changes.md").read_text(encoding="utf-8")
    shown, real = replay(page)
    assert len(shown) > 8
    assert real == shown
    assert run_page(page, "changes.md") > 8


class TestCommitChanges:
    def test_commit_changes_prints_line_by_line(self, folder: Path) -> None:
        first = load(folder, person("Ann", age=30), person("Bob"), person("Cid"))
        load(folder, knows("Ann", "Bob", id="e1"))
        commit = load(folder, person("Ann", age=31), person("Dan", age=4), knows("Ann", "Cid", id="e1"))
        lines = printed("commit", "changes", commit).splitlines()
        assert lines[:2] == [f"commit: {commit}", "branch: main"]
        assert ULID.fullmatch(lines[2].removeprefix("parent: "))
        assert lines[3] == "actor: bob"
        assert re.fullmatch(r"authored_at: \d{16} \(\d{4}-\d\d-\d\dT[\d:.]+Z\)", lines[4])
        assert lines[5:] == [
            "update node Person Ann",
            "  age: 30 -> 31",
            "insert node Person Dan",
            "  + age: 4",
            "  + name: Dan",
            "update edge Knows e1",
            "  Ann -> Bob => Ann -> Cid",
        ]
        assert "  + age: <null>\n" in printed("commit", "changes", first)

    def test_commit_changes_of_delete_shows_the_old_values(self, folder: Path) -> None:
        load(folder, person("Ann", age=30), person("Bob"), knows("Ann", "Bob", id="e1"))
        outcome = run(
            "mutate", "-e", 'query d() { delete Person where name = "Ann" }', "--store", "g.omni", "--json"
        )
        commit = json.loads(outcome.stdout)["commit"]["graph_commit_id"]
        assert printed("commit", "changes", commit).splitlines()[-5:] == [
            "delete node Person Ann",
            "  - age: 30",
            "  - name: Ann",
            "delete edge Knows e1",
            "  Ann -> Bob",
        ]

    def test_commit_changes_json_equals_that_of_the_library(self, folder: Path) -> None:
        commit = load(folder, person("Ann", age=30), person("Bøb"))
        found = document("commit", "changes", commit)
        assert found.keys() == {"cause", "changes"}
        assert [(item["op"], item["id"]) for item in found["changes"]] == [
            ("insert", "Ann"),
            ("insert", "Bøb"),
        ]
        assert found["changes"][0]["after"] == {"properties": {"age": 30, "name": "Ann"}}

    def test_commit_changes_of_empty_commit_is_an_empty_list(self, folder: Path) -> None:
        load(folder, person("Ann"))
        commit = load(folder, person("Ann"), mode="overwrite")
        assert document("commit", "changes", commit)["changes"] == []
        assert "Ann" not in printed("commit", "changes", commit)

    def test_commit_changes_prints_all_pages_or_the_requested_one(self, folder: Path) -> None:
        commit = load(folder, *(person(f"p{number}") for number in range(5)))
        assert len(document("commit", "changes", commit, "--limit", "2")["changes"]) == 5
        token = token_of("g.omni", commit)
        page = document("commit", "changes", commit, "--limit", "2", "--page-token", token)
        assert [item["id"] for item in page["changes"]] == ["p2", "p3"]
        shown = printed("commit", "changes", commit, "--limit", "2", "--page-token", token)
        assert shown.endswith(f"\nnext_page_token: {page['next_page_token']}\n")
        last = document("commit", "changes", commit, "--limit", "2", "--page-token", page["next_page_token"])
        assert [item["id"] for item in last["changes"]] == ["p4"]
        assert "next_page_token" not in last

    def test_commit_changes_filters_are_repeatable(self, folder: Path) -> None:
        load(folder, person("Ann"), person("Bob"))
        commit = load(folder, person("Ann", age=1), person("Cid"), knows("Ann", "Bob", id="e1"))

        def ids(*filters: str) -> list[str]:
            return [item["id"] for item in document("commit", "changes", commit, *filters)["changes"]]

        assert ids("--kind", "edge") == ["e1"]
        assert ids("--type", "Person", "--op", "insert") == ["Cid"]
        assert ids("--op", "update", "--op", "insert") == ["Ann", "Cid", "e1"]
        assert run("commit", "changes", commit, "--kind", "nodes", "--uri", "g.omni").code == 2
        assert "did you mean `Person`?" in refused("commit", "changes", commit, "--type", "Persn")

    def test_commit_changes_that_is_refused_prints_one_error(self, genesis: str) -> None:
        text = "is the first of its graph and has no parent to compare with"
        assert refused("commit", "changes", genesis) == f"error: commit '{genesis}' {text}\n"
        assert refused("commit", "changes", "x") == "error: commit 'x' not found\n"
        assert refused("commit", "changes", genesis, "--limit", "0") == (
            "error: change page limit must be greater than zero\n"
        )

    def test_commit_changes_escapes_control_characters(self, folder: Path) -> None:
        commit = load(folder, person("Ann\x1b[2J\nBob"))
        assert r"insert node Person Ann\x1b[2J\nBob" in printed("commit", "changes", commit).splitlines()


def token_of(uri: str, commit: str) -> str:
    import omnigraph as og

    token = og.open(uri, mode="r").changes(commit, limit=2).next_page_token
    assert token is not None
    return token


class TestPoll:
    def test_changes_poll_continues_from_its_cursor(self, folder: Path) -> None:
        found = document("changes", "poll")
        assert (found["blocks"], found["caught_up"]) == ([], True)
        commits = [load(folder, person("Ann")), load(folder, person("Bob"))]
        found = document("changes", "poll", "--cursor", found["cursor"])
        assert [block["cause"]["graph_commit_id"] for block in found["blocks"]] == commits
        assert [[item["id"] for item in block["changes"]] for block in found["blocks"]] == [["Ann"], ["Bob"]]
        assert list(found) == ["blocks", "cursor", "caught_up"]
        assert document("changes", "poll", "--cursor", found["cursor"])["blocks"] == []

    def test_changes_poll_prints_blocks_and_the_cursor(self, folder: Path) -> None:
        commits = [load(folder, person("Ann", age=1)), load(folder, person("Ann", age=2))]
        lines = printed("changes", "poll", "--start", "beginning").splitlines()
        assert [line for line in lines if line.startswith("commit: ")] == [
            f"commit: {id_}" for id_ in commits
        ]
        assert lines[5:9] == ["insert node Person Ann", "  + age: 1", "  + name: Ann", ""]
        assert lines[-2].startswith("cursor: ")
        assert lines[-1] == "caught_up: true"
        after = printed("changes", "poll", "--start", f"after:{commits[0]}")
        assert (commits[0] not in after.splitlines()[0], commits[1] in after) == (True, True)

    def test_changes_poll_filter_keeps_the_blocks(self, folder: Path) -> None:
        load(folder, person("Ann"))
        load(folder, person("Ann", age=2))
        found = document("changes", "poll", "--start", "beginning", "--op", "update")
        assert [len(block["changes"]) for block in found["blocks"]] == [0, 1]

    def test_changes_poll_of_branch(self, folder: Path) -> None:
        run("branch", "create", "dev", "--uri", "g.omni")
        commit = load(folder, person("Ann"), branch="dev")
        found = document("changes", "poll", "--branch", "dev", "--start", "beginning")
        assert [block["cause"]["graph_commit_id"] for block in found["blocks"]] == [commit]
        assert found["blocks"][0]["cause"]["authored_branch"] == "dev"
        assert document("changes", "poll", "--start", "beginning")["blocks"] == []

    def test_changes_poll_in_small_pages_prints_the_same(self, folder: Path) -> None:
        load(folder, *(person(name) for name in ("Ann", "Bob", "Cid")))
        load(folder, person("Dan"))
        load(folder, *(person(name) for name in ("Ann", "Bob", "Cid", "Dan")), mode="overwrite")
        load(folder, person("Eve"), knows("Ann", "Eve", id="e1"))
        whole = document("changes", "poll", "--start", "beginning")
        assert [len(block["changes"]) for block in whole["blocks"]] == [3, 1, 0, 2]
        for limit in ("1", "2"):
            assert document("changes", "poll", "--start", "beginning", "--limit", limit) == whole
        text = printed("changes", "poll", "--start", "beginning")
        assert printed("changes", "poll", "--start", "beginning", "--limit", "2") == text

    def test_changes_poll_ends_before_an_unreadable_commit(self, folder: Path) -> None:
        import omnigraph as og

        commit = load(folder, person("Ann"))
        with og.open("g.omni", durability="os") as graph:
            graph.schema.apply(graph.schema.source().replace("age: I32?", "age: I32?\n  town: String?"))
        load(folder, person("Bob"))
        found = document("changes", "poll", "--start", "beginning")
        assert [block["cause"]["graph_commit_id"] for block in found["blocks"]] == [commit]
        assert found["caught_up"] is False
        assert "changed the schema" in refused("changes", "poll", "--cursor", found["cursor"])
        assert refused("changes", "poll", "--cursor", found["cursor"], "--json")

    def test_changes_poll_with_invalid_cursor_or_start_is_refused(self) -> None:
        assert refused("changes", "poll", "--cursor", "nonsense").startswith(
            "error: change cursor rejected: "
        )
        assert "use now, beginning or after:<commit id>" in refused("changes", "poll", "--start", "soon")
        outcome = run("changes", "poll", "--cursor", "x", "--start", "now", "--uri", "g.omni")
        assert (outcome.code, outcome.stdout) == (2, "")

    def test_changes_poll_prints_many_changes(self, folder: Path) -> None:
        load(folder, *(person(f"p{number}") for number in range(2000)))
        outcome = run_process("changes", "poll", "--start", "beginning", "--uri", "g.omni")
        assert (outcome.returncode, outcome.stdout.count(b"insert node")) == (0, 2000)


class TestBaseline:
    def test_changes_baseline_writes_a_file_and_prints_the_cursor(self, folder: Path) -> None:
        commit = load(folder, person("Ann"), person("Bob"), knows("Ann", "Bob"))
        found = document("changes", "baseline", "--out", "b.ndjson")
        assert found["snapshot_commit_id"] == commit
        lines = (folder / "b.ndjson").read_text().splitlines()
        assert json.loads(lines[-1]) == {"baseline": found}
        assert len(lines) == 4
        assert not list(folder.glob("*.lock"))
        later = load(folder, person("Cid"))
        blocks = document("changes", "poll", "--cursor", found["resume_cursor"])["blocks"]
        assert [block["cause"]["graph_commit_id"] for block in blocks] == [later]
        assert printed("changes", "baseline", "--out", "c.ndjson", "--kind", "node").startswith(
            f"snapshot_commit_id: {later}\nresume_cursor: "
        )

    def test_load_of_a_baseline_file_as_it_is_gives_the_same_export(self, folder: Path) -> None:
        load(folder, person("Ann"), person("Bob"), knows("Ann", "Bob"))
        printed("changes", "baseline", "--out", "b.ndjson")
        for mode in ("append", "merge", "overwrite"):
            make_graph(f"{mode}.omni")
            outcome = run("load", f"{mode}.omni", "--data", "b.ndjson", "--mode", mode)
            assert outcome.code == 0, outcome.stderr
            assert run("export", f"{mode}.omni").stdout == run("export", "g.omni").stdout

    def test_load_of_a_record_that_is_almost_a_baseline_is_refused(self, folder: Path) -> None:
        path = write(folder / "odd.ndjson", '{"baseline": {"resume_cursor": "x"}}\n')
        outcome = run("load", "g.omni", "--data", str(path), "--mode", "append")
        assert outcome.code == 1
        assert "line 1: graph batch record must contain exactly one of" in outcome.stderr

    def test_changes_baseline_in_missing_folder_is_refused(self, folder: Path) -> None:
        assert refused("changes", "baseline", "--out", "no/b.ndjson") == "error: no such folder: no\n"
        assert not (folder / "no").exists()
        assert run("changes", "baseline", "--uri", "g.omni").code == 2


class TestDiff:
    def test_diff_prints_the_changes_between_branches(self, folder: Path, genesis: str) -> None:
        load(folder, person("Ann", age=1))
        run("branch", "create", "dev", "--uri", "g.omni")
        load(folder, person("Ann"), person("Bob"), branch="dev")
        assert printed("diff", "main", "dev").splitlines() == [
            "update node Person Ann",
            "  age: 1 -> <null>",
            "insert node Person Bob",
            "  + age: <null>",
            "  + name: Bob",
        ]
        assert printed("diff", "main", "dev", "--stat") == "Person: 1 insert, 1 update\n"
        assert printed("diff", "dev", "main", "--op", "delete", "--stat") == "Person: 1 delete\n"
        assert printed("diff", "main", "main") == ""
        assert printed("diff", genesis, "main", "--stat") == "Person: 1 insert\n"

    def test_diff_json_has_changes_or_counts(self, folder: Path, genesis: str) -> None:
        commit = load(folder, person("Ann", age=1))
        found = document("diff", genesis, "main")
        assert (found["from_graph_commit_id"], found["to_graph_commit_id"]) == (genesis, commit)
        assert [(item["op"], item["id"]) for item in found["changes"]] == [("insert", "Ann")]
        counts = {"Person": {"insert": 1, "update": 0, "delete": 0}}
        assert document("diff", genesis, "main", "--stat")["stats"] == counts
        assert document("diff", "main", "main")["changes"] == []

    def test_diff_accepts_a_time_on_main(self, folder: Path) -> None:
        load(folder, person("Ann"))
        assert "the graph did not exist yet" in refused("diff", "1999-12-31", "main")
        assert printed("diff", "main", "2999-01-01") == ""

    def test_diff_omits_property_that_a_state_lacks(self, folder: Path) -> None:
        import omnigraph as og

        load(folder, person("Ann", age=1))
        g = og.open("g.omni")
        before = g.snapshot().commit_id
        schema = g.schema.source().replace("age: I32?", "age: I32?\n  town: String?")
        g.schema.apply(schema, backfill={"Person.town": "Bern"})
        assert printed("diff", before, "main") == "update node Person Ann\n  town: <absent> -> Bern\n"
        assert printed("diff", "main", before) == "update node Person Ann\n  town: Bern -> <absent>\n"

    def test_diff_of_unknown_state_suggests_the_nearest_branch(self) -> None:
        assert refused("diff", "main", "mian") == (
            "error: 'mian' is neither a branch, a tag nor a commit\nhint: did you mean `main`?\n"
        )

    def test_read_commands_of_changes_write_nothing(self, folder: Path) -> None:
        add_people("g.omni", "Ann")
        before = sorted(folder.rglob("*"))
        printed("diff", "main", "main")
        printed("changes", "poll", "--start", "beginning")
        assert sorted(folder.rglob("*")) == before

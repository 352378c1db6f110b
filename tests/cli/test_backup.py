"""`omnigraph backup`, `restore` and `clone`: output, JSON and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_guides import run_page
from tests.cli.console import replay
from tests.cli.graphs import add_people, make_graph
from tests.cli.running import ROOT, run

GUIDE = ROOT / "docs" / "guide" / "backup.md"


@pytest.fixture
def graph(folder: Path) -> Path:
    make_graph("g.omni")
    add_people("g.omni", "Ann")
    return folder / "g.omni"


def document(*args: str) -> Any:
    outcome = run(*args, "--json")
    assert outcome.code == 0, outcome.stderr
    return json.loads(outcome.stdout)


@pytest.mark.usefixtures("graph")
class TestCommands:
    def test_backup_prints_what_was_copied_and_the_heads(self) -> None:
        commit = add_people("g.omni", "Bob")
        outcome = run("backup", "g.omni", "b.omni")
        assert (outcome.code, outcome.stderr) == (0, "omnigraph backup g.omni → b.omni\n")
        first, head = outcome.stdout.splitlines()
        assert first.startswith("backup g.omni → b.omni — 3 commits (3 new), copied ")
        assert head == f"main {commit}"
        again = run("backup", "g.omni", "b.omni", "--quiet")
        assert again.stderr == ""
        assert again.stdout.startswith("backup g.omni → b.omni — up to date, 3 commits\n")

    def test_backup_restore_and_clone_as_json_have_one_shape(self) -> None:
        reports = [
            document("backup", "g.omni", "b.omni"),
            document("restore", "b.omni", "r.omni", "--verify", "full"),
            document("clone", "g.omni", "c.omni", "--branch", "main", "--no-history"),
        ]
        assert [item["operation"] for item in reports] == ["backup", "restore", "clone"]
        assert len({tuple(item) for item in reports}) == 1
        assert len({item["heads"]["main"] for item in reports}) == 1
        assert len({item["graph_id"] for item in reports}) == 2
        assert [item["verified"] for item in reports] == ["sizes", "digests", "sizes"]

    def test_backup_and_restore_with_skip_damaged_list_the_files_and_fail(self, graph: Path) -> None:
        damaged = min((graph / "nodes").rglob("data/*.lance"))
        damaged.unlink()
        assert run("backup", "g.omni", "b.omni").code == 1
        outcome = run("backup", "g.omni", "b.omni", "--skip-damaged")
        name = damaged.relative_to(graph).as_posix()
        assert outcome.code == 1
        assert f"left out {name}: it does not exist" in outcome.stdout.splitlines()
        assert "left out 1 file; `omnigraph verify --all-commits b.omni` shows what is lost" in outcome.stderr
        restored = run("restore", "b.omni", "r.omni", "--skip-damaged", "--json")
        assert restored.code == 1
        assert json.loads(restored.stdout)["damaged"] == [{"file": name, "problem": "it does not exist"}]

    def test_export_of_backup_restore_and_clone_equals_that_of_the_graph(self) -> None:
        for command, source, target in (
            ("backup", "g.omni", "b.omni"),
            ("restore", "b.omni", "r.omni"),
            ("clone", "g.omni", "c.omni"),
        ):
            assert run(command, source, target).code == 0
            assert run("export", target).stdout == run("export", "g.omni").stdout

    def test_restore_into_a_place_that_is_not_empty_is_refused(self) -> None:
        run("backup", "g.omni", "b.omni")
        outcome = run("restore", "b.omni", "g.omni")
        assert outcome.code == 1
        assert "restore does not replace it" in outcome.stderr
        Path("other").mkdir()
        Path("other/file").write_text("x")
        assert "other is not empty" in run("restore", "b.omni", "other").stderr

    def test_write_to_a_backup_is_refused(self) -> None:
        run("backup", "g.omni", "b.omni")
        outcome = run("branch", "create", "x", "--uri", "b.omni")
        assert outcome.code == 1
        assert "is a backup, which can only be read" in outcome.stderr
        assert "omnigraph restore" in outcome.stderr

    def test_backup_since_an_unknown_commit_is_refused(self) -> None:
        outcome = run("backup", "g.omni", "b.omni", "--since", "nowhere")
        assert outcome.code == 1
        assert "commit 'nowhere' not found" in outcome.stderr

    def test_backup_of_a_served_graph_is_refused(self) -> None:
        outcome = run("backup", "https://example.org/graphs/team", "b.omni")
        assert outcome.code == 1
        assert "--server" in outcome.stderr


def test_every_command_of_the_page_prints_what_the_page_shows(folder: Path) -> None:
    assert folder.is_dir()
    make_graph("team.omni")
    add_people("team.omni", "Ann", "Bob")
    shown, real = replay(GUIDE.read_text(encoding="utf-8"))
    assert len(shown) > 3
    assert real == shown


def test_python_of_the_page_runs(folder: Path) -> None:
    assert folder.is_dir()
    make_graph("team.omni")
    assert run_page(GUIDE.read_text(encoding="utf-8"), GUIDE.name) == 4

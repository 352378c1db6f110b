"""The output in the guides is the actual output of the commands.

The commands of a page run in order in a copy of the examples, so they may change files and make graphs.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.console import Console, exchanges, replay
from tests.cli.graphs import abandon_load, add_people, heal, make_graph, some_days_ago
from tests.cli.running import ROOT, run

GUIDE = ROOT / "docs" / "guide"


@pytest.fixture(autouse=True)
def _in_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)


def make_team_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph that the page on branches looks at: two days old, with a branch and two interrupted loads."""
    with some_days_ago(Path("team.omni"), monkeypatch):
        make_graph("team.omni", actor="ann")
        add_people("team.omni", "Ann", "Bob", actor="ann")
        run("branch", "create", "review", "--uri", "team.omni", "--as", "bob")
        add_people("team.omni", "Cid", branch="review", actor="bob")
        abandon_load("team.omni", complete=False, actor="dan")
        abandon_load("team.omni", "Eve", "Fay", "Gus", complete=True, actor="dan")
        heal("team.omni")


@pytest.mark.parametrize("page", ["cli.md", "source-tools.md", "shell.md"])
def test_every_command_of_the_guide_prints_what_the_guide_shows(page: str) -> None:
    shown, real = replay((GUIDE / page).read_text(encoding="utf-8"))
    assert len(shown) > 7
    assert real == shown


def test_the_page_on_branches_shows_what_really_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    make_team_graph(monkeypatch)
    shown, real = replay((GUIDE / "branches-and-commits.md").read_text(encoding="utf-8"))
    assert len(shown) > 10
    assert real == shown


def test_the_guide_shows_every_command() -> None:
    pages = (GUIDE / "cli.md", GUIDE / "source-tools.md", GUIDE / "branches-and-commits.md")
    commands = [item.command.split()[1:3] for page in pages for item in exchanges(page.read_text("utf-8"))]
    assert {"schema check", "schema plan"} <= {" ".join(words) for words in commands}
    branches = {"branch create", "branch list", "branch merge", "branch delete"}
    assert branches <= {" ".join(words) for words in commands}
    assert {"commit list", "commit show"} <= {" ".join(words) for words in commands}
    assert {"init", "mutate", "snapshot", "cleanup", "lint", "fmt", "revert", "version"} <= {
        words[0] for words in commands
    }


def test_a_planted_difference_is_found() -> None:
    (item,) = exchanges("```console\n$ omnigraph version\nomnigraph 0\n```\n")
    assert Console().run(item.command) != item.output


@pytest.mark.parametrize(
    ("second", "right"), [("01M7F68NRJJYA661PHN2PSXM9J", True), ("01M7F68NRZ6B8ZZPTCMVTTX31P", False)]
)
def test_ids_may_differ_from_run_to_run_but_not_within_a_page(second: str, right: bool) -> None:
    make_graph("g.omni")
    line = "{} graph_branch=main graph_manifest_version=1\n"
    outputs = (line.format("01M7F68NRJJYA661PHN2PSXM9J"), line.format(second))
    shown, real = replay(
        "".join(f"```console\n$ omnigraph commit list g.omni\n{text}```\n" for text in outputs)
    )
    assert (shown == real) is right

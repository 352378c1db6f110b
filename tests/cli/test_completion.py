"""Shell completion of commands, option values, and the branches of the addressed graph."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.graphs import make_graph
from tests.cli.running import COMMAND, command_tree, run
from tests.support.waiting import HANG


@pytest.fixture(autouse=True)
def _graph(folder: Path) -> None:
    assert folder.is_dir()
    make_graph("g.omni")
    for name in ("mine", "other"):
        run("branch", "create", name, "--uri", "g.omni")


def completed(typed: str) -> list[str]:
    """What bash would offer at the end of what was typed."""
    words = typed.split(" ")
    asked: dict[str, str | None] = {
        "_OMNIGRAPH_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(words) - 1),
    }
    found = run(env=asked)
    assert found.stderr == ""
    return found.stdout.split()


def test_commands_are_completed_and_old_names_are_not() -> None:
    assert completed("omnigraph ex") == ["explain", "export"]
    assert completed("omnigraph re") == ["revert", "repair", "restore"]


def test_values_of_options_are_completed() -> None:
    assert completed("omnigraph query --format j") == ["json", "jsonl"]
    assert completed("omnigraph load --mode ") == ["overwrite", "append", "merge", "patch", "delete"]


@pytest.mark.parametrize(
    "typed",
    [
        "omnigraph query --store g.omni --branch m",
        "omnigraph --store g.omni mutate --branch m",
        # So does bash hand over what has a sign in it.
        "omnigraph get --store = g.omni --branch m",
        "omnigraph export g.omni --branch m",
        "omnigraph load g.omni --from m",
        "omnigraph branch merge --uri g.omni m",
        "omnigraph branch merge mine --uri g.omni --into m",
        "omnigraph revert COMMIT --uri g.omni --branch m",
    ],
)
def test_branches_of_the_graph_are_completed(typed: str) -> None:
    assert completed(typed) == ["main", "mine"]


@pytest.mark.parametrize(
    "typed",
    [
        "omnigraph query --branch m",
        "omnigraph query --store nowhere.omni --branch m",
        "omnigraph export 'g.omni --branch m",
        "omnigraph query --store ftp://x/g --branch m",
    ],
)
def test_nothing_is_offered_and_nothing_said_where_there_is_no_graph(typed: str) -> None:
    assert completed(typed) == []


def test_the_script_for_bash_can_be_shown() -> None:
    shown = subprocess.run(
        ["bash", "-c", f"{COMMAND} --show-completion; true"],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert "complete -o default -F _omnigraph_completion omnigraph" in shown.stdout


def test_branches_and_states_are_completed_for_every_command() -> None:
    named = [
        (" ".join(words), parameter)
        for words, command in command_tree()
        for parameter in command.params
        if parameter.metavar in ("BRANCH", "SOURCE", "STATE", "COMMIT", "COMMIT|TIME")
    ]
    assert len(named) > 40
    assert [words for words, item in named if not item._custom_shell_complete] == []

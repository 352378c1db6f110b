"""The guide to the command line shows what the commands really print.

In a ``console`` block a line that begins with ``$ `` is a command and what follows it is its output, errors
included. ``echo $?`` prints the exit code before it. The commands of a page run in order in a copy of the
examples, so they may change files.
"""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.running import ROOT, run

PAGE = ROOT / "docs" / "guide" / "cli.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Exchange:
    """A command and what the page says it prints."""

    command: str
    output: str


def exchanges(text: str) -> list[Exchange]:
    found: list[Exchange] = []
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Exchange(command, output))
    return found


class Console:
    """As much of a shell as the page needs; anything else in it is refused."""

    def __init__(self) -> None:
        self._code = 0

    def run(self, command: str) -> str:
        words = shlex.split(command)
        stdin = ""
        if "<" in words:
            place = words.index("<")
            stdin = Path(words[place + 1]).read_text(encoding="utf-8")
            words[place : place + 2] = []
        match words:
            case ["echo", "$?"]:
                return f"{self._code}\n"
            case ["cat", path]:
                self._code = 0
                return Path(path).read_text(encoding="utf-8")
            case ["omnigraph", *args]:
                outcome = run(*args, stdin=stdin)
                self._code = outcome.code
                return outcome.output
        raise AssertionError(f"the guide's console does not know: {command}")


@pytest.fixture(autouse=True)
def _in_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)


def test_every_command_of_the_guide_prints_what_the_guide_shows() -> None:
    console = Console()
    shown = exchanges(PAGE.read_text(encoding="utf-8"))
    assert len(shown) > 10
    real = [Exchange(item.command, console.run(item.command)) for item in shown]
    assert real == shown


def test_the_guide_shows_every_command() -> None:
    commands = {" ".join(item.command.split()[1:3]) for item in exchanges(PAGE.read_text(encoding="utf-8"))}
    assert {"schema check", "schema plan", "version"} <= commands
    assert {"lint", "fmt"} <= {command.split()[0] for command in commands}


def test_a_planted_difference_is_found() -> None:
    (item,) = exchanges("```console\n$ omnigraph version\nomnigraph 0\n```\n")
    assert Console().run(item.command) != item.output

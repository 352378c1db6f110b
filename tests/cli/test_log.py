"""`omnigraph log`, `history` and `blame`, and the pager that shows long output on a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.render.pager import paged_output
from tests.cli.running import PEOPLE, run

LINE = re.compile(r"[0-9A-Z]{10,26}  \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log")


@pytest.fixture(autouse=True, scope="module")
def graph(folder: Path) -> Iterator[og.Graph]:
    """Ann was added on main, changed on the branch `work`, which was merged, and Bob was added and deleted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with og.init("g.omni", PEOPLE, durability="os", actor="ann") as g:
            g.load({"Person": [{"name": "Ann", "age": 1}]}, message="add Ann\x1b[2J")
            g.branches.create("work")
            g.load(
                {"Person": [{"name": "Ann", "age": 2}]}, "merge", branch="work", actor="bo", message="older"
            )
            g.load({"Person": [{"name": "Bob"}]})
            g.branches.merge("work")
            g.mutate('query remove() { delete Person where name = "Bob" }')
            g.tags.create("v1", "HEAD~1")
            yield g


def lines(*args: str) -> list[str]:
    outcome = run(*args)
    assert (outcome.code, outcome.stderr) == (0, ""), outcome.stderr
    return outcome.stdout.splitlines()


def test_log_prints_a_line_for_each_commit_with_its_tags_and_message() -> None:
    found = lines("log", "g.omni")
    assert all(LINE.match(line) for line in found), found
    assert [LINE.sub("", line) for line in found] == [
        "ann  mutate  main",
        "ann  merge   main  [v1]",
        "ann  load    main",
        "ann  load    main  add Ann\\x1b[2J",
        "ann  init    main",
    ]
    assert [LINE.sub("", line) for line in lines("log", "g.omni", "--merged", "--actor", "bo")] == [
        "bo  load  work  older"
    ]
    assert lines("log", "g.omni", "-n", "2") == found[:2]
    older = lines("log", "g.omni", "--at", "HEAD~3")
    assert [line.split() for line in older] == [line.split() for line in found[3:]]
    assert len(lines("log", "g.omni", "--type", "Person")) == 5
    assert len(lines("log", "g.omni", "--type", "Knows")) == 1
    assert lines("log", "g.omni", "--since", "2999-01-01") == []
    assert lines("log", "g.omni", "--since", "1d") == found
    shown = json.loads(run("log", "g.omni", "-n", "1", "--json").stdout)["commits"]
    assert [(item["operation"], item["actor_id"]) for item in shown] == [("mutate", "ann")]


def test_log_short_id_names_the_commit(graph: og.Graph) -> None:
    short = [line.split()[0] for line in lines("log", "g.omni", "--merged")]
    commits = graph.commits(limit=None, merged=True)
    assert [json.loads(run("commit", "show", id_, "--uri", "g.omni", "--json").stdout) for id_ in short] == [
        json.loads(run("commit", "show", commit.id, "--uri", "g.omni", "--json").stdout) for commit in commits
    ]


def test_log_draw_shows_the_merged_branch() -> None:
    drawn = [line.split("  ")[0].rstrip() for line in lines("log", "g.omni", "--draw")]
    assert [re.sub(r" ?[0-9A-Z]{10,}.*", "", line) for line in drawn] == [
        "*",
        "*",
        "|\\",
        "* |",
        "| *",
        "|/",
        "*",
        "*",
    ]
    refused = run("log", "g.omni", "--draw", "--actor", "ann")
    assert refused.code == 2


def test_log_of_an_unknown_type_or_duration_is_refused() -> None:
    assert "unknown type 'Persn'; did you mean `Person`?" in run("log", "g.omni", "--type", "Persn").stderr
    assert "'soon' is not a duration" in run("log", "g.omni", "--since", "soon").stderr


def test_history_prints_the_versions_and_what_they_changed() -> None:
    found = lines("history", "Person", "Ann", "--store", "g.omni")
    assert [LINE.sub("", line) for line in found] == [
        "bo  update  load on work: older",
        "  age: 1 -> 2",
        "ann  insert  load on main: add Ann\\x1b[2J",
        "  + age: 1",
        "  + name: Ann",
    ]
    deleted = lines("history", "Person", "Bob", "--store", "g.omni", "-n", "1")
    assert LINE.sub("", deleted[0]) == "ann  delete  mutate on main"
    body = json.loads(run("history", "Person", "Ann", "--store", "g.omni", "--json").stdout)
    assert [item["op"] for item in body["versions"]] == ["update", "insert"]
    missing = run("history", "Person", "Nemo", "--store", "g.omni")
    assert (missing.code, missing.stderr) == (1, "error: no Person has or had the id 'Nemo'\n")


def test_blame_prints_the_commit_of_each_property() -> None:
    head, _, *rows = (line.split(" | ") for line in lines("blame", "Person", "Ann", "--store", "g.omni"))
    assert [cell.strip() for cell in head] == ["property", "value", "commit", "time", "actor", "message"]
    assert [[row[index].strip() for index in (0, 1, 4, 5)] for row in rows] == [
        ["age", "2", "bo", "older"],
        ["name", "Ann", "ann", "add Ann\\x1b[2J"],
    ]
    body = json.loads(run("blame", "Person", "Ann", "--store", "g.omni", "--json").stdout)
    assert [item["operation"] for item in body["properties"]] == ["load", "load"]
    assert run("blame", "Person", "Bob", "--store", "g.omni").code == 1
    assert run("blame", "Person", "Bob", "--store", "g.omni", "--snapshot", "HEAD~1").code == 0


@dataclass(frozen=True)
class Terminal:
    """A terminal of 10 lines: what the program writes to, and the descriptor of the other side."""

    stream: io.TextIOWrapper
    screen: int

    def print(self, count: int) -> None:
        """Print numbers through the pager."""
        with redirect_stdout(self.stream), paged_output():
            for number in range(count):
                print(number, flush=number % 3 == 0)  # noqa: T201 - what is paged

    def read(self) -> list[str]:
        """Return the words that are on the screen."""
        return os.read(self.screen, 4096).decode().split()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    for name, value in {"LINES": "10", "COLUMNS": "80", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    ours, theirs = pty.openpty()
    with io.TextIOWrapper(open(theirs, "wb", 0), encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
        yield Terminal(stream, ours)
    os.close(ours)


def test_output_longer_than_the_terminal_is_shown_in_the_pager(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PAGER", f"tee {tmp_path}/paged")
    terminal.print(9)
    assert terminal.read() == [str(number) for number in range(9)]
    assert not (tmp_path / "paged").exists()
    terminal.print(500)
    assert (tmp_path / "paged").read_text().split() == [str(number) for number in range(500)]


def test_pager_that_ends_early_or_does_not_start_ends_no_command(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", "true")
    terminal.print(100_000)
    monkeypatch.setenv("PAGER", "no-such-pager")
    terminal.print(20)
    assert terminal.read()[-1] == "19"

"""`omnigraph shell`: scripts, dot commands, completion, and the prompt on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pyarrow.parquet as pq
import pytest
from pexpect.fdpexpect import fdspawn
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import omnigraph as og
from omnigraph.cli.shell.completion import complete
from omnigraph.cli.shell.highlighting import STYLES, highlight
from omnigraph.cli.shell.prompt import make_prompt
from omnigraph.cli.shell.session import Session
from omnigraph.cli.shell.statements import is_whole, split_statements
from omnigraph.cli.shell.vocabulary import Vocabulary
from tests.cli.running import COMMAND, Outcome, run, write
from tests.server.running import Running
from tests.support.waiting import HANG

SCHEMA = """\
node Person { name: String @key  age: I32? }
node Firm { slug: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Firm { role: String? }
"""
ID = re.compile(r"\b01[0-9A-Z]{24}\b")


@pytest.fixture
def graph(home: Path, folder: Path) -> Iterator[og.Graph]:
    """Ann and Bob on main, and Cid on the branch `dev`."""
    assert home.parent == folder
    with og.init("g.omni", SCHEMA, durability="os") as g:
        g.load({"Person": [{"name": "Ann", "age": 30}, {"name": "Bob"}]}, message="two")
        g.branches.create("dev")
        g.insert("Person", {"name": "Cid", "age": 9}, branch="dev")
        g.tags.create("v1")
        yield g


def script(text: str, *args: str) -> Outcome:
    return run("shell", "g.omni", *args, stdin=text)


def shown(text: str, *args: str) -> str:
    outcome = script(text, *args)
    assert (outcome.code, outcome.stderr) == (0, ""), outcome.stderr
    return outcome.stdout


ALL = "match { $p: Person } return { $p.name, $p.age } order { $p.name }"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("match { $p: A }\n\nreturn { $p.x }\norder { $p.x }", 1),
        ("match { $p: A } return { $p.x }\n\nmatch { $p: A } return { $p.x }", 2),
        ("match { $p: A } return { $p.x }\nmatch { $p: A } return { $p.x }", 2),
        ('insert A { x: ";" } // ;\ninsert A { x: "\n\n" }', 1),
        ("insert A { x: 1 }; insert A { x: 2 };;", 2),
        ("insert A { x: 1 }\n\ninsert A { x: 2 }", 2),
        ("query a() {\n  match { $p: A }\n\n  return { $p.x }\n}\nquery b() { delete A where x = 1 }", 2),
        (".tables\n.log 3\nmatch { $p: A } return { $p.x } /* \n\n */ limit 3\n.quit", 4),
        ("// nothing\n\n/* here */", 0),
        ("match { $p: A", 1),
    ],
)
def test_script_is_divided_into_statements(text: str, expected: int) -> None:
    found = list(split_statements(text))
    assert len(found) == expected
    assert all(item.text and item.text in text for item in found)
    lines = text.split("\n")
    assert all(item.text.split("\n")[0] in lines[item.line - 1] for item in found)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        (".tables", True),
        ("match { $p: Person }", False),
        ("match { $p: Person } return {", False),
        ('match { $p: Person { name: "A', False),
        (f"{ALL} limit 1", True),
        ("match { $p: Person };", True),
        ("query q($n: I64) {", False),
        ("SELECT * FROM Person", True),
        ("match (p:Person) return p", True),
    ],
)
def test_text_at_the_prompt_is_run_when_it_is_whole(text: str, whole: bool) -> None:
    assert is_whole(text) is whole


def test_script_runs_queries_and_mutations(graph: og.Graph) -> None:
    text = shown(f"""
insert Person {{ name: "Dov", age: 7 }}
insert Knows {{ from: "Dov", to: "Ann" }}

{ALL}
delete Person where name = "Nemo"
""")
    assert ID.sub("ID", text).splitlines() == [
        "changed main: 1 node, 1 edge (commit ID)",
        "p.name | p.age",
        "-------+------",
        "Ann    |    30",
        "Bob    |  null",
        "Dov    |     7",
        "3 rows",
        "changed main: 0 nodes, 0 edges (nothing to commit)",
    ]
    assert graph.commits()[0].operation == "mutate"
    assert len(graph.commits()) == 3


@pytest.mark.usefixtures("graph")
def test_commands_print_the_graph() -> None:
    assert [line.split(" | ") for line in shown(".tables").splitlines()[2:]] == [
        ["Firm   ", "node", "   0"],
        ["Person ", "node", "   2"],
        ["Knows  ", "edge", "   0"],
        ["WorksAt", "edge", "   0"],
    ]
    assert shown(".schema\n") == SCHEMA
    assert shown(".schema WorksAt") == "edge WorksAt: Person -> Firm { role: String? }\n"
    assert shown(".get Person Ann") == "id: Ann\nage: 30\nname: Ann\n"
    assert shown(".log 1").rstrip().endswith("load  main  [v1] two")
    assert shown(".branch\n.branch dev\n.branch") == "  dev\n* main\n* dev\n  main\n"
    assert shown(".diff main dev") == "insert node Person Cid\n  + age: 9\n  + name: Cid\n"
    assert shown(".branch dev\n.diff HEAD~1") == "insert node Person Cid\n  + age: 9\n  + name: Cid\n"
    assert "key lookup in node:Person" in shown(
        '.explain match { $p: Person { name: "Ann" } } return { $p.age }'
    )
    assert ".export FILE" in shown(".help")


def test_branch_and_state_decide_what_queries_read_and_write(graph: og.Graph) -> None:
    outcome = script(
        '.branch create trial\ninsert Firm { slug: "a" }\n.tables\n.at HEAD~1\n.tables\ninsert Firm { slug: "b" }'
    )
    assert [line.split()[-1] for line in outcome.stdout.splitlines() if line.startswith("Firm")] == ["1", "0"]
    assert outcome.code == 1
    assert "the shell reads the state HEAD~1, which cannot change" in outcome.stderr
    assert ".at now returns to branch trial" in outcome.stderr
    assert graph.snapshot("trial").commit_id != graph.snapshot("main").commit_id
    assert graph.get("Firm", "a") is None
    assert "did you mean `dev`?" in script(".branch dve").stderr
    assert "commit 'nowhere' not found" in script(".at nowhere").stderr


@pytest.mark.usefixtures("graph")
def test_declared_query_runs_with_its_parameters(folder: Path) -> None:
    write(folder / "q.gq", "query older($n: I32) { match { $p: Person  $p.age > $n } return { $p.name } }\n")
    declared = script('.queries q.gq\n.run older {"n": 20}\n.params {"n": 50}\n.run older')
    assert declared.code == 0
    assert [line for line in declared.stdout.splitlines() if "row" in line] == ["1 row", "0 rows"]
    assert '.run older {"n": …}' in declared.stdout
    inline = script("query older($n: I32) { match { $p: Person  $p.age > $n } return { $p.name } }")
    assert (inline.stdout, inline.stderr) == ("", 'older: run it with .run older {"n": …}\n')
    assert (
        "no query is called 'odler'\nhint: did you mean `older`?"
        in script(".queries q.gq\n.run odler").stderr
    )


def test_formats_limit_timer_and_export(graph: og.Graph, folder: Path) -> None:
    outcome = script(
        f".limit 1\n.timer on\n{ALL}\n.export all.parquet\n.export all.md\n.format jsonl\n.limit all\n{ALL}"
    )
    assert outcome.code == 0
    assert "1 of 2 rows; .limit N prints more" in outcome.stderr
    assert re.search(r"^time: \d+\.\d{3} s$", outcome.stderr, re.MULTILINE)
    assert pq.read_table(folder / "all.parquet").to_pylist() == graph.query(ALL).rows()
    assert (
        folder / "all.md"
    ).read_text() == "| p.name | p.age |\n| --- | --: |\n| Ann | 30 |\n| Bob | null |\n"
    assert json.loads(outcome.stdout.splitlines()[-1]) == {"p.name": "Bob", "p.age": None}
    assert "has no known suffix" in script(f"{ALL}\n.export all.xls").stderr
    assert "there is no result to export" in script(".export all.csv").stderr


def test_script_ends_at_its_first_error_with_the_line(graph: og.Graph) -> None:
    outcome = script(
        '// first\n.tables\n\nmatch { $p: Person }\nreturn { $p.nam }\n\ninsert Firm { slug: "x" }'
    )
    assert outcome.code == 1
    assert outcome.stderr.splitlines() == [
        "error: <query>:2:13: type error: T6: node type `Person` has no property `nam`; did you mean `name`?",
        "  return { $p.nam }",
        "              ^^^",
        "in the statement on line 4",
    ]
    assert graph.get("Firm", "x") is None
    assert "did you mean `.tables`?" in script(".tabels").stderr
    assert (
        "in .gq it is\n    match { $p: Person } return { $p.* }" in script("MATCH (p:Person) RETURN p").stderr
    )
    assert "in .gq it is" not in script("MATCH (p:Person) RETURN p.nam").stderr
    assert run("shell", "g.omni", "--read-only", "-c", 'insert Firm { slug: "x" }').code == 1
    assert run("shell", "g.omni", "-c", ".quit", "-c", ".nothing").code == 0
    assert run("shell", "g.omni", "--branch", "dve", "-c", ".quit").code == 1


def test_shell_of_a_server_runs_stored_queries_and_shows_where_errors_are(team: Running, home: Path) -> None:
    assert not home.exists()
    env = {"OMNIGRAPH_BEARER_TOKEN": "token-of-ann"}
    where = f"{team.url}/graphs/team"
    outcome = run("shell", where, "-c", ".queries", "-c", ".run everybody", "-c", ".tables", env=env)
    assert outcome.code == 0, outcome.stderr
    assert ".run everybody  (stored)" in outcome.stdout
    wrong = run("shell", where, "-c", "match { $p: Person } return { $p.nam }", env=env)
    assert "  match { $p: Person } return { $p.nam }\n                                   ^^^" in wrong.stderr
    assert "this looks like SQL" in run("shell", where, "-c", "select name from person", env=env).stderr


@pytest.mark.parametrize(
    ("before", "typed", "expected"),
    [
        (".ta", ".ta", [".tables"]),
        (".branch ", "", ["create", "dev", "main"]),
        (".branch d", "d", ["dev"]),
        (".at v", "v", ["v1"]),
        (".diff HEAD d", "d", ["dev"]),
        (".schema W", "W", ["WorksAt"]),
        (".format mark", "mark", ["markdown"]),
        (".run ol", "ol", ["older"]),
        (".explain match { $p: F", "F", ["Firm"]),
        (".read q.", "q.", ["q.gq"]),
        ("match { $p: ", "", ["Firm", "Person"]),
        ("match { $p: per", "per", ["Person"]),
        ("match { $p: Person { ", "", ["age", "name"]),
        ("match { $p: Person  $p kn", "kn", ["knows"]),
        ("match { $p: Person  $p $w: wo", "wo", ["worksAt"]),
        ("match { $p: Person  $p $w:worksAt $f } return { $w.", "", ["*", "role"]),
        ("match { $p: Person } return { $p.na", "na", ["name"]),
        ("match { $p: Person } return { $", "", ["p"]),
        ("match { $p: Person } re", "re", ["return"]),
        ("insert Wo", "Wo", ["WorksAt"]),
        ("insert WorksAt { fr", "fr", ["from"]),
        ("update Person set { age: 3, n", "n", ["name"]),
        ("delete Person where na", "na", ["name"]),
        ("match { $p: Person } return { cou", "cou", ["count("]),
    ],
)
def test_completion_offers_the_names_of_the_graph(
    graph: og.Graph, folder: Path, before: str, typed: str, expected: list[str]
) -> None:
    write(folder / "q.gq", "query older() { match { $p: Person } return { $p.name } }")
    session = Session(graph, "g.omni", is_interactive=False)
    session.run_query("query older($n: I32) { match { $p: Person  $p.age > $n } return { $p.name } }")
    found = complete(before, Vocabulary(session))
    assert (before[len(before) - found.typed :], found.texts) == (typed, expected)


def test_highlighting_keeps_the_text() -> None:
    text = 'match { $p: Person { name: "a\n" } } // no match\nreturn { count($p) as n } limit 3'
    lines = highlight(text)
    assert "\n".join("".join(piece for _, piece in line) for line in lines) == text
    kinds = {style: name for name, style in STYLES.items()}
    styled = [(kinds[style], piece) for line in lines for style, piece in line if style]
    assert ("keyword", "match") in styled
    assert ("type", "Person") in styled
    assert ("comment", "// no match") in styled
    assert ("string", '"a') in styled
    assert ("function", "count") in styled


def test_prompt_starts_a_line_until_the_statement_is_whole(graph: og.Graph, home: Path) -> None:
    session = Session(graph, "g.omni", is_interactive=True)
    with create_pipe_input() as keys:
        prompt = make_prompt(session, input=keys, output=DummyOutput())
        keys.send_text("match {\r$p: Person }\rreturn { $p.name }\r")
        assert prompt.prompt() == "match {\n  $p: Person }\n  return { $p.name }"
        keys.send_text(".tables\r")
        assert prompt.prompt() == ".tables"
    history = home / "shell_history"
    assert "+.tables" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


@contextmanager
def on_a_terminal(*args: str, environment: dict[str, str]) -> Iterator[fdspawn]:
    """Run a command on a terminal of its own.

    `pexpect.spawn` forks, which the system may refuse to a process that has opened thousands of graphs.
    """
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (40, 100))
    process = subprocess.Popen(
        [str(COMMAND), *args],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
        start_new_session=True,
    )
    os.close(follower)
    try:
        yield fdspawn(leader, encoding="utf-8", timeout=HANG)
        assert process.wait(HANG) == 0
    finally:
        process.kill()
        process.wait()
        os.close(leader)


@pytest.mark.usefixtures("graph")
def test_shell_on_a_terminal_completes_reports_errors_and_remembers(home: Path) -> None:
    environment = {
        **os.environ,
        "TERM": "xterm",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    with on_a_terminal("shell", "g.omni", environment=environment) as terminal:
        terminal.expect("main>")
        terminal.send(".bra\t")
        terminal.expect("nch")
        terminal.send(" dev\r")
        terminal.expect("dev>")
        terminal.send("match { $p: Person } return { $p.name, $p.oops }\r")
        terminal.expect(r"no property `oops`")
        terminal.expect(r"\^\^\^\^")
        terminal.send(f"{ALL}\r")
        terminal.expect("Cid .*3 rows")
        terminal.expect("dev>")
        terminal.send("match { $p: ")
        terminal.expect("match")
        # Ctrl-C drops the line, and Ctrl-D on an empty one ends the shell.
        terminal.send("\x03.branch main\r")
        terminal.expect("main>")
        terminal.send("\x04")
        terminal.expect(pexpect.EOF)
    assert "+.branch dev" in (home / "shell_history").read_text()

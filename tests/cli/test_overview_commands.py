"""Commands that give an overview, errors as JSON, idempotency keys, and options of older versions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.running import PEOPLE, run, serving

ADD = 'insert Person { name: "Ann", age: 1 }'


@pytest.fixture(autouse=True)
def graph(home: Path, folder: Path) -> Iterator[og.Graph]:
    assert home.parent == folder
    with og.init("g.omni", PEOPLE, durability="os", actor="ann") as g:
        g.load({"Person": [{"name": "Bob"}, {"name": "Cid"}], "Knows": [{"from": "Bob", "to": "Cid"}]})
        g.branches.create("dev")
        g.tags.create("v1")
        yield g


def test_status_prints_the_head_and_the_counts(graph: og.Graph) -> None:
    lines = dict(line.split(maxsplit=1) for line in run("status", "g.omni").stdout.splitlines())
    assert lines.pop("head").split()[3:] == ["ann", "load", "main", "[v1]"]
    assert lines == {
        "graph": "g.omni",
        "branch": "main",
        "nodes": "2 of 1 type",
        "edges": "1 of 1 type",
        "branches": "2",
        "tags": "1",
    }
    found = json.loads(run("status", "g.omni", "--branch", "dev", "--json").stdout)
    assert (found["branch"], found["nodes"], found["tags_of_head"]) == ("dev", 2, ["v1"])
    assert found["head"]["graph_commit_id"] == graph.commits()[0].id


def test_du_counts_every_byte_of_the_graph(folder: Path) -> None:
    found = json.loads(run("du", "g.omni", "--json").stdout)
    by_name = {item["type_name"]: item for item in found["tables"]}
    files = [path for path in (folder / "g.omni").rglob("*") if path.is_file()]
    assert found["total_bytes"] == sum(path.stat().st_size for path in files)
    data = [
        path
        for path in (folder / "g.omni" / "nodes").rglob("*")
        if path.is_file() and path.parent.name == "data"
    ]
    assert by_name["Person"]["data_bytes"] == sum(path.stat().st_size for path in data) > 0
    assert run("du", "g.omni").stdout.splitlines()[0].split() == [
        "type",
        "|",
        "kind",
        "|",
        "data",
        "|",
        "indexes",
        "|",
        "history",
        "|",
        "bytes",
    ]


def test_help_prints_commands_and_topics() -> None:
    assert "Topics: addressing, states" in run("help").stdout
    assert "main@{7}" in run("help", "states").stdout
    assert "Usage: omnigraph branch merge" in run("help", "branch", "merge").stdout
    assert "did you mean `branch`?" in run("help", "brnch").stderr


def test_explain_analyze_runs_the_query_and_prints_times() -> None:
    text = run(
        "explain", "--analyze", "-e", "match { $p: Person } return { $p.name }", "--store", "g.omni"
    ).stdout
    assert len(re.findall(r": 2 rows in \d+\.\d ms, processor \d+\.\d ms$", text, re.MULTILINE)) == 2


def test_error_of_a_command_with_json_is_json_on_stderr() -> None:
    wrong = run("query", "-e", "match { $p: Person } return { $p.nam }", "--store", "g.omni", "--json")
    assert (wrong.code, wrong.stdout) == (1, "")
    error = json.loads(wrong.stderr)
    assert error["code"] == "invalid_input"
    assert error["location"] == {"source": "<query>", "line": 1, "column": 34}
    assert "did you mean `name`?" in error["error"]
    missing = json.loads(run("log", "no.omni", "--json").stderr)
    assert (missing["code"], missing["hint"]) == ("not_found", "create one with init")


def test_write_with_an_idempotency_key_is_applied_once(graph: og.Graph, folder: Path) -> None:
    arguments = ["mutate", "-e", ADD, "--store", "g.omni", "--idempotency-key", "k1"]
    assert run(*arguments).code == 0
    commits = graph.commits()
    assert run(*arguments).stdout == f"already applied to main as commit {commits[0].id}\n"
    (folder / "more.jsonl").write_text('{"type":"Person","data":{"name":"Dov"}}\n')
    load = [
        "load",
        "g.omni",
        "--data",
        "more.jsonl",
        "--mode",
        "append",
        "--idempotency-key",
        "k2",
        "--quiet",
    ]
    assert [run(*load).code, run(*load).code] == [0, 0]
    assert len(graph.commits()) == len(commits) + 1


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["query", "--alias", "x"], "omnigraph alias NAME"),
        (["query", "--name=x", "--query", "q.gq"], "omnigraph query NAME --query FILE"),
        (["serve", "--config", "x.yaml"], "omnigraph serve CONFIG"),
        (["query", "--config", "x.yaml"], "~/.omnigraph/config.yaml"),
        (["query", "g.omni", "-e", ADD], "--store g.omni"),
        (["mutate", "https://example.org/graphs/g", "-e", ADD], "--server https://example.org/graphs/g"),
    ],
)
def test_option_of_an_older_version_is_refused_with_what_replaces_it(arguments: list[str], hint: str) -> None:
    outcome = run(*arguments)
    assert outcome.code == 1
    assert hint in outcome.stderr.splitlines()[-1]


def test_serve_of_one_graph_serves_it_by_its_name() -> None:
    with serving("g.omni", "--unauthenticated") as address:
        outcome = run("status", "--server", f"http://{address}", "--graph", "g")
    assert "nodes     2 of 1 type" in outcome.stdout

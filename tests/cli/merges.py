"""A graph with two branches that can be made to conflict, and the commands that merge them."""

from __future__ import annotations

from typing import Any

import omnigraph as og
from tests.cli.running import Outcome, run

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
  born: Date?
  email: String? @unique
}

edge Knows: Person -> Person @card(0..1)
"""
TO = ("--uri", "g.omni")


def make_two_branches() -> og.Graph:
    """Create a graph with three people, and a branch `review` without commits."""
    made = og.init("g.omni", schema=SCHEMA, durability="os")
    made.load({"Person": [{"name": name, "age": 30} for name in ("Ann", "Bob", "Cid")]})
    made.branches.create("review")
    return made


def put(graph: og.Graph, branch: str, **row: Any) -> str:
    """Write all properties of one person. Return the commit."""
    done = graph.load({"Person": [{"age": 30, **row}]}, mode="merge", branch=branch)
    assert done.commit is not None
    return done.commit.id


def disagree(graph: og.Graph) -> dict[str, str]:
    """Change Ann's age and date of birth on both branches. Return the ids of the conflicts by property."""
    put(graph, "review", name="Ann", age=31, born="1995-05-01")
    put(graph, "main", name="Ann", age=32, born="1994-04-01")
    found = graph.branches.merge("review", dry_run=True).conflicts
    return {item["property"]: item["id"] for item in found}


def merge(*args: str, stdin: str = "") -> Outcome:
    """Merge `review`, without the line that names the target."""
    return run("branch", "merge", "review", *args, *TO, "--quiet", stdin=stdin)


def person(graph: og.Graph, name: str) -> dict[str, Any] | None:
    """Return a person on `main`."""
    return graph.get("Person", name)


def heads(graph: og.Graph) -> list[str]:
    """Return the heads of the branches."""
    return [graph.snapshot(name).commit_id for name in graph.branches.list()]


def table(text: str) -> list[dict[str, str]]:
    """Return the rows of the table in a text."""
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if set(line) == {"-", "+"})
    names = [part.strip() for part in lines[start - 1].split(" | ")]
    rows = []
    for line in lines[start + 1 :]:
        if " | " not in line:
            break
        rows.append(dict(zip(names, (part.strip() for part in line.split(" | ")), strict=True)))
    return rows

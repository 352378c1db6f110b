"""The corpus of reads: graphs, queries on them, and the exact rows that each must give.

`NAME.graph` is a schema, a line ``---`` and NDJSON records. `NAME.reads` names its graph and holds cases:

    == a sentence that says what the case shows
    match { $p: Person { name: $n } } return { $p.age }
    with ($n: String) {"n": "Ann"}
    -> {"p.age": 30} {"p.age": 31}

A query is written without its head; ``with`` gives the declared parameters and their values. ``->`` is followed
by rows, by ``nothing``, or by ``error`` and the code of a type error if it has one. Rows stand in order when the
query orders them. Where a query has a limit but no order, ``~>`` gives all rows that it may choose from. A line
that begins with ``#`` is a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from omnigraph.lang import ir
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.source import Source
from tests.differential.naive import JsonRow, NaiveResult
from tests.differential.naive_graph import NaiveGraph, graph_of

READS = Path(__file__).parent.parent / "golden" / "reads"
_ROWS = re.compile(r"[-~]> ")


@dataclass(frozen=True)
class Case:
    """One query and what is expected of it: rows in `rows`, or the code of an error, empty if it has none."""

    file: str
    graph: str
    title: str
    text: str
    params: dict[str, Any] = field(default_factory=dict)
    rows: tuple[JsonRow, ...] = ()
    error: str | None = None
    is_choice: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.title}"


@cache
def load_graph(name: str) -> NaiveGraph:
    """The graph of that name."""
    text = _uncommented((READS / f"{name}.graph").read_text(encoding="utf-8"))
    schema, _, records = text.partition("\n---\n")
    return graph_of(schema, [json.loads(line) for line in records.splitlines() if line.strip()])


def load_cases() -> list[Case]:
    """Every case, by file and in the order written."""
    return [case for path in sorted(READS.glob("*.reads")) for case in _cases_of(path)]


def check_text(text: str, graph: NaiveGraph) -> ir.ReadQuery:
    """The IR of a read, or the error of whatever is wrong with it."""
    source = Source(text, "query")
    query = check_query(parse_queries(source).queries[0], graph.catalog.schema, source)
    assert isinstance(query, ir.ReadQuery)
    return query


def expected_result(case: Case, query: ir.ReadQuery) -> NaiveResult:
    """What the case expects, with what it leaves open about the order of rows."""
    if query.order:
        return NaiveResult(tuple((row,) for row in case.rows), 0, None)
    return NaiveResult((case.rows,), *((query.skip or 0, query.limit) if case.is_choice else (0, None)))


def _cases_of(path: Path) -> Iterator[Case]:
    head, *parts = re.split(r"^== ", _uncommented(path.read_text(encoding="utf-8")), flags=re.MULTILINE)
    graph = head.strip().removeprefix("graph: ")
    for part in parts:
        title, *lines = part.strip().splitlines()
        yield _case(path.stem, graph, title, lines)


def _case(file: str, graph: str, title: str, lines: list[str]) -> Case:
    given = next((line for line in lines if line.startswith("with ")), "with () {}")
    declared, _, values = given.removeprefix("with ").partition(") ")
    body = [line for line in lines if not line.startswith("with ") and not _ROWS.match(line)]
    expected = [line for line in lines if _ROWS.match(line)]
    assert expected, f"{file}: {title} expects nothing"
    text = f"query q{declared}) {{\n" + "\n".join(body) + "\n}\n"
    params = json.loads(values)
    said = expected[0][3:]
    if said == "error" or said.startswith("error "):
        return Case(file, graph, title, text, params, error=said.removeprefix("error").strip())
    rows = () if said == "nothing" else tuple(row for line in expected for row in _rows(line[3:]))
    return Case(file, graph, title, text, params, rows, is_choice=expected[0].startswith("~"))


def _rows(line: str) -> Iterator[JsonRow]:
    decoder = json.JSONDecoder()
    rest = line.strip()
    while rest:
        row, end = decoder.raw_decode(rest)
        yield row
        rest = rest[end:].strip()


def _uncommented(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))

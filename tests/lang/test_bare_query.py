"""Queries without a declaration, with positions in the text that the user wrote."""

from __future__ import annotations

import pytest

from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.gq.bare_query import query_source
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.pg.schema_compiler import load_schema

SCHEMA = load_schema("node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person")


def check(text: str) -> str:
    source = query_source(text)
    return check_query(parse_queries(source).queries[0], SCHEMA, source).name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("match { $p: Person } return { $p.name } // the end", "read"),
        ("// people\nmatch { $p: Person } return { $p.name } order { $p.name } skip 1 limit 2", "read"),
        ('insert Person { name: "Ann" } insert Knows { from: "Ann", to: "Ann" }', "mutation"),
        ('update Person set { age: 3 } where name = "Ann"', "mutation"),
        ("delete Person where age is null", "mutation"),
        ("query all() { match { $p: Person } return { $p.name } }", "all"),
    ],
)
def test_bare_query_runs_under_the_name_of_its_kind(text: str, name: str) -> None:
    assert check(text) == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "match { $p: Person }\nreturn { $p.nam }",
            (
                "<query>:2:13: type error: T6: type `Person` has no property `nam`; did you mean `name`?\n"
                "  return { $p.nam }\n              ^^^"
            ),
        ),
        (
            "match { $p: Person }",
            (
                "<query>:1:21: parse error: unexpected end of the query, expected `return`\n"
                "  match { $p: Person }\n                      ^"
            ),
        ),
        (
            "match (p:Person) return p",
            "<query>:1:7: parse error: unexpected `(`, expected `{`\n  match (p:Person) return p\n        ^",
        ),
        ("1 match", "<query>:1:1: parse error: unexpected `1`, expected `{`\n  1 match\n  ^"),
    ],
)
def test_bare_query_with_an_error_is_marked_where_it_was_written(text: str, message: str) -> None:
    with pytest.raises(LanguageError) as caught:
        check(text)
    shown = str(caught.value)
    assert shown.splitlines()[0].split(":")[:3] == message.splitlines()[0].split(":")[:3]
    assert shown.splitlines()[1:] == message.splitlines()[1:]
    start = int(caught.value.diagnostics[0].start)
    assert 0 <= start <= len(text)

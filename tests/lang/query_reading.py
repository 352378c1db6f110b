"""Helpers to parse and print parts of queries."""

from __future__ import annotations

import pytest

from omnigraph.lang.comments import weave
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.query_layout import QueryLayout
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.source import Source


def print_queries(file: ast.QueryFile) -> str:
    """Return the canonical text of queries that were not parsed from a text."""
    return weave("", list(QueryLayout("", ()).lines(file)), ())


def query(text: str) -> ast.Query:
    (found,) = parse_queries(Source(text)).queries
    return found


def read(clauses: str = "$a: T", tail: str = "return { $a }") -> ast.ReadBody:
    body = query(f"query q() {{ match {{ {clauses} }} {tail} }}").body
    assert isinstance(body, ast.ReadBody)
    return body


def clauses(text: str) -> tuple[ast.Clause, ...]:
    return read(text).clauses


def clause(text: str) -> ast.Clause:
    (found,) = clauses(text)
    return found


def predicate(text: str) -> ast.Predicate:
    found = clause(text)
    assert isinstance(found, ast.Filter)
    return found.predicate


def projection(text: str) -> ast.Projection:
    (found,) = read(tail=f"return {{ {text} }}").projections
    return found


def statements(text: str) -> tuple[ast.Statement, ...]:
    body = query(f"query q() {{ {text} }}").body
    assert isinstance(body, ast.MutationBody)
    return body.statements


def where(text: str) -> ast.Predicate:
    (found,) = statements(f"delete T where {text}")
    assert isinstance(found, ast.Delete)
    return found.where


def errors(text: str) -> list[tuple[str, str]]:
    """Return the message and the marked source of each diagnostic."""
    with pytest.raises(LanguageError) as caught:
        parse_queries(Source(text))
    encoded = text.encode()
    return [(item.message, encoded[item.start : item.end].decode()) for item in caught.value.diagnostics]


def error(text: str) -> tuple[str, str]:
    (found,) = errors(text)
    return found


def match_error(text: str) -> tuple[str, str]:
    return error(f"query q() {{ match {{ {text} }} return {{ $a }} }}")

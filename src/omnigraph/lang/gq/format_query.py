"""The canonical form of a `.gq` text."""

from __future__ import annotations

from omnigraph.lang.comments import weave
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.query_layout import QueryLayout
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.parsing import scan_comments
from omnigraph.lang.source import Source


def format_queries(text: str, name: str = "<text>") -> str:
    """Lay a text out canonically; `name` stands for it in messages.

    The result parses to the same queries, holds every comment, and formatting it again changes nothing.
    Raises `LanguageError` if the text does not parse.

    >>> print(format_queries("query q(){match{$p:Person}return{$p.name}}"), end="")
    query q() {
      match {
        $p: Person
      }
      return { $p.name }
    }
    """
    source = Source(text, name)
    file = parse_queries(source)
    comments = scan_comments(source)
    layout = QueryLayout(text, comments)
    return weave(text, list(layout.lines(file)), comments)


def print_queries(file: ast.QueryFile) -> str:
    """The canonical text of queries that come from no text."""
    return weave("", list(QueryLayout().lines(file)), ())

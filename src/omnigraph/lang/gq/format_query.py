"""Formatter of `.gq` texts."""

from __future__ import annotations

from omnigraph.lang.comments import weave
from omnigraph.lang.gq.query_layout import QueryLayout
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.scanner import scan_comments
from omnigraph.lang.source import Source


def format_queries(text: str, name: str = "<text>") -> str:
    """Format a text; `name` is its name in messages.

    The result parses to the same queries and keeps every comment. Formatting is idempotent. Raises
    `LanguageError` if the text does not parse.

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

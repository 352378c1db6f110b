"""Queries without a declaration: a text that begins with `match`, `insert`, `update` or `delete`."""

from __future__ import annotations

from typing import Final

from omnigraph.lang.scanner import scan
from omnigraph.lang.source import Source, Span

# The names that results report.
READ_NAME: Final = "read"
MUTATION_NAME: Final = "mutation"
_NAMES: Final = {
    "match": READ_NAME,
    "insert": MUTATION_NAME,
    "update": MUTATION_NAME,
    "delete": MUTATION_NAME,
}


def query_source(text: str, name: str = "<query>") -> Source:
    """Return the source of a text to run. The declaration that a bare query lacks is added around it.

    Positions in messages are those in `text`. A bare query has no parameters.

    >>> query_source("match { $p: Person } return { $p.name }").text
    'query read() {match { $p: Person } return { $p.name }\\n}'
    >>> query_source("query all() { match { $p: Person } return { $p.name } }").written is None
    True
    """
    bare = bare_name(text)
    if bare is None:
        return Source(text, name)
    head = f"query {bare}() {{"
    # The line break ends a comment on the last line.
    return Source(f"{head}{text}\n}}", name, Span(len(head), len(head) + len(text)))


def bare_name(text: str) -> str | None:
    """Return the name under which a bare query runs; None for any other text.

    >>> bare_name("// people\\nmatch { $p: Person } return { $p.name }"), bare_name("query all() {")
    ('read', None)
    """
    for lexeme in scan(text):
        if lexeme.kind not in ("line", "block"):
            # Something else before the first word, such as a number, is a syntax error either way.
            return _NAMES.get(text[lexeme.start : lexeme.end])
    return None

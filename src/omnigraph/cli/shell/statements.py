"""Divide a script into statements, and decide whether the text at a prompt is a whole statement."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<skipped>//[^\n]*+|/\*.*?\*/|"(?:[^"\\]|\\.)*+")
    |(?P<open>[\[({]) | (?P<close>[\])}]) | (?P<end>;) | (?P<blank>\n[ \t\r]*(?=\n))
    |(?P<start>(?<![^\n])[ \t]*(?:\.|(?:query|match|insert|update|delete)\b))
    |(?P<word>[A-Za-z_$@.][A-Za-z0-9_]*+)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENTS = re.compile(r"(?:\s|//[^\n]*+(?:\n|\Z)|/\*.*?\*/)*+", re.DOTALL)
_FIRST_WORD = re.compile(r"[A-Za-z]+")
_READS = frozenset({"query", "match"})


@dataclass(frozen=True)
class Statement:
    """A query text or a dot command, and the line of the script on which it starts."""

    text: str
    line: int

    @property
    def is_command(self) -> bool:
        """Whether this is a dot command."""
        return self.text.startswith(".")


def split_statements(script: str) -> Iterator[Statement]:
    """Yield the statements of a script.

    A dot command is a line. A query ends at a semicolon, at a blank line, or before a line that starts another
    query, all outside of brackets. Mutations on successive lines are one statement, as they are one commit.

    >>> [item.text for item in split_statements("match { $p: A }\\nreturn { $p.x }\\n.tables\\ninsert A {};")]
    ['match { $p: A }\\nreturn { $p.x }', '.tables', 'insert A {}']
    """
    begin = position = _skip_comments(script, 0)
    depth = 0
    returned = False
    while begin < len(script):
        if position == begin and script.startswith(".", begin):
            end = script.find("\n", begin)
            end = len(script) if end < 0 else end
            yield _statement(script, begin, end)
            begin = position = _skip_comments(script, end)
            continue
        token = _TOKEN.search(script, position)
        if token is None:
            yield _statement(script, begin, len(script))
            return
        kind = token.lastgroup
        position = token.end()
        ends = depth == 0 and (
            kind == "end"
            or (kind == "blank" and (returned or _first_word(script, begin) != "match"))
            or (kind == "start" and token.start() > begin and _is_another(script, begin, token[0].strip()))
        )
        if ends:
            yield _statement(script, begin, token.start())
            begin = position = _skip_comments(script, token.end() if kind == "end" else token.start())
            returned = False
        elif kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        elif kind == "word" and depth == 0:
            returned = returned or token[0] == "return"


def is_whole(text: str) -> bool:
    """Return whether the text at a prompt is a whole statement, or has an error that more text cannot correct.

    >>> is_whole("match { $p: Person }"), is_whole("match { $p: Person } return { $p.name }"), is_whole(".tables")
    (False, True, True)
    """
    stripped = text.strip()
    if not stripped or stripped.startswith(".") or stripped.endswith(";") or text.endswith("\n"):
        return True
    from omnigraph.lang.diagnostics import LanguageError
    from omnigraph.lang.gq.bare_query import query_source
    from omnigraph.lang.gq.query_parser import parse_queries

    try:
        parse_queries(query_source(text))
    except LanguageError as error:
        # An error at the end of the text, or about a bracket or a string that is open.
        at_end = error.diagnostics[0].start >= len(stripped.encode("utf-8", "surrogatepass"))
        return not at_end and "unterminated" not in error.diagnostics[0].message
    return True


def _statement(script: str, begin: int, end: int) -> Statement:
    return Statement(script[begin:end].strip(), script.count("\n", 0, begin) + 1)


def _skip_comments(script: str, position: int) -> int:
    match = _COMMENTS.match(script, position)
    position = position if match is None else match.end()
    # An empty statement.
    return _skip_comments(script, position + 1) if script.startswith(";", position) else position


def _first_word(script: str, begin: int) -> str:
    match = _FIRST_WORD.match(script, begin)
    return match[0] if match else ""


def _is_another(script: str, begin: int, word: str) -> bool:
    """Return whether a line that starts with `word` starts another statement than the one at `begin`."""
    return word in _READS or word == "." or _first_word(script, begin) in _READS

"""Lexical scanning that both languages share: comments, strings, brackets and words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from omnigraph.lang.source import Source, Span

LexemeKind: TypeAlias = Literal["line", "block", "string", "open", "close", "word", "unterminated"]

# Quantifiers are possessive or fail only once, so that scanning is linear for any input.
_LEXEME = re.compile(
    r"""
      (?P<line>//[^\n]*+)
    | (?P<block>/\*.*?\*/)
    | (?P<string>"(?:[^"\\]|\\.)*+")
    | (?P<open>[\[({])
    | (?P<close>[\])}])
    | (?P<word>[$@.]?[A-Za-z_][A-Za-z0-9_]*+)
    | (?P<unterminated>"|/\*)
    """,
    re.DOTALL | re.VERBOSE,
)
_BRACKET = re.compile(
    r"""
      //[^\n]*+
    | /\*.*?\*/
    | "(?:[^"\\]|\\.)*+"
    | (?P<open>[\[({])
    | (?P<close>[\])}])
    | (?P<unterminated>"|/\*)
    """,
    re.DOTALL | re.VERBOSE,
)
_NOT_NEWLINE = re.compile(r"[^\n]")


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A comment, string, bracket or word, with its offsets in the text."""

    kind: LexemeKind
    start: int
    end: int


def scan(text: str) -> Iterator[Lexeme]:
    """Yield the comments, strings, brackets and words of a text in order; skip everything else.

    An unterminated string or block comment is the last lexeme and extends to the end of the text. A word
    includes a ``$``, ``@`` or ``.`` directly before it.
    """
    for match in _LEXEME.finditer(text):
        kind = cast(LexemeKind, match.lastgroup)
        if kind == "unterminated":
            yield Lexeme(kind, match.start(), len(text))
            return
        yield Lexeme(kind, match.start(), match.end())


def scan_brackets(text: str) -> Iterator[tuple[int, str]]:
    """Yield the offset and kind of brackets outside of strings and comments: ``open`` or ``close``.

    An unterminated string or block comment is the last item, of kind ``unterminated``.
    """
    for match in _BRACKET.finditer(text):
        kind = match.lastgroup
        if kind is not None:
            yield match.start(), kind
            if kind == "unterminated":
                return


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment including its delimiters; `own_line` is true when only blanks precede it on its line."""

    span: Span
    text: str
    own_line: bool


def scan_comments(source: Source) -> list[Comment]:
    """Return all comments of a source, in order.

    >>> [item.text for item in scan_comments(Source('a // b\\n/* c */ "// d"'))]
    ['// b', '/* c */']
    """
    text = source.text
    comments = []
    for lexeme in scan(text):
        if lexeme.kind in ("line", "block"):
            body = text[lexeme.start : lexeme.end].rstrip()
            span = Span(lexeme.start, lexeme.start + len(body))
            comments.append(Comment(span, body, starts_line(text, lexeme.start)))
    return comments


def starts_line(text: str, offset: int) -> bool:
    """Return whether only blanks precede the offset on its line."""
    while offset > 0 and text[offset - 1] in " \t\r\ufeff":
        offset -= 1
    return offset == 0 or text[offset - 1] == "\n"


def blank_out(text: str) -> str:
    """Replace every character by a space, except line breaks, so that offsets and lines stay the same."""
    return _NOT_NEWLINE.sub(" ", text)

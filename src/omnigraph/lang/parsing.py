"""What the two parsers share: lexical scanning, literals, readable syntax errors, recovery after an error."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, TypeAlias, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.tree import Meta

from omnigraph.lang.source import (
    MAX_DIAGNOSTICS,
    NOWHERE,
    Diagnostic,
    Diagnostics,
    Source,
    Span,
    diagnose,
    nearest_name,
)

MAX_NESTING = 64
MIN_INTEGER = -(2**63)
MAX_INTEGER = 2**64 - 1

ParseTree: TypeAlias = "Tree[Token]"
# What to say about a text found where a certain terminal could have stood.
Hints: TypeAlias = Mapping[tuple[str, str], str]

# --- scanning --------------------------------------------------------------------------------------------

LexemeKind: TypeAlias = Literal["line", "block", "string", "open", "close", "word", "unterminated"]

# The quantifiers are possessive or fail only once, so that scanning is linear for any input.
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
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_UNESCAPES = {value: f"\\{char}" for char, value in _ESCAPES.items()}


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A piece of text that matters for structure, whatever the language."""

    kind: LexemeKind
    start: int
    end: int


def scan(text: str) -> Iterator[Lexeme]:
    """Comments, strings, brackets and words of a text, in order; everything else is passed over.

    A string or block comment without an end is the last lexeme and reaches to the end of the text. A word
    includes the ``$``, ``@`` or ``.`` directly before it.
    """
    for match in _LEXEME.finditer(text):
        kind = cast(LexemeKind, match.lastgroup)
        if kind == "unterminated":
            yield Lexeme(kind, match.start(), len(text))
            return
        yield Lexeme(kind, match.start(), match.end())


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment with its delimiters; `own_line` when nothing but blanks stands before it on its line."""

    span: Span
    text: str
    own_line: bool


def scan_comments(source: Source) -> list[Comment]:
    """All comments of a source, in order.

    >>> [item.text for item in scan_comments(Source('a // b\\n/* c */ "// d"'))]
    ['// b', '/* c */']
    """
    text = source.text
    found = []
    for lexeme in scan(text):
        if lexeme.kind in ("line", "block"):
            body = text[lexeme.start : lexeme.end].rstrip()
            span = Span(lexeme.start, lexeme.start + len(body))
            found.append(Comment(span, body, _heads_line(text, lexeme.start)))
    return found


def check_nesting(source: Source, limit: int = MAX_NESTING) -> list[Diagnostic]:
    """Refuse brackets nested deeper than the limit; at most one diagnostic."""
    depth = 0
    for lexeme in scan(source.text):
        if lexeme.kind == "open":
            depth += 1
            if depth > limit:
                span = Span(lexeme.start, lexeme.end)
                return [diagnose(source, span, "parse", f"nesting deeper than {limit} levels")]
        elif lexeme.kind == "close":
            depth = max(0, depth - 1)
    return []


# --- literals --------------------------------------------------------------------------------------------


def unescape(literal: str, span: Span, diagnostics: Diagnostics) -> str:
    """The value of a string literal given with its quotes.

    A wrong escape is reported at its place; so is a lone surrogate, which no encoding could store.
    """
    for match in _SURROGATE.finditer(literal):
        at = span.start + match.start()
        diagnostics.add(Span(at, at + 1), f"string holds half a character: {_visible(match.group())}")

    def replace(match: re.Match[str]) -> str:
        char = match.group(1)
        if char in _ESCAPES:
            return _ESCAPES[char]
        at = span.start + match.start()
        diagnostics.add(Span(at, at + 2), f"unsupported escape sequence: \\{_visible(char)}")
        return ""

    return _ESCAPE.sub(replace, literal)[1:-1]


def quote(value: str) -> str:
    """A string literal that reads back as the value.

    >>> print(quote('say "hi"'))
    "say \\"hi\\""
    """
    return f'"{"".join(_UNESCAPES.get(char, char) for char in value)}"'


def to_integer(
    literal: str,
    span: Span,
    diagnostics: Diagnostics,
    *,
    low: int = MIN_INTEGER,
    high: int = MAX_INTEGER,
) -> int:
    """The value of an integer literal; one outside the bounds is reported and becomes 0."""
    # Python refuses to convert very long texts, and no number that long is within bounds.
    value = int(literal) if len(literal.lstrip("-0")) <= 40 else None
    if value is None or not low <= value <= high:
        diagnostics.add(span, f"integer {shorten(literal)} is out of range ({low} to {high})")
        return 0
    return value


def to_float(literal: str, span: Span, diagnostics: Diagnostics) -> float:
    """The value of a float literal; one that no 64-bit float can hold is reported and becomes 0."""
    value = float(literal)
    if math.isinf(value):
        diagnostics.add(span, f"number {shorten(literal)} is out of range for a 64-bit float")
        return 0.0
    return value


def shorten(text: str, limit: int = 40) -> str:
    """The text made fit for a message: bounded in length, without control characters."""
    clipped = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(_visible(char) for char in clipped)


def _visible(char: str) -> str:
    return char if char.isprintable() else f"<U+{ord(char):04X}>"


# --- places ----------------------------------------------------------------------------------------------


def token_span(token: Token) -> Span:
    """Where a token stands."""
    if token.start_pos is None or token.end_pos is None:
        return NOWHERE
    return Span(token.start_pos, token.end_pos)


def meta_span(meta: Meta) -> Span:
    """Where the first to the last token of a rule stand."""
    return NOWHERE if meta.empty else Span(meta.start_pos, meta.end_pos)


# --- parsing with recovery -------------------------------------------------------------------------------

_NAME_FOLLOWS = re.compile(r"[ \t]+[A-Za-z_]")
_FOUND = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+|[0-9]++|.", re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n]")
_KEYWORD = re.compile(r"`([a-z_]+)`")


def parse_with_recovery(
    parser: Lark,
    source: Source,
    starts: frozenset[str],
    words: Mapping[str, str],
    hints: Hints = MappingProxyType({}),
) -> tuple[ParseTree | None, list[Diagnostic]]:
    """Parse a text made of declarations, each beginning with a keyword of `starts`.

    `words` says in human words what each terminal is, keywords in backquotes; its order is the order in
    messages. `hints` says what to do about common mistakes. The parser must be LALR, with a grammar that
    accepts any sequence of declarations.

    Gives the tree and no diagnostics; or everything that is wrong, at most one error a declaration, and the
    tree of the declarations that are right; or no tree when the text cannot be parsed at all. Tree positions
    are offsets in the source. No input makes this fail in another way.
    """
    found = check_nesting(source)
    if found:
        return None, found
    # A byte-order mark is an artefact of how the file was saved.
    text = " " + source.text[1:] if source.text.startswith("\ufeff") else source.text
    broken = next((item.start for item in scan(text) if item.kind == "unterminated"), None)
    whole: UnexpectedInput | None = None
    if broken is None:
        tree, whole = _attempt(parser, text)
        if whole is None:
            return tree, []
    else:
        what, width = ("string", 1) if text[broken] == '"' else ("comment", 2)
        found.append(diagnose(source, Span(broken, broken + width), "parse", f"{what} is never closed"))

    kept: list[str] = []
    for part in _declarations(text, starts):
        piece = text[part.start : part.end]
        usable = len(found) < MAX_DIAGNOSTICS and (broken is None or not part.start <= broken < part.end)
        if usable:
            _, problem = _attempt(parser, piece)
            if problem is not None:
                found.append(_explain(problem, source, part, words, hints))
                usable = False
        kept.append(piece if usable else _blank(piece))
    if whole is not None and not found:
        found.append(_explain(whole, source, Span(0, len(text)), words, hints))
    tree, _ = _attempt(parser, "".join(kept))
    return tree, found


def _attempt(parser: Lark, text: str) -> tuple[ParseTree | None, UnexpectedInput | None]:
    try:
        return parser.parse(text), None
    except UnexpectedInput as error:
        return None, error


def _declarations(text: str, starts: frozenset[str]) -> list[Span]:
    """Cut a text that does not parse where a declaration seems to begin."""
    cuts = [0]
    depth = 0
    for lexeme in scan(text):
        if lexeme.kind == "open":
            depth += 1
        elif lexeme.kind == "close":
            depth = max(0, depth - 1)
        elif (
            lexeme.kind == "word"
            and text[lexeme.start : lexeme.end] in starts
            # Inside brackets the keyword may be an ordinary name. If it heads its line and a name follows,
            # it is more likely that a bracket was never closed.
            and (depth == 0 or (_heads_line(text, lexeme.start) and _NAME_FOLLOWS.match(text, lexeme.end)))
        ):
            cuts.append(lexeme.start)
            depth = 0
    cuts.append(len(text))
    return [Span(start, end) for start, end in pairwise(cuts) if start < end]


def _heads_line(text: str, offset: int) -> bool:
    """Whether only blanks stand between the offset and the start of its line."""
    while offset > 0 and text[offset - 1] in " \t\r\ufeff":
        offset -= 1
    return offset == 0 or text[offset - 1] == "\n"


def _blank(text: str) -> str:
    return _NOT_NEWLINE.sub(" ", text)


def _explain(
    error: UnexpectedInput, source: Source, part: Span, words: Mapping[str, str], hints: Hints
) -> Diagnostic:
    """Say what was found and what could have stood there instead."""
    text = source.text
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        place = token_span(error.token)
        span = Span(part.start + place.start, part.start + place.end)
    elif isinstance(error, UnexpectedCharacters):
        at = part.start + cast(int, error.pos_in_stream)
        match = _FOUND.match(text, at)
        span = Span(at, match.end() if match else at)
    else:
        end = part.start + len(_without_trailing_comments(text[part.start : part.end]))
        span = Span(end, end)
    token = text[span.start : span.end]
    if token:
        seen = f"`{shorten(token)}`"
    else:
        seen = "end of the file" if part.end == len(text) else "end of the declaration"
    interactive = getattr(error, "interactive_parser", None)
    accepted = frozenset[str]() if interactive is None else interactive.accepts()
    wanted = list(dict.fromkeys(word for name, word in words.items() if name in accepted))
    keywords = [match.group(1) for word in wanted for match in _KEYWORD.finditer(word)]
    near = nearest_name(token, keywords) if token.isidentifier() else None
    hint = next(
        (tip for (mistake, terminal), tip in hints.items() if mistake == token and terminal in accepted),
        None,
    )
    return diagnose(
        source,
        span,
        "parse",
        f"unexpected {seen}{_expectation(wanted)}",
        hint=f"did you mean `{near}`?" if near else hint,
    )


def _expectation(wanted: list[str]) -> str:
    if not wanted:
        return ""
    if len(wanted) == 1:
        return f", expected {wanted[0]}"
    return f", expected one of {', '.join(wanted[:-1])} or {wanted[-1]}"


def _without_trailing_comments(text: str) -> str:
    end = 0
    covered = 0
    for lexeme in scan(text):
        between = text[covered : lexeme.start].rstrip()
        if between:
            end = covered + len(between)
        covered = lexeme.end
        if lexeme.kind not in ("line", "block"):
            end = lexeme.end
    tail = text[covered:].rstrip()
    return text[: covered + len(tail)] if tail else text[:end]

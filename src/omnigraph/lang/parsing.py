"""Parsing with error recovery, shared by both languages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.tree import Meta

from omnigraph.budget.deadline import check_deadline
from omnigraph.lang.diagnostics import MAX_DIAGNOSTICS, Diagnostic, diagnose
from omnigraph.lang.literal_syntax import shorten
from omnigraph.lang.scanner import blank_out, scan, starts_line
from omnigraph.lang.source import NOWHERE, Source, Span
from omnigraph.lang.suggestions import nearest_name

MAX_NESTING = 64
_TOKENS_PER_CHECK = 256

ParseTree: TypeAlias = "Tree[Token]"
# Hints by the unexpected text and by a terminal that the parser would have accepted there.
Hints: TypeAlias = Mapping[tuple[str, str], str]

_NAME_FOLLOWS = re.compile(r"[ \t]+[A-Za-z_]")
_UNEXPECTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+|[0-9]++|.", re.DOTALL)
_KEYWORD = re.compile(r"`([a-z_]+)`")


def token_span(token: Token) -> Span:
    """Return the span of a token."""
    if token.start_pos is None or token.end_pos is None:
        return NOWHERE
    return Span(token.start_pos, token.end_pos)


def meta_span(meta: Meta) -> Span:
    """Return the span from the first to the last token of a rule."""
    return NOWHERE if meta.empty else Span(meta.start_pos, meta.end_pos)


def check_nesting(source: Source, limit: int = MAX_NESTING) -> list[Diagnostic]:
    """Reject brackets nested deeper than the limit; return at most one diagnostic."""
    depth = 0
    for lexeme in scan(source.text):
        if lexeme.kind == "open":
            depth += 1
            if depth > limit:
                span = Span(lexeme.start, lexeme.end)
                return [diagnose(source, span, "parse", nesting_message(limit))]
        elif lexeme.kind == "close":
            depth = max(0, depth - 1)
    return []


def nesting_message(limit: int) -> str:
    """Return the message for a construct that is nested too deeply."""
    return f"nesting exceeds {limit} levels"


def parse_with_recovery(
    parser: Lark,
    source: Source,
    starts: frozenset[str],
    terminal_names: Mapping[str, str],
    hints: Hints = MappingProxyType({}),
) -> tuple[ParseTree | None, list[Diagnostic]]:
    """Parse a text made of declarations, each starting with a keyword of `starts`.

    `terminal_names` gives the name of each terminal in messages, keywords in backquotes; messages list
    terminals in its order. `hints` has advice for common mistakes. The parser must be LALR, with a grammar that
    accepts any sequence of declarations.

    Return the tree and no diagnostics when the text is correct. Otherwise return the diagnostics, at most one
    per declaration, and the tree of the correct declarations, or None when nothing can be parsed. Tree
    positions are offsets in the source. No input raises an exception.
    """
    diagnostics = check_nesting(source)
    if diagnostics:
        return None, diagnostics
    # Editors may save a byte-order mark at the start of a file.
    text = " " + source.text[1:] if source.text.startswith("\ufeff") else source.text
    unterminated = next((item.start for item in scan(text) if item.kind == "unterminated"), None)
    whole: UnexpectedInput | None = None
    if unterminated is None:
        tree, whole = _try_parse(parser, text)
        if whole is None:
            return tree, []
    else:
        construct, width = ("string", 1) if text[unterminated] == '"' else ("comment", 2)
        span = Span(unterminated, unterminated + width)
        diagnostics.append(diagnose(source, span, "parse", f"unterminated {construct}"))

    kept: list[str] = []
    for part in _split_declarations(text, starts):
        piece = text[part.start : part.end]
        usable = len(diagnostics) < MAX_DIAGNOSTICS and (
            unterminated is None or not part.start <= unterminated < part.end
        )
        if usable:
            _, error = _try_parse(parser, piece)
            if error is not None:
                diagnostics.append(_explain(error, source, part, terminal_names, hints))
                usable = False
        kept.append(piece if usable else blank_out(piece))
    if whole is not None and not diagnostics:
        diagnostics.append(_explain(whole, source, Span(0, len(text)), terminal_names, hints))
    tree, _ = _try_parse(parser, "".join(kept))
    return tree, diagnostics


def _try_parse(parser: Lark, text: str) -> tuple[ParseTree | None, UnexpectedInput | None]:
    """Return the tree of a text or its first error. Raises `ResourceLimit` after the deadline of the work."""
    interactive = parser.parse_interactive(text)
    token: Token | None = None
    try:
        for number, found in enumerate(interactive.iter_parse()):
            token = found
            if number % _TOKENS_PER_CHECK == 0:
                check_deadline()
        tree: ParseTree = interactive.feed_eof(token)  # type: ignore[no-untyped-call]
        return tree, None
    except UnexpectedInput as error:
        # The parser state, from which messages list what was expected.
        error.interactive_parser = interactive
        return None, error


def _split_declarations(text: str, starts: frozenset[str]) -> list[Span]:
    """Split a text that does not parse at the keywords that appear to start a declaration."""
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
            # Inside brackets the keyword may be an ordinary name. At the start of a line and followed by a
            # name it more likely starts a declaration after an unclosed bracket.
            and (depth == 0 or (starts_line(text, lexeme.start) and _NAME_FOLLOWS.match(text, lexeme.end)))
        ):
            cuts.append(lexeme.start)
            depth = 0
    cuts.append(len(text))
    return [Span(start, end) for start, end in pairwise(cuts) if start < end]


def _explain(
    error: UnexpectedInput, source: Source, part: Span, terminal_names: Mapping[str, str], hints: Hints
) -> Diagnostic:
    """Describe a syntax error: the unexpected text, what the parser expected, and a hint if there is one."""
    text = source.text
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        token_at = token_span(error.token)
        span = Span(part.start + token_at.start, part.start + token_at.end)
    elif isinstance(error, UnexpectedCharacters):
        at = part.start + cast(int, error.pos_in_stream)
        match = _UNEXPECTED.match(text, at)
        span = Span(at, match.end() if match else at)
    else:
        end = part.start + len(_without_trailing_comments(text[part.start : part.end]))
        span = Span(end, end)
    token = text[span.start : span.end]
    if token:
        unexpected = f"`{shorten(token)}`"
    else:
        unexpected = "end of the file" if part.end == len(text) else "end of the declaration"
    interactive = getattr(error, "interactive_parser", None)
    accepted = frozenset[str]() if interactive is None else interactive.accepts()
    expected = list(dict.fromkeys(name for terminal, name in terminal_names.items() if terminal in accepted))
    keywords = [match.group(1) for name in expected for match in _KEYWORD.finditer(name)]
    nearest = nearest_name(token, keywords) if token.isidentifier() else None
    hint = next(
        (tip for (mistake, terminal), tip in hints.items() if mistake == token and terminal in accepted),
        None,
    )
    return diagnose(
        source,
        span,
        "parse",
        f"unexpected {unexpected}{_expectation(expected)}",
        hint=f"did you mean `{nearest}`?" if nearest else hint,
    )


def _expectation(expected: list[str]) -> str:
    if not expected:
        return ""
    if len(expected) == 1:
        return f", expected {expected[0]}"
    return f", expected one of {', '.join(expected[:-1])} or {expected[-1]}"


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

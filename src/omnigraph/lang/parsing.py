"""Parsing with error recovery, shared by both languages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeAlias

from omnigraph.lang.diagnostics import MAX_DIAGNOSTICS, Diagnostic, Diagnostics, diagnose
from omnigraph.lang.lalr_parser import LalrParser, SyntaxFailure
from omnigraph.lang.literal_syntax import shorten
from omnigraph.lang.scanner import blank_out, scan, scan_brackets, starts_line
from omnigraph.lang.source import Source, Span
from omnigraph.lang.suggestions import nearest_name

MAX_NESTING = 64

# Hints by the unexpected text and by a terminal that the parser would have accepted there.
Hints: TypeAlias = Mapping[tuple[str, str], str]

_NAME_FOLLOWS = re.compile(r"[ \t]+[A-Za-z_]")
_UNEXPECTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+|[0-9]++|.", re.DOTALL)
_KEYWORD = re.compile(r"`([a-z_]+)`")


def check_nesting(source: Source, limit: int = MAX_NESTING) -> list[Diagnostic]:
    """Reject brackets nested deeper than the limit; return at most one diagnostic."""
    depth = 0
    for start, kind in scan_brackets(source.text):
        if kind == "open":
            depth += 1
            if depth > limit:
                return [diagnose(source, Span(start, start + 1), "parse", _nesting_message(limit))]
        elif kind == "close":
            depth = max(0, depth - 1)
    return []


def parse_with_recovery(
    parser: LalrParser,
    source: Source,
    make_builder: Callable[[Diagnostics], object],
    starts: frozenset[str],
    terminal_names: Mapping[str, str],
    hints: Hints = MappingProxyType({}),
) -> tuple[Any, Diagnostics]:
    """Parse a text made of declarations, each starting with a keyword of `starts`.

    `make_builder` returns a builder for one attempt, which reports errors to the diagnostics. `terminal_names`
    gives the name of each terminal in messages, keywords in backquotes; messages list terminals in its order.
    `hints` has advice for common mistakes. The grammar must accept any sequence of declarations.

    Return the value of the text and the diagnostics: at most one syntax error per declaration, and the errors of
    the builder in the correct declarations. The value is that of the correct declarations, or None when nothing
    can be parsed. No input raises an exception other than `ResourceLimit`, after the deadline of the work.
    """
    report = Diagnostics(source, "parse")
    report.recorded.extend(check_nesting(source))
    if report.recorded:
        return None, report
    # Editors may save a byte-order mark at the start of a file.
    text = " " + source.text[1:] if source.text.startswith("\ufeff") else source.text
    unterminated = next((start for start, kind in scan_brackets(text) if kind == "unterminated"), None)
    whole: SyntaxFailure | None = None
    if unterminated is None:
        try:
            return _build(parser, text, source, make_builder, report)
        except SyntaxFailure as error:
            whole = error
    else:
        construct, width = ("string", 1) if text[unterminated] == '"' else ("comment", 2)
        report.add(Span(unterminated, unterminated + width), f"unterminated {construct}")

    kept: list[str] = []
    parts = [Span(0, len(text))] if source.written else _split_declarations(text, starts)
    for part in parts:
        piece = text[part.start : part.end]
        usable = len(report.recorded) < MAX_DIAGNOSTICS and (
            unterminated is None or not part.start <= unterminated < part.end
        )
        if usable:
            try:
                parser.parse(piece, make_builder(Diagnostics(source, "parse")))
            except SyntaxFailure as error:
                report.recorded.append(_explain(error, source, part, terminal_names, hints))
                usable = False
        kept.append(piece if usable else blank_out(piece))
    if whole is not None and not report.recorded:
        report.recorded.append(_explain(whole, source, Span(0, len(text)), terminal_names, hints))
    try:
        return _build(parser, "".join(kept), source, make_builder, report)
    except SyntaxFailure:
        return None, report


def _build(
    parser: LalrParser,
    text: str,
    source: Source,
    make_builder: Callable[[Diagnostics], object],
    report: Diagnostics,
) -> tuple[Any, Diagnostics]:
    """Parse a text and add the errors of the builder to the report, or only that it is nested too deeply."""
    built = Diagnostics(source, "parse")
    parsed = parser.parse(text, make_builder(built))
    too_deep = _find_too_deep(parsed.nested)
    if too_deep is not None:
        report.add(too_deep, _nesting_message(MAX_NESTING))
        return None, report
    report.recorded.extend(built.recorded[: MAX_DIAGNOSTICS - len(report.recorded)])
    return parsed.value, report


def _nesting_message(limit: int) -> str:
    return f"nesting exceeds {limit} levels"


def _find_too_deep(nested: list[Span]) -> Span | None:
    """Return the first construct that is nested too deeply, so that later phases can recurse over the AST.

    `check_nesting` counts brackets, but a chain of `not` has none, and two constructs may share one pair.
    """
    if len(nested) <= MAX_NESTING:
        return None
    outer: list[int] = []
    for span in sorted(nested, key=lambda item: (item.start, -item.end)):
        while outer and outer[-1] <= span.start:
            outer.pop()
        outer.append(span.end)
        if len(outer) > MAX_NESTING:
            return span
    return None


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
    error: SyntaxFailure, source: Source, part: Span, terminal_names: Mapping[str, str], hints: Hints
) -> Diagnostic:
    """Describe a syntax error: the unexpected text, what the parser expected, and a hint if there is one."""
    text = source.text
    at = part.start + error.start
    if error.span is None:
        match = _UNEXPECTED.match(text, at)
        span = Span(at, match.end() if match else at)
    elif error.span.start < error.span.end and at < source.end:
        span = Span(at, part.start + error.span.end)
    elif at >= source.end and source.written is not None:
        span = Span(source.end, source.end)
    else:
        end = part.start + len(_without_trailing_comments(text[part.start : part.end]))
        span = Span(end, end)
    token = text[span.start : span.end]
    if token:
        unexpected = f"`{shorten(token)}`"
    else:
        whole = "query" if source.written else "file"
        unexpected = f"end of the {whole}" if part.end == len(text) else "end of the declaration"
    accepted = error.accepted
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

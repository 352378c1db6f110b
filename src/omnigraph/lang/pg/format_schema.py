"""Formatter of `.pg` texts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from omnigraph.lang.pg.schema_ast import BodyConstraint, Declaration, PropertyDecl, SchemaFile
from omnigraph.lang.pg.schema_parser import parse_schema
from omnigraph.lang.pg.schema_printer import INDENT, empty_body_text, header_text, member_text, members_of
from omnigraph.lang.scanner import Comment, scan, scan_comments
from omnigraph.lang.source import Source, Span

_Kind: TypeAlias = Literal["bare", "open", "member", "close", "end"]


def format_schema(text: str, name: str = "<schema>") -> str:
    """Format a text: two spaces of indent, one member per line, a blank line between declarations.

    The result parses to an equal schema. Formatting is idempotent. Comments stay with the construct that they
    precede or follow; a comment inside a header or member moves above it. Blank lines between members and
    comments are kept.

    Raises `LanguageError` if the text does not parse. Rules are not checked, so that an incomplete schema can be
    formatted.

    >>> print(format_schema("node A{x:I32 // count\\n}"), end="")
    node A {
      x: I32 // count
    }
    """
    source = Source(text, name)
    pieces = _cut(source, parse_schema(source))
    _attach_comments(source, pieces)
    return "".join(f"{line}\n" for line in _lines(_without_empty_bodies(pieces)))


@dataclass
class _Piece:
    """A part of the text that has its own line, with its comments.

    A declaration is a ``bare`` piece without braces, or an ``open`` piece, its ``member`` pieces and a
    ``close`` piece. `apart` is true when a blank line precedes it.
    """

    kind: _Kind
    span: Span
    text: str
    apart: bool
    above: list[tuple[str, bool]] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)


# --- splitting -------------------------------------------------------------------------------------------


def _cut(source: Source, file: SchemaFile) -> list[_Piece]:
    """Return all pieces in source order, with an empty last one for the comments at the end."""
    text = source.text
    keywords, braces = _outline(text)
    pieces: list[_Piece] = []
    for position, item in enumerate(file.declarations):
        after = file.declarations[position + 1 : position + 2]
        limit = after[0].span.start if after else len(text)
        body = None
        if braces and braces[-1].start < limit:
            body = braces.pop()
        pieces.extend(_cut_declaration(text, item, keywords[item.span.start], body))
    pieces.append(_Piece("end", Span(len(text), len(text)), "", apart=True))
    return pieces


def _cut_declaration(text: str, item: Declaration, start: int, body: Span | None) -> Iterator[_Piece]:
    header = header_text(item)
    if body is None:
        yield _Piece("bare", Span(start, _header_end(item)), header, _apart(text, start))
        return
    yield _Piece("open", Span(start, body.start + 1), f"{header} {{", _apart(text, start))
    for member in members_of(item):
        span = _member_span(member)
        yield _Piece("member", span, member_text(member), _apart(text, span.start))
    # The text of a closing brace is that of the whole declaration, for an empty body.
    yield _Piece("close", Span(body.end - 1, body.end), f"{header}{empty_body_text(item)}", apart=False)


def _outline(text: str) -> tuple[dict[int, int], list[Span]]:
    """Return the start of the previous word for each word, and the pairs of braces in reverse order."""
    before: dict[int, int] = {}
    braces: list[Span] = []
    previous = 0
    opened: list[int] = []
    for lexeme in scan(text):
        if lexeme.kind == "word":
            before[lexeme.start] = previous
            previous = lexeme.start
        elif lexeme.kind == "open" and text[lexeme.start] == "{":
            opened.append(lexeme.start)
        elif lexeme.kind == "close" and text[lexeme.start] == "}":
            braces.append(Span(opened.pop(), lexeme.end))
    return before, braces[::-1]


def _header_end(item: Declaration) -> int:
    ends = [item.span.end]
    for part in ("target", "card"):
        value = getattr(item, part, None)
        if value is not None:
            ends.append(value.span.end)
    ends.extend(note.span.end for note in getattr(item, "annotations", ()))
    return max(ends)


def _member_span(item: PropertyDecl | BodyConstraint) -> Span:
    if isinstance(item, BodyConstraint):
        return item.span
    last = item.annotations[-1].span if item.annotations else item.type_span
    return item.span.to(last)


def _apart(text: str, offset: int) -> bool:
    """Return whether a blank line directly precedes the offset."""
    start = offset
    while start > 0 and text[start - 1] in " \t\r\n":
        start -= 1
    return text.count("\n", start, offset) > 1


# --- comments --------------------------------------------------------------------------------------------


def _attach_comments(source: Source, pieces: list[_Piece]) -> None:
    """Add each comment to a piece: behind the previous piece on the same line, else above the next piece."""
    text = source.text
    starts = [piece.span.start for piece in pieces]
    moved: set[int] = set()
    for comment in scan_comments(source):
        position = bisect_right(starts, comment.span.start) - 1
        piece = pieces[position] if position >= 0 else None
        if piece is not None and comment.span.start < piece.span.end:
            # The comment is inside the piece. The first such comment takes over the blank line above the piece.
            piece.above.append((_body(comment), piece.apart and position not in moved))
            moved.add(position)
        elif piece is not None and text.find("\n", piece.span.end, comment.span.start) < 0:
            piece.behind.append(_body(comment))
        else:
            pieces[position + 1].above.append((_body(comment), _apart(text, comment.span.start)))
    for position in moved:
        pieces[position].apart = False


def _body(comment: Comment) -> str:
    return comment.text.replace("\r\n", "\n")


# --- joining ---------------------------------------------------------------------------------------------


def _without_empty_bodies(pieces: list[_Piece]) -> Iterator[_Piece]:
    """Join the braces of each body without members and comments."""
    position = 0
    while position < len(pieces):
        piece = pieces[position]
        following = pieces[position + 1] if piece.kind == "open" else None
        if following is not None and following.kind == "close" and not piece.behind and not following.above:
            yield _Piece("bare", piece.span, following.text, piece.apart, piece.above, following.behind)
            position += 2
        else:
            yield piece
            position += 1


def _lines(pieces: Iterator[_Piece]) -> Iterator[str]:
    # No blank line follows the start of the file or an opening brace.
    fresh = True
    for piece in pieces:
        top = piece.kind in ("bare", "open", "end")
        inside = INDENT if piece.kind in ("member", "close") else ""
        entries = [(f"{inside}{text}", apart) for text, apart in piece.above]
        if piece.kind != "end":
            line = "}" if piece.kind == "close" else f"{inside}{piece.text}"
            entries.append((" ".join([line, *piece.behind]), piece.apart))
        for position, (line, apart) in enumerate(entries):
            if not fresh and (apart or (top and position == 0)):
                yield ""
            yield line
            fresh = False
        fresh = fresh or piece.kind == "open"

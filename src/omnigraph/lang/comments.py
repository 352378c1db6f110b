"""Reinsertion of comments into the canonical layout of a source."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from omnigraph.lang.scanner import Comment
from omnigraph.lang.source import Span

INDENT = "  "


@dataclass(frozen=True, slots=True)
class Line:
    """One construct of the layout, on one or more rows, and the span of its source.

    `opens` and `closes` mark the first and the last line of a block. `apart` requests a blank line before it.
    """

    depth: int
    rows: tuple[str, ...]
    span: Span
    opens: bool = False
    closes: bool = False
    apart: bool = False


@dataclass(slots=True)
class _Attached:
    before: list[Comment] = field(default_factory=list)
    after: list[Comment] = field(default_factory=list)


def weave(text: str, lines: Sequence[Line], comments: Sequence[Comment]) -> str:
    """Return the formatted text: the lines, each with its comments.

    A comment at the end of a line stays there. Any other comment goes on a row of its own above the line that
    follows it; a comment inside a construct goes above that construct. Blank lines inside a block are kept,
    at most one in a row.
    """
    attached, rest = _attach(text, lines, comments)
    page = _Page(text)
    for line, own in zip(lines, attached, strict=True):
        apart = line.apart
        for comment in own.before:
            page.comment(comment, line.depth + line.closes, apart=apart)
            apart = False
        page.line(line, own.after, apart=apart)
    for comment in rest:
        page.comment(comment, 0, apart=False)
    return page.text()


def _attach(
    text: str, lines: Sequence[Line], comments: Iterable[Comment]
) -> tuple[list[_Attached], list[Comment]]:
    """Assign each comment to a line; return the comments after the last line separately."""
    attached = [_Attached() for _ in lines]
    # The layout may reorder lines, so that source order must be computed from positions.
    order = sorted(range(len(lines)), key=lambda index: lines[index].span.start)
    starts = [lines[index].span.start for index in order]
    rest = []
    for comment in comments:
        place = bisect_right(starts, comment.span.start)
        if place:
            before, end = attached[order[place - 1]], lines[order[place - 1]].span.end
            if comment.span.start < end:
                before.before.append(comment)
                continue
            if text.find("\n", end, comment.span.end) < 0:
                before.after.append(comment)
                continue
        if place < len(order):
            attached[order[place]].before.append(comment)
        else:
            rest.append(comment)
    return attached, rest


class _Page:
    """Collects rows and preserves blank lines of the source."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._rows: list[str] = []
        self._end = 0
        self._fresh = True

    def line(self, line: Line, after: Iterable[Comment], *, apart: bool) -> None:
        if not line.closes:
            self._space(line.span.start, apart=apart)
        indent = INDENT * line.depth
        self._rows.extend(f"{indent}{row}" for row in line.rows)
        self._end = line.span.end
        tail = []
        for comment in after:
            tail.append(comment.text)
            self._end = comment.span.end
        if tail:
            self._rows[-1] += f"  {' '.join(tail)}"
        self._fresh = line.opens

    def comment(self, comment: Comment, depth: int, *, apart: bool) -> None:
        self._space(comment.span.start, apart=apart)
        self._rows.append(f"{INDENT * depth}{comment.text}".replace("\r\n", "\n"))
        self._end = comment.span.end
        self._fresh = False

    def text(self) -> str:
        return "".join(f"{row}\n" for row in self._rows)

    def _space(self, start: int, *, apart: bool) -> None:
        gap = self._source[self._end : start]
        # Lines omit nothing but commas; any other text in between means that lines were reordered.
        kept = gap.count("\n") > 1 and not gap.strip(" \t\r\n,")
        if (apart or kept) and not self._fresh:
            self._rows.append("")

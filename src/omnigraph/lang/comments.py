"""Puts the comments of a source back between the lines of its canonical layout."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from omnigraph.lang.parsing import Comment
from omnigraph.lang.source import Span

INDENT = "  "


@dataclass(frozen=True, slots=True)
class Line:
    """One construct of the layout, on one row or several, and the piece of source that it stands for.

    `opens` and `closes` tell the first and the last line of a block. `apart` asks for a blank line before it.
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
    """The final text: every line with the comments that belong to it.

    A comment stays at the end of its line if it was there in the source, otherwise it goes on a row of its
    own above the line that follows it; one inside a construct goes above that construct. Blank lines inside
    a block are kept, at most one at a time.
    """
    attached, rest = _attach(text, lines, comments)
    page = _Page(text)
    for line, found in zip(lines, attached, strict=True):
        apart = line.apart
        for comment in found.before:
            page.comment(comment, line.depth + line.closes, apart=apart)
            apart = False
        page.line(line, found.after, apart=apart)
    for comment in rest:
        page.comment(comment, 0, apart=False)
    return page.text()


def _attach(
    text: str, lines: Sequence[Line], comments: Iterable[Comment]
) -> tuple[list[_Attached], list[Comment]]:
    """Decide for each comment to which line it belongs; what comes after the last line is left over."""
    attached = [_Attached() for _ in lines]
    # The layout may change the order of two lines, so the source order is found by position.
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
    """Collects rows, and keeps the blank lines of the source."""

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
        # Commas are all that may be left out of the lines; anything else means that lines changed places.
        kept = gap.count("\n") > 1 and not gap.strip(" \t\r\n,")
        if (apart or kept) and not self._fresh:
            self._rows.append("")

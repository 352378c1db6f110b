"""Source texts and positions in them."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of character offsets in a source text."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """Return the smallest span that covers both."""
        return Span(min(self.start, other.start), max(self.end, other.end))


NOWHERE = Span(0, 0)
_LINE_END = re.compile("\n")


@dataclass(frozen=True)
class Source:
    """A text with a name for messages.

    >>> Source("node A {}", "s.pg").position(5)
    (1, 6)
    """

    text: str
    name: str = "<text>"
    _line_starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0]
        starts.extend(match.end() for match in _LINE_END.finditer(self.text))
        object.__setattr__(self, "_line_starts", tuple(starts))

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and column of a character offset, both counted from 1."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return the text of a line without its line break."""
        start = self._line_starts[number - 1]
        end = self._line_starts[number] if number < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def byte_span(self, span: Span) -> tuple[int, int]:
        """Return the span as UTF-8 byte offsets, the form used in JSON."""
        start = _utf8_length(self.text[: span.start])
        return start, start + _utf8_length(self.text[span.start : span.end])


def _utf8_length(text: str) -> int:
    # A leniently decoded text may contain lone surrogates, which have no strict encoding.
    return len(text.encode("utf-8", "surrogatepass"))

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
    # The part that the user wrote, if the text is more. Positions count from its start.
    written: Span | None = None
    _line_starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [self.start]
        starts.extend(match.end() for match in _LINE_END.finditer(self.text, self.start, self.end))
        object.__setattr__(self, "_line_starts", tuple(starts))

    @property
    def start(self) -> int:
        """The offset of the first character that the user wrote."""
        return 0 if self.written is None else self.written.start

    @property
    def end(self) -> int:
        """The offset after the last character that the user wrote."""
        return len(self.text) if self.written is None else self.written.end

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and column of a character offset, both counted from 1."""
        offset = max(self.start, min(offset, self.end))
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return the text of a line without its line break."""
        start = self._line_starts[number - 1]
        end = self._line_starts[number] if number < len(self._line_starts) else self.end
        return self.text[start:end].rstrip("\r\n")

    def byte_span(self, span: Span) -> tuple[int, int]:
        """Return the span as UTF-8 byte offsets, the form used in JSON."""
        start, end = (max(self.start, min(offset, self.end)) for offset in (span.start, span.end))
        before = _utf8_length(self.text[self.start : start])
        return before, before + _utf8_length(self.text[start:end])


def _utf8_length(text: str) -> int:
    # A leniently decoded text may contain lone surrogates, which have no strict encoding.
    return len(text.encode("utf-8", "surrogatepass"))

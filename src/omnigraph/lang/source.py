"""Where a language construct stands in its text, and what to say when something is wrong with it."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from omnigraph.errors import ErrorLocation, InvalidInput

Phase = Literal["parse", "catalog", "type"]
Severity = Literal["error", "warning", "info"]

MAX_DIAGNOSTICS = 100
MAX_MARKED = 160


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of character offsets in a source text."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The smallest span that covers both."""
        return Span(min(self.start, other.start), max(self.end, other.end))


NOWHERE = Span(0, 0)


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
        starts.extend(i + 1 for i, char in enumerate(self.text) if char == "\n")
        object.__setattr__(self, "_line_starts", tuple(starts))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a character offset, both counted from 1."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line without its line break."""
        start = self._line_starts[number - 1]
        end = self._line_starts[number] if number < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def byte_span(self, span: Span) -> tuple[int, int]:
        """The span as UTF-8 byte offsets, the form that leaves the process."""
        start = _utf8_length(self.text[: span.start])
        return start, start + _utf8_length(self.text[span.start : span.end])


def _utf8_length(text: str) -> int:
    # A text that was decoded leniently may hold lone surrogates, which have no strict encoding.
    return len(text.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing to say about one place in a source."""

    phase: Phase
    message: str
    file: str
    line: int
    column: int
    start: int
    end: int
    marked: str
    code: str | None = None
    hint: str | None = None
    severity: Severity = "error"

    @property
    def text(self) -> str:
        """The one-line form: ``type error: T6: …``."""
        code = f"{self.code}: " if self.code else ""
        return f"{self.phase} error: {code}{self.message}"

    def render(self) -> str:
        """The readable block: place, message, marked source line, hint."""
        block = f"{self.file}:{self.line}:{self.column}: {self.text}\n{self.marked}"
        return f"{block}\n  hint: {self.hint}" if self.hint else block

    def to_json(self) -> dict[str, Any]:
        """The machine-readable form; ``span`` holds byte offsets."""
        found: dict[str, Any] = {
            "severity": self.severity,
            "code": self.code,
            "message": self.text,
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "span": {"start": self.start, "end": self.end},
            "source_line": self.marked.split("\n", 1)[0].lstrip(" "),
        }
        if self.hint:
            found["hint"] = self.hint
        return found


def diagnose(
    source: Source,
    span: Span,
    phase: Phase,
    message: str,
    *,
    code: str | None = None,
    hint: str | None = None,
) -> Diagnostic:
    """Make a diagnostic that carries its own marked source line."""
    line, column = source.position(span.start)
    start, end = source.byte_span(span)
    return Diagnostic(
        phase=phase,
        message=message,
        file=source.name,
        line=line,
        column=column,
        start=start,
        end=end,
        marked=_mark(source.line(line), column - 1, span.end - span.start),
        code=code,
        hint=hint,
    )


def _mark(text: str, start: int, width: int) -> str:
    """A line, or the part of a long one around the place, with a line of carets below it."""
    if len(text) > MAX_MARKED:
        cut = max(0, min(start - MAX_MARKED // 2, len(text) - MAX_MARKED))
        text = text[cut : cut + MAX_MARKED]
        start -= cut
    # What a terminal would not show as one cell is replaced: the text may come from anywhere.
    shown = "".join(char if char.isprintable() or char == "\t" else "\ufffd" for char in text)
    # Tabs before the marker are kept, so that the caret stands below its target in any terminal.
    lead = "".join("\t" if char == "\t" else " " for char in text[:start])
    return f"  {shown}\n  {lead}{'^' * max(1, min(width, len(text) - start))}"


class LanguageError(InvalidInput):
    """A schema or query text is not acceptable; `diagnostics` holds everything found, in source order.

    Nothing was read or written. Correct the text at the marked places and try again.
    """

    diagnostics: tuple[Diagnostic, ...]

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        found = tuple(diagnostics)
        first = found[0]
        super().__init__(
            first.text if len(found) == 1 else f"{first.text} (and {len(found) - 1} more)",
            details={"diagnostics": [item.to_json() for item in found]},
            hint=first.hint,
        )
        self.diagnostics = found
        self.location = ErrorLocation(source=first.file, line=first.line, column=first.column)

    @property
    def message(self) -> str:
        """The first problem and the number of the others; every diagnostic has its own place."""
        return self.reason

    @property
    def line(self) -> int:
        """Line of the first problem, counted from 1."""
        return self.diagnostics[0].line

    @property
    def column(self) -> int:
        """Column of the first problem, counted from 1."""
        return self.diagnostics[0].column

    @property
    def marked(self) -> str:
        """The first problem's source line with the caret line below it."""
        return self.diagnostics[0].marked

    def __str__(self) -> str:
        return "\n".join(item.render() for item in self.diagnostics)


class Diagnostics:
    """Collects what a phase finds, so that one run reports all of it."""

    def __init__(self, source: Source, phase: Phase) -> None:
        self.source = source
        self.phase = phase
        self.found: list[Diagnostic] = []

    def add(
        self,
        span: Span,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        phase: Phase | None = None,
    ) -> None:
        """Record one error; past a bound the rest is dropped. `phase` is for an error of another phase."""
        if len(self.found) < MAX_DIAGNOSTICS:
            found = diagnose(self.source, span, phase or self.phase, message, code=code, hint=hint)
            self.found.append(found)

    def raise_if_any(self) -> None:
        """Raise everything found, in source order."""
        if self.found:
            raise LanguageError(sorted(self.found, key=lambda item: (item.start, item.end)))


def nearest_name(wanted: str, known: Sequence[str]) -> str | None:
    """The known name most like the wanted one, if any is near.

    >>> nearest_name("naem", ["age", "name"])
    'name'
    """
    folded = {name.lower(): name for name in known}
    if wanted.lower() in folded:
        return folded[wanted.lower()]
    close = difflib.get_close_matches(wanted.lower(), list(folded), n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def suggestion(wanted: str, known: Iterable[str]) -> str | None:
    """The hint ``did you mean `x`?`` for a name that is not known, or None.

    >>> suggestion("naem", ["age", "name"])
    'did you mean `name`?'
    """
    name = nearest_name(wanted, list(known))
    return f"did you mean `{name}`?" if name else None


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """The tail ``, did you mean `x`?`` of a message, or nothing.

    >>> did_you_mean("naem", ["age", "name"])
    ', did you mean `name`?'
    """
    name = nearest_name(wanted, list(known))
    return f", did you mean `{name}`?" if name else ""

"""Diagnostics of the two languages: errors with a code, a position and the marked source line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from omnigraph.errors import ErrorLocation, InvalidInput
from omnigraph.lang.source import Source, Span

Phase = Literal["parse", "catalog", "type"]
Severity = Literal["error", "warning", "info"]

MAX_DIAGNOSTICS = 100
MAX_MARKED = 160


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message about one position in a source."""

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
        """One-line form: ``type error: T6: …``."""
        code = f"{self.code}: " if self.code else ""
        return f"{self.phase} error: {code}{self.message}"

    def render(self) -> str:
        """Render position, message, marked source line and hint on several lines."""
        block = f"{self.file}:{self.line}:{self.column}: {self.text}\n{self.marked}"
        return f"{block}\n  hint: {self.hint}" if self.hint else block

    def to_json(self) -> dict[str, Any]:
        """Return the machine-readable form; ``span`` holds byte offsets."""
        encoded: dict[str, Any] = {
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
            encoded["hint"] = self.hint
        return encoded


def diagnose(
    source: Source,
    span: Span,
    phase: Phase,
    message: str,
    *,
    code: str | None = None,
    hint: str | None = None,
) -> Diagnostic:
    """Create a diagnostic with its marked source line."""
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
    """Return a line, or an excerpt of a long line around the position, with a line of carets below it."""
    if len(text) > MAX_MARKED:
        cut = max(0, min(start - MAX_MARKED // 2, len(text) - MAX_MARKED))
        text = text[cut : cut + MAX_MARKED]
        start -= cut
    # Characters that a terminal does not show as one cell are replaced; the text is untrusted.
    shown = "".join(char if char.isprintable() or char == "\t" else "\ufffd" for char in text)
    # Tabs before the marker are kept, so that the caret is below its target in any terminal.
    lead = "".join("\t" if char == "\t" else " " for char in text[:start])
    return f"  {shown}\n  {lead}{'^' * max(1, min(width, len(text) - start))}"


class LanguageError(InvalidInput):
    """A schema or query text has errors; `diagnostics` holds all of them, in source order.

    Nothing was read or written. Correct the text at the marked positions and try again.
    """

    diagnostics: tuple[Diagnostic, ...]

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        listed = tuple(diagnostics)
        first = listed[0]
        super().__init__(
            first.text if len(listed) == 1 else f"{first.text} (and {len(listed) - 1} more)",
            details={"diagnostics": [item.to_json() for item in listed]},
            hint=first.hint,
        )
        self.diagnostics = listed
        self.location = ErrorLocation(source=first.file, line=first.line, column=first.column)

    @property
    def message(self) -> str:
        """Text of the first error and the number of further errors; each diagnostic has its own position."""
        return self.reason

    @property
    def line(self) -> int:
        """Line of the first error, counted from 1."""
        return self.diagnostics[0].line

    @property
    def column(self) -> int:
        """Column of the first error, counted from 1."""
        return self.diagnostics[0].column

    @property
    def marked(self) -> str:
        """Source line of the first error with the caret line below it."""
        return self.diagnostics[0].marked

    def __str__(self) -> str:
        return "\n".join(item.render() for item in self.diagnostics)


class Diagnostics:
    """Collects the errors of a phase, so that one run reports all of them."""

    def __init__(self, source: Source, phase: Phase) -> None:
        self.source = source
        self.phase = phase
        self.recorded: list[Diagnostic] = []

    def add(
        self,
        span: Span,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        phase: Phase | None = None,
    ) -> None:
        """Record an error, at most `MAX_DIAGNOSTICS` of them; `phase` overrides the phase of the collector."""
        if len(self.recorded) < MAX_DIAGNOSTICS:
            self.recorded.append(
                diagnose(self.source, span, phase or self.phase, message, code=code, hint=hint)
            )

    def raise_if_any(self) -> None:
        """Raise a `LanguageError` with all recorded errors in source order, if there are any."""
        if self.recorded:
            raise LanguageError(sorted(self.recorded, key=lambda item: (item.start, item.end)))

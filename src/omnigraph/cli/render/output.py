"""Print results on stdout, and errors, warnings and notes on stderr. Colour is used on terminals only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

from omnigraph.api.display.terminal_text import escape_controls
from omnigraph.errors import ConstraintViolation, InvalidInput, invalid_record_text, violation_text

if TYPE_CHECKING:
    from omnigraph.errors import OmnigraphError
    from omnigraph.lang.diagnostics import Diagnostic

STYLES = {"OK": "green", "ERROR": "bold red", "WARN": "yellow", "INFO": "cyan", "FILE": "bold"}
MAX_VIOLATIONS = 10
DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def print_line(text: str) -> None:
    """Print a line of the result on stdout, unchanged."""
    _write(sys.stdout, text)


def print_status(word: str, text: str) -> None:
    """Print a line that starts with a status word in a fixed-width column: ``OK    query …``."""
    _write(
        sys.stdout, f"{_styled(word, STYLES[word], sys.stdout)}{' ' * (6 - len(word))}{escape_controls(text)}"
    )


def print_json(document: object) -> None:
    """Print one JSON document on stdout, indented by two spaces."""
    # If stdout is not UTF-8, non-ASCII characters are escaped.
    stream = result_stream()
    ascii_only = (stream.encoding or "").lower().replace("-", "") != "utf8"
    _write(stream, json.dumps(document, indent=2, ensure_ascii=ascii_only))


def print_verbatim(text: str) -> None:
    """Write text to stdout as UTF-8: nothing is added or escaped."""
    stream = result_stream()
    stream.flush()
    stream.buffer.write(text.encode("utf-8"))


def result_stream() -> TextIO:
    """Return stdout. Raises `OSError` if the process has none: the result of the command would be lost."""
    if sys.stdout is None:
        raise OSError("stdout is closed")
    return sys.stdout


def data_stdout() -> TextIOWrapper:
    """Return stdout, reconfigured for data: strict UTF-8 and LF line endings."""
    stream = result_stream()
    assert isinstance(stream, TextIOWrapper), "stdout must be a text stream over bytes"
    stream.reconfigure(encoding="utf-8", errors="strict", newline="\n")
    return stream


def print_diff(lines: Iterable[str]) -> None:
    """Print the lines of a unified diff. Each line includes its line ending."""
    for line in lines:
        style = DIFF_STYLES.get(line[:1])
        print_verbatim(f"{_styled(line[:-1], style, sys.stdout)}\n" if style else line)


def print_warning(text: str) -> None:
    """Print a warning on stderr."""
    _write(sys.stderr, f"{_styled('warning:', STYLES['WARN'], sys.stderr)} {escape_controls(text)}")


def print_error(error: OmnigraphError) -> None:
    """Print an error on stderr: the message, the marked source line if there is one, and the hint."""
    label = _styled("error:", STYLES["ERROR"], sys.stderr)
    _write(sys.stderr, "\n".join(f"{label} {escape_controls(problem)}" for problem in _error_blocks(error)))


def print_error_json(error: OmnigraphError) -> None:
    """Print an error on stderr as one JSON document: its message, code, hint and details."""
    from omnigraph.protocol.codec import encode_error

    encoded = encode_error(error)
    location = {name: value for name, value in (encoded["location"] or {}).items() if value is not None}
    document = {"error": error.message, "code": error.code, "hint": error.hint, "location": location}
    document |= {name: encoded.get(name) for name in ("details", "violations", "conflicts")}
    shown = {name: value for name, value in document.items() if value}
    _write(sys.stderr, json.dumps(shown, indent=2))


def print_internal_error(error: BaseException) -> None:
    """Print an unexpected exception, which is a bug, without its traceback."""
    label = _styled("error:", STYLES["ERROR"], sys.stderr)
    summary = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    hint = "this is a bug in omnigraph, not in your input; --debug prints the Python traceback"
    _write(sys.stderr, f"{label} internal error: {escape_controls(summary)}\nhint: {hint}")


def diagnostic_lines(diagnostic: Diagnostic) -> Iterator[str]:
    """Yield the location, the marked source line and the hint of a diagnostic, without its message."""
    yield f"{diagnostic.file}:{diagnostic.line}:{diagnostic.column}"
    yield from diagnostic.marked.split("\n")
    if diagnostic.hint:
        yield f"hint: {diagnostic.hint}"


def escape_unprintable(text: str) -> str:
    """Return text on one line: every character that is not printable is escaped.

    >>> escape_unprintable("Ann\\x1b[2J")
    'Ann\\\\x1b[2J'
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


def print_note(text: str) -> None:
    """Print a message on stderr that is neither an error nor a warning."""
    _write(sys.stderr, escape_controls(text))


def indented(lines: Iterable[str], depth: int = 6) -> str:
    """Join lines to one text, each indented."""
    return "\n".join(" " * depth + line for line in lines)


def count(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural.

    >>> count(1, "edge type"), count(2, "query")
    ('1 edge type', '2 queries')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def _error_blocks(error: OmnigraphError) -> list[str]:
    from omnigraph.lang.diagnostics import LanguageError

    if isinstance(error, LanguageError):
        return [item.render() for item in error.diagnostics]
    listed = error.details.get("errors")
    if isinstance(listed, list) and len(listed) > 1:
        # The message has the first error and the number of the others. Print all of them.
        first = f"{listed[0]}\nhint: {error.hint}" if error.hint else str(listed[0])
        return [first, *map(str, listed[1:])]
    if isinstance(error, ConstraintViolation) and error.violations:
        return _violation_blocks(error)
    if isinstance(error, InvalidInput) and len(error.violations) > 1:
        return _record_blocks(error)
    return [_with_location(str(error), error.details)]


def _record_blocks(error: InvalidInput) -> list[str]:
    """Return the first invalid records of a load, each with its hint, and the number of the others."""
    shown, hints = [], set()
    for item in error.violations[:MAX_VIOLATIONS]:
        hint = item.get("hint")
        # One hint for all records with the same problem.
        is_new = hint is not None and hint not in hints
        shown.append(invalid_record_text(item) + (f"\nhint: {hint}" if is_new else ""))
        hints.add(hint)
    total = error.details["violations"]
    return [*shown, f"and {total - len(shown)} more"] if total > len(shown) else shown


def _violation_blocks(error: ConstraintViolation) -> list[str]:
    """Return the first violations, each with its place in the input, and the number of the others."""
    shown = [violation_text(item) for item in error.violations[:MAX_VIOLATIONS]]
    total = error.details.get("violations", len(error.violations))
    if total > len(shown):
        shown.append(f"and {total - len(shown)} more")
    if error.hint:
        shown[-1] += f"\nhint: {error.hint}"
    return shown


def _with_location(message: str, details: Mapping[str, Any]) -> str:
    """Return the message, preceded by the input and the line unless the message names them."""
    source, line = details.get("source"), details.get("line")
    if line is not None and f"line {line}" not in message:
        message = f"line {line}: {message}"
    return f"{source}: {message}" if isinstance(source, str) and source not in message else message


def _write(stream: TextIO | None, text: str) -> None:
    # A process may be started without stdout or stderr.
    if stream is not None:
        stream.write(text + "\n")
        if stream is sys.stderr:
            # stderr is buffered if it is not a terminal. Notes such as the target of a write must appear first.
            stream.flush()


def _styled(text: str, style: str, stream: TextIO | None) -> str:
    if stream is None or not _use_color(stream):
        return text
    from rich.color import ColorSystem
    from rich.style import Style

    return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)


def styled(text: str, style: str) -> str:
    """Return text in a style if stdout shows colour."""
    return _styled(text, style, sys.stdout)


def _use_color(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"

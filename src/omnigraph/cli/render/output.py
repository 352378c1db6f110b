"""What commands print: results on stdout, errors and warnings on stderr, colour only for a terminal."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

from omnigraph.errors import ConstraintViolation, violation_text

if TYPE_CHECKING:
    from omnigraph.errors import OmnigraphError
    from omnigraph.lang.diagnostics import Diagnostic

STYLES = {"OK": "green", "ERROR": "bold red", "WARN": "yellow", "INFO": "cyan", "FILE": "bold"}
SHOWN_VIOLATIONS = 10
DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}

# Controls, what changes the direction of text or has no width, halves of pairs, ends of lines and paragraphs.
_ACTED_UPON = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Of no width as well, but between letters of other scripts, and of emoji, part of how they are written.
_JOINERS = "\u200c\u200d"


def say(text: str) -> None:
    """Print one result, as it is."""
    _write(sys.stdout, text)


def say_status(word: str, text: str) -> None:
    """Print a result line that begins with a status word in a column of its own: ``OK    query …``."""
    _write(sys.stdout, f"{_painted(word, STYLES[word], sys.stdout)}{' ' * (6 - len(word))}{harmless(text)}")


def say_json(document: object) -> None:
    """Print one JSON document, indented by two."""
    # JSON is UTF-8 wherever it can be; on a stream that cannot carry it, escapes keep it valid.
    stream = result_stream()
    ascii_only = (stream.encoding or "").lower().replace("-", "") != "utf8"
    _write(stream, json.dumps(document, indent=2, ensure_ascii=ascii_only))


def say_exactly(text: str) -> None:
    """Print text that is data: UTF-8, nothing added, nothing escaped."""
    stream = result_stream()
    stream.flush()
    stream.buffer.write(text.encode("utf-8"))


def result_stream() -> TextIO:
    """Stdout, for a command of which the result is all there is; one that lost it has not succeeded."""
    if sys.stdout is None:
        raise OSError("there is no stdout")
    return sys.stdout


def data_stdout() -> TextIOWrapper:
    """Stdout as data goes there, whatever it was made for: UTF-8, and one byte at the end of a line."""
    stream = result_stream()
    assert isinstance(stream, TextIOWrapper), "nobody replaces stdout by something else"
    stream.reconfigure(encoding="utf-8", errors="strict", newline="\n")
    return stream


def say_diff(lines: Iterable[str]) -> None:
    """Print the lines of a unified diff, each with its line end."""
    for line in lines:
        style = DIFF_STYLES.get(line[:1])
        say_exactly(f"{_painted(line[:-1], style, sys.stdout)}\n" if style else line)


def warn(text: str) -> None:
    """Print a warning; the command goes on."""
    _write(sys.stderr, f"{_painted('warning:', STYLES['WARN'], sys.stderr)} {harmless(text)}")


def complain(error: OmnigraphError) -> None:
    """Print an error as one block: what happened, the marked source line, what to try next."""
    label = _painted("error:", STYLES["ERROR"], sys.stderr)
    _write(sys.stderr, "\n".join(f"{label} {harmless(problem)}" for problem in _problems(error)))


def complain_of_defect(error: BaseException) -> None:
    """Print what little can be said to a user about an error that nobody foresaw."""
    label = _painted("error:", STYLES["ERROR"], sys.stderr)
    summary = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    hint = "this is a defect in omnigraph, not in your input; --debug shows where it happened"
    _write(sys.stderr, f"{label} internal error: {harmless(summary)}\nhint: {hint}")


def diagnostic_lines(diagnostic: Diagnostic) -> Iterator[str]:
    """Place, marked source line and hint, to stand below a line that already gives the message."""
    yield f"{diagnostic.file}:{diagnostic.line}:{diagnostic.column}"
    yield from diagnostic.marked.split("\n")
    if diagnostic.hint:
        yield f"hint: {diagnostic.hint}"


def readable(text: str) -> str:
    """Text of others on one line: what a terminal would act upon is escaped.

    >>> readable("Ann\\x1b[2J")
    'Ann\\\\x1b[2J'
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


def harmless(text: str, kept: str = "\n\t") -> str:
    """Text that others may have had a hand in, as it can be shown: only what a terminal would act upon is escaped.

    >>> harmless("two\\nlines\\x1b[2J"), harmless("two\\nlines", kept="")
    ('two\\nlines\\\\x1b[2J', 'two\\\\nlines')
    """
    if text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode()
        if letter not in kept
        and unicodedata.category(letter) in _ACTED_UPON
        and not (letter in _JOINERS and before > "\x7f")
        else letter
        for before, letter in zip(f"\0{text}", text, strict=False)
    )


def note(text: str) -> None:
    """Print something about the run that is neither result nor warning."""
    _write(sys.stderr, harmless(text))


def indented(lines: Iterable[str], depth: int = 6) -> str:
    """Lines as one text, moved in."""
    return "\n".join(" " * depth + line for line in lines)


def count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "edge type"), count(2, "query")
    ('1 edge type', '2 queries')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def _problems(error: OmnigraphError) -> list[str]:
    from omnigraph.lang.diagnostics import LanguageError

    if isinstance(error, LanguageError):
        return [item.render() for item in error.diagnostics]
    listed = error.details.get("errors")
    if isinstance(listed, list) and len(listed) > 1:
        # The message names the first and counts the others; a person wants to read them all.
        hint = [f"{listed[0]}\nhint: {error.hint}"] if error.hint else [str(listed[0])]
        return [*hint, *map(str, listed[1:])]
    if isinstance(error, ConstraintViolation) and error.violations:
        return _violations(error)
    return [_placed(str(error), error.details)]


def _violations(error: ConstraintViolation) -> list[str]:
    """The first of what is wrong with the data, each with its place in the input, and how much more there is."""
    shown = [violation_text(item) for item in error.violations[:SHOWN_VIOLATIONS]]
    total = error.details.get("violations", len(error.violations))
    if total > len(shown):
        shown.append(f"and {total - len(shown)} more like these")
    if error.hint:
        shown[-1] += f"\nhint: {error.hint}"
    return shown


def _placed(message: str, details: Mapping[str, Any]) -> str:
    """A message with the input and the line it is about, where it does not name them itself."""
    source, line = details.get("source"), details.get("line")
    if line is not None and f"line {line}" not in message:
        message = f"line {line}: {message}"
    return f"{source}: {message}" if isinstance(source, str) and source not in message else message


def _write(stream: TextIO | None, text: str) -> None:
    # A process can be started without streams; then there is nobody to tell.
    if stream is not None:
        stream.write(text + "\n")
        if stream is sys.stderr:
            # What is about to happen must be read before it does, also where stderr is no terminal.
            stream.flush()


def _painted(text: str, style: str, stream: TextIO | None) -> str:
    if stream is None or not _wants_colour(stream):
        return text
    from rich.color import ColorSystem
    from rich.style import Style

    return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)


def _wants_colour(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"

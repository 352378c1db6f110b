"""Parser of a byte stream that is one JSON array: one element in memory at a time."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn

from omnigraph.errors import ErrorLocation, InvalidInput, ResourceLimit
from omnigraph.sources.json.line_blocks import BLOB_LINE_BYTES, LINE_BYTES, chunks, counted_length
from omnigraph.sources.json.ndjson import decode_value

_READ_BYTES: Final = 65_536
_SPACE = re.compile(r"[ \t\r\n]*")
# Python reports a truncated token at most so many characters before the end of the text: `-Infinity`, an escape.
_MAX_TOKEN: Final = 12


def parse_json_array(
    stream: Iterable[bytes],
    source: str | None = None,
    *,
    limit: int = LINE_BYTES,
    read_bytes: int = _READ_BYTES,
) -> Iterator[Any]:
    """Yield the elements of an array of strict JSON.

    An element has at most `limit` characters, not counting base64 values. Raises `InvalidInput` for invalid JSON,
    with the line and the column, and `ResourceLimit` for an element that is too long.

    >>> list(parse_json_array([b' [{"a":1},', b' {"a":2}]']))
    [{'a': 1}, {'a': 2}]
    """
    text = _Text(stream, source, limit, read_bytes)
    if text.peek() != "[":
        text.fail("Expecting value")
    text.skip()
    if text.peek() == "]":
        text.skip()
    else:
        while True:
            text.peek()
            yield text.next_value()
            following = text.peek()
            if following not in (",", "]"):
                text.fail("Expecting ',' delimiter")
            text.skip()
            if following == "]":
                break
    if text.peek():
        text.fail("Extra data")


class _Text:
    """The text of a stream from the current position, with the position in lines and columns."""

    def __init__(self, stream: Iterable[bytes], source: str | None, limit: int, read_bytes: int) -> None:
        self._chunks = chunks(stream, read_bytes)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._source = source
        self._limit = limit
        self._text = ""
        self._position = 0
        self._finished = False
        self._element = 1
        # The lines before the text, and the characters before it on its first line.
        self._lines = 0
        self._columns = 0

    def peek(self) -> str:
        """Skip white space and return the next character, or an empty string at the end."""
        while True:
            space = _SPACE.match(self._text, self._position)
            self._position = len(self._text) if space is None else space.end()
            if self._position < len(self._text):
                return self._text[self._position]
            if self._finished:
                return ""
            self._read_more()

    def skip(self) -> None:
        """Skip one character."""
        self._position += 1

    def next_value(self) -> Any:
        """Return the value at the position, and skip it."""
        while True:
            try:
                value, end = decode_value(self._text, self._position)
            except json.JSONDecodeError as error:
                if self._finished or not self._is_truncated(error):
                    self.fail(error.msg, error.pos, error)
            except RecursionError as error:
                self.fail("nested too deeply", cause=error)
            except UnicodeEncodeError as error:
                self.fail("unpaired surrogate in a string", cause=error)
            except ValueError as error:
                self.fail(str(error), cause=error)
            else:
                # A number near the end of the text may continue: `1` of `1.5` or of `1e+9`.
                if isinstance(value, dict) or end + _MAX_TOKEN <= len(self._text) or self._finished:
                    self._position, self._element = end, self._element + 1
                    return value
            self._check_length(len(self._text) - self._position)
            self._read_more()

    def fail(self, reason: str, at: int | None = None, cause: Exception | None = None) -> NoReturn:
        """Raise the error for invalid JSON at a position of the text, by default the current one."""
        before = self._text[: self._position if at is None else at]
        line = self._lines + before.count("\n") + 1
        column = len(before) - (before.rfind("\n") + 1) + (0 if "\n" in before else self._columns) + 1
        position = "" if at is None and cause is not None else f" at column {column}"
        raise InvalidInput(
            f"{reason}{position}",
            location=ErrorLocation(source=self._source, line=line, syntax="strict JSON"),
        ) from cause

    def _check_length(self, length: int) -> None:
        if length <= self._limit:
            return
        if length > BLOB_LINE_BYTES or counted_length(self._text, self._position) > self._limit:
            raise ResourceLimit(
                f"longer than {self._limit:,} characters, not counting base64 values",
                details={"resource": "json_element_bytes", "limit": self._limit},
                location=ErrorLocation(source=self._source, row=self._element),
            )

    def _is_truncated(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - _MAX_TOKEN

    def _read_more(self) -> None:
        """Drop the text before the position, and double the rest, so that long values are decoded a few times."""
        before = self._text[: self._position]
        lines = before.count("\n")
        self._lines += lines
        self._columns = len(before) - (before.rfind("\n") + 1) + (0 if lines else self._columns)
        parts = [self._text[self._position :]]
        remaining = max(len(parts[0]), 1)
        while remaining > 0 and not self._finished:
            chunk = next(self._chunks, None)
            self._finished = chunk is None
            try:
                parts.append(self._decoder.decode(chunk or b"", final=chunk is None))
            except UnicodeDecodeError as error:
                self._text, self._position = "".join(parts), 0
                self.fail(f"invalid UTF-8 at byte {error.start + 1}", cause=error)
            remaining -= max(1, len(parts[-1]))
        self._text, self._position = "".join(parts), 0

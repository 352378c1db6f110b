"""Parser of a byte stream of JSON values in any layout."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NoReturn

from omnigraph.errors import ErrorLocation, InvalidInput, ResourceLimit
from omnigraph.sources.json.line_blocks import BLOB_LINE_BYTES, LINE_BYTES, chunks, counted_length
from omnigraph.sources.json.ndjson import reject_constant

_READ_BYTES = 65_536
_SPACE = re.compile(r"[ \t\r\n]*")
# Python reports a truncated token at most so many characters before the end of the text: `-Infinity`, an escape.
_MAX_TOKEN = 12


def parse_json_stream(
    stream: BinaryIO | Iterable[bytes],
    source: str | None = None,
    *,
    limit: int = LINE_BYTES,
    read_bytes: int = _READ_BYTES,
) -> Iterator[Any]:
    """Yield the values of a stream. One value is kept in memory.

    A value has at most `limit` characters, not counting base64 values, and `BLOB_LINE_BYTES` with them.

    Raises `InvalidInput` for invalid JSON, with the number of the record.

    >>> list(parse_json_stream([b'{"a":\\n 1} {"a"', b': 2}']))
    [{'a': 1}, {'a': 2}]
    """
    buffer = _Buffer(stream, source, limit, read_bytes)
    while buffer.skip_space():
        yield buffer.next_value()


class _Buffer:
    def __init__(
        self, stream: BinaryIO | Iterable[bytes], source: str | None, limit: int, read_bytes: int
    ) -> None:
        self._chunks = chunks(stream, read_bytes)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._source = source
        self._limit = limit
        self._text = ""
        self._position = 0
        self._number = 1
        self._finished = False

    def skip_space(self) -> bool:
        """Advance to the next value; return false at the end of the stream."""
        while True:
            space = _SPACE.match(self._text, self._position)
            self._position = len(self._text) if space is None else space.end()
            if self._position < len(self._text):
                return True
            if self._finished:
                return False
            self._read_more()

    def next_value(self) -> Any:
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                if self._finished or not self._is_truncated(error):
                    self._fail(error, error.msg)
            except (ValueError, RecursionError) as error:
                self._fail(error, str(error))
            else:
                # A number near the end of the text may continue: `1` of `1.5` or of `1e+9`.
                if isinstance(value, dict) or end + _MAX_TOKEN <= len(self._text) or self._finished:
                    self._position, self._number = end, self._number + 1
                    return value
            if self._is_too_long(len(self._text) - self._position):
                raise ResourceLimit(
                    f"longer than {self._limit:,} characters, not counting base64 values",
                    details={"limit": self._limit},
                    location=ErrorLocation(source=self._source, record=self._number),
                )
            self._read_more()

    def _is_too_long(self, length: int) -> bool:
        if length <= self._limit:
            return False
        return length > BLOB_LINE_BYTES or counted_length(self._text, self._position) > self._limit

    def _is_truncated(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - _MAX_TOKEN

    def _read_more(self) -> None:
        """Double the buffered text, so that a long value is not decoded too often from its start."""
        parts = [self._text[self._position :]]
        remaining = len(parts[0])
        while remaining >= 0 and not self._finished:
            chunk = next(self._chunks, None)
            self._finished = chunk is None
            try:
                parts.append(self._decoder.decode(chunk or b"", final=chunk is None))
            except UnicodeDecodeError as error:
                self._fail(error, "invalid UTF-8")
            remaining -= max(1, len(parts[-1]))
        self._text, self._position = "".join(parts), 0

    def _fail(self, error: Exception, reason: str) -> NoReturn:
        raise InvalidInput(
            reason, location=ErrorLocation(source=self._source, record=self._number, syntax="JSON")
        ) from error


class RepeatedMembers(dict[str, Any]):
    """An object in which a name occurs several times. It has the last value of each name.

    `repeated` has a name for every value that is lost.
    """

    repeated: tuple[str, ...] = ()


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    found = RepeatedMembers(members)
    counts = Counter(name for name, _ in pairs)
    found.repeated = tuple(name for name, count in counts.items() for _ in range(count - 1))
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_constant=reject_constant)

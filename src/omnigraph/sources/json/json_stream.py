"""JSON values out of a byte stream, one after the other, however they are laid out."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NoReturn

from omnigraph.errors import ErrorLocation, InvalidInput, ResourceLimit
from omnigraph.sources.json.line_blocks import LINE_BYTES, pieces

_READ = 65_536
_SPACE = re.compile(r"[ \t\r\n]*")
# Where a token is cut off, Python points at most so far before the end of the text: `-Infinity`, or an escape.
_TOKEN = 12


def json_values(
    stream: BinaryIO | Iterable[bytes],
    source: str | None = None,
    *,
    limit: int = LINE_BYTES,
    read: int = _READ,
) -> Iterator[Any]:
    """The values of a stream. Held are one value, of at most `limit` characters, and what was read beyond it.

    Text that is no JSON is `InvalidInput`, with the number of the record that it would have been.

    >>> list(json_values([b'{"a":\\n 1} {"a"', b': 2}']))
    [{'a': 1}, {'a': 2}]
    """
    buffer = _Buffer(stream, source, limit, read)
    while buffer.skip_space():
        yield buffer.value()


class _Buffer:
    def __init__(self, stream: BinaryIO | Iterable[bytes], source: str | None, limit: int, read: int) -> None:
        self._pieces = pieces(stream, read)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._source = source
        self._limit = limit
        self._text = ""
        self._position = 0
        self._number = 1
        self._finished = False

    def skip_space(self) -> bool:
        """Go to the next value; false at the end of the stream."""
        while True:
            space = _SPACE.match(self._text, self._position)
            self._position = len(self._text) if space is None else space.end()
            if self._position < len(self._text):
                return True
            if self._finished:
                return False
            self._more()

    def value(self) -> Any:
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                if self._finished or not self._is_cut(error):
                    self._refuse(error, error.msg)
            except (ValueError, RecursionError) as error:
                self._refuse(error, str(error))
            else:
                # A number near the end of the text may go on: `1` of `1.5`, and of `1e+9`.
                if isinstance(value, dict) or end + _TOKEN <= len(self._text) or self._finished:
                    self._position, self._number = end, self._number + 1
                    return value
            if len(self._text) - self._position > self._limit:
                raise ResourceLimit(
                    f"longer than {self._limit:,} characters",
                    details={"limit": self._limit},
                    location=ErrorLocation(source=self._source, record=self._number),
                )
            self._more()

    def _is_cut(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - _TOKEN

    def _more(self) -> None:
        """Read as much again as is held, so that a long value is not decoded from its beginning too often."""
        parts = [self._text[self._position :]]
        wanted = len(parts[0])
        while wanted >= 0 and not self._finished:
            piece = next(self._pieces, None)
            self._finished = piece is None
            try:
                parts.append(self._decoder.decode(piece or b"", final=piece is None))
            except UnicodeDecodeError as error:
                self._refuse(error, "invalid UTF-8")
            wanted -= max(1, len(parts[-1]))
        self._text, self._position = "".join(parts), 0

    def _refuse(self, error: Exception, reason: str) -> NoReturn:
        raise InvalidInput(
            reason, location=ErrorLocation(source=self._source, record=self._number, syntax="JSON")
        ) from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)

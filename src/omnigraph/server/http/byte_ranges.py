"""Entity tags and byte ranges of HTTP requests (RFC 9110) for a single representation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_ENTITY_TAG = re.compile(r'\s*(W/)?("[\x21\x23-\x7e\x80-\xff]*")\s*(?:,|\Z)')
_RANGE = re.compile(r"bytes=\s*(\d*)-(\d*)\s*\Z", re.IGNORECASE | re.ASCII)
# Larger than any value. Python converts no text of more than a few thousand digits.
_MAX_POSITION = 10**18


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A range of bytes, from `start` up to `end`, which is not included."""

    start: int
    end: int


class RangeNotSatisfiable(ValueError):
    """A range that starts after the last byte. `end` is not included; it is the length of an open-ended range."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(f"byte range {start}:{end} is not satisfiable")
        self.start = start
        self.end = end


def matches_etag(values: Sequence[str], etag: str, *, weak: bool, allow_any: bool = True) -> bool:
    """Return whether an `If-Match` or `If-None-Match` header lists a tag.

    `weak` selects weak comparison. ``*`` matches every tag if `allow_any` is true.

    >>> matches_etag(['"a", W/"b"'], '"b"', weak=True), matches_etag(['"a", W/"b"'], '"b"', weak=False)
    (True, False)
    """
    text = ", ".join(values).strip()
    if text == "*":
        return allow_any
    position = 0
    while tag := _ENTITY_TAG.match(text, position):
        if tag[2] == etag and (weak or not tag[1]):
            return True
        position = tag.end()
    return False


def parse_range(values: Sequence[str], length: int) -> ByteRange | None:
    """Return the range of a `Range` header, or None if there is none, several, or a malformed one.

    Raises `RangeNotSatisfiable` for a range after the last byte.

    >>> parse_range(["bytes=0-3"], 10), parse_range(["bytes=-3"], 10), parse_range(["bytes=0-1,4-5"], 10)
    (ByteRange(start=0, end=4), ByteRange(start=7, end=10), None)
    """
    match = _RANGE.match(values[0].strip()) if len(values) == 1 else None
    if match is None:
        return None
    first, last = _parse_position(match[1]), _parse_position(match[2])
    if first is None:
        if last is None:
            return None
        if not length or not last:
            raise RangeNotSatisfiable(length, length)
        return ByteRange(max(0, length - last), length)
    if last is not None and last < first:
        return None
    if first >= length:
        raise RangeNotSatisfiable(first, length if last is None else last + 1)
    return ByteRange(first, length if last is None else min(last + 1, length))


def _parse_position(digits: str) -> int | None:
    if not digits:
        return None
    significant = digits.lstrip("0") or "0"
    return _MAX_POSITION if len(significant) >= len(str(_MAX_POSITION)) else int(significant)

"""Conditions and ranges of HTTP, as far as they are about one value of bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TAG = re.compile(r'\s*(W/)?("[\x21\x23-\x7e\x80-\xff]*")\s*(?:,|\Z)')
_RANGE = re.compile(r"bytes=\s*(\d*)-(\d*)\s*\Z", re.IGNORECASE | re.ASCII)
# No value is longer; Python reads no number of more than some thousand digits.
_MOST = 10**18


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes from `start` up to and with `end`, as HTTP counts them."""

    start: int
    end: int


class Unsatisfiable(ValueError):
    """A range that begins behind the end; `start` and `end` are as they were asked for."""

    def __init__(self, start: int, end: int | None) -> None:
        super().__init__(f"no bytes from {start}")
        self.start = start
        self.end = end


def matches(values: Sequence[str], etag: str, *, weak: bool, any_: bool = True) -> bool:
    """Whether a header of conditions names a tag, or with `any_` anything by ``*``.

    >>> matches(['"a", W/"b"'], '"b"', weak=True), matches(['"a", W/"b"'], '"b"', weak=False)
    (True, False)
    """
    text = ", ".join(values).strip()
    if text == "*":
        return any_
    place = 0
    while found := _TAG.match(text, place):
        if found[2] == etag and (weak or not found[1]):
            return True
        place = found.end()
    return False


def parse_range(values: Sequence[str], length: int) -> Span | None:
    """The one range that is asked for; None for none, for several and for what is not understood.

    >>> parse_range(["bytes=0-3"], 10), parse_range(["bytes=-3"], 10), parse_range(["bytes=0-1,4-5"], 10)
    (Span(start=0, end=3), Span(start=7, end=9), None)
    """
    found = _RANGE.match(values[0].strip()) if len(values) == 1 else None
    if found is None:
        return None
    first, last = _number(found[1]), _number(found[2])
    if first is None:
        if last is None:
            return None
        if not length or not last:
            raise Unsatisfiable(length, None)
        return Span(max(0, length - last), length - 1)
    if last is not None and last < first:
        return None
    if first >= length:
        raise Unsatisfiable(first, last)
    return Span(first, length - 1 if last is None else min(last, length - 1))


def _number(digits: str) -> int | None:
    if not digits:
        return None
    found = digits.lstrip("0") or "0"
    return _MOST if len(found) >= len(str(_MOST)) else int(found)

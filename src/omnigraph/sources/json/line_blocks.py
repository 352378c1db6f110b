"""A byte stream as blocks of complete lines, bounded however the input is cut and however long a line is."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from omnigraph.errors import InvalidInput

# The longest line of a strict input, its line end not counted.
LINE_BYTES = 33_554_432


@dataclass(frozen=True, slots=True)
class Block:
    """Complete lines; `first` is the number of the first. A line that is too long stands alone, without text."""

    first: int
    data: bytes
    too_long: bool = False


def blocks(stream: BinaryIO | Iterable[bytes], size: int, limit: int = LINE_BYTES) -> Iterator[Block]:
    """Blocks of about `size` bytes. The last line need not have an end.

    Of a line longer than `limit` no more than that is held; the rest of it is read and dropped.

    >>> [(block.first, block.data) for block in blocks([b"a\\nb", b"b\\nc"], 2)]
    [(1, b'a\\n'), (2, b'bb\\n'), (3, b'c')]
    """
    number = 1
    pending: list[bytes] = []
    held = 0
    dropping = False
    for piece in pieces(stream, size):
        chunk = piece
        if dropping:
            end = chunk.find(b"\n")
            if end < 0:
                continue
            yield Block(number, b"", too_long=True)
            number, dropping, chunk = number + 1, False, chunk[end + 1 :]
        cut = chunk.rfind(b"\n") + 1
        if cut:
            data = b"".join([*pending, chunk[:cut]])
            yield from _bounded(number, data, limit)
            number += data.count(b"\n")
            pending, held, chunk = [], 0, chunk[cut:]
        if chunk:
            pending.append(chunk)
            held += len(chunk)
            # One byte more for the carriage return that may end the line.
            if held > limit + 1:
                pending, held, dropping = [], 0, True
    if dropping:
        yield Block(number, b"", too_long=True)
    elif pending:
        yield from _bounded(number, b"".join(pending), limit)


def pieces(stream: BinaryIO | Iterable[bytes], size: int) -> Iterator[bytes]:
    """The bytes of a stream in pieces of `size`, however it hands them out; the last may be shorter."""
    held: list[bytes] = []
    count = 0
    for given in _given(stream, size):
        if not isinstance(given, bytes | bytearray | memoryview):
            raise InvalidInput(
                f"bytes expected, got {type(given).__name__}", hint="open the file in binary mode"
            )
        held.append(bytes(given))
        count += len(held[-1])
        if count >= size:
            whole = b"".join(held)
            cut = count - count % size
            yield from (whole[start : start + size] for start in range(0, cut, size))
            held, count = [whole[cut:]], count - cut
    if count:
        yield b"".join(held)


def without_bom(given: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of a file from its beginning, without the mark that some programs write before UTF-8.

    >>> list(without_bom([b"\\xef", b"\\xbb\\xbf{", b"}"]))
    [b'{', b'}']
    """
    held: bytes | None = b""
    for piece in given:
        # What is no bytes is refused by whoever reads on.
        if held is None or not isinstance(piece, bytes | bytearray | memoryview):
            yield piece
            continue
        held += bytes(piece)
        if len(held) < len(BOM_UTF8) and BOM_UTF8.startswith(held):
            continue
        found, held = held.removeprefix(BOM_UTF8), None
        if found:
            yield found
    if held:
        yield held


def _given(stream: Any, size: int) -> Iterator[Any]:
    read = getattr(stream, "read", None)
    return iter(stream) if read is None else iter(partial(read, size), b"")


def _bounded(number: int, data: bytes, limit: int) -> Iterator[Block]:
    """A block as it is, or in parts around its lines that are too long."""
    if len(data) <= limit:
        yield Block(number, data)
        return
    start = 0
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        after = len(data) if end < 0 else end + 1
        text = (
            data[position:after].removesuffix(b"\n").removesuffix(b"\r") if after - position > limit else b""
        )
        if len(text) > limit:
            if start < position:
                yield Block(number - data.count(b"\n", start, position), data[start:position])
            yield Block(number, b"", too_long=True)
            start = after
        number += 1
        position = after
    if start < len(data):
        tail = data[start:]
        count = tail.count(b"\n") + (not tail.endswith(b"\n"))
        yield Block(number - count, tail)

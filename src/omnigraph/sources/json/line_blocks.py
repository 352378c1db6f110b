"""Blocks of complete lines of a byte stream, with bounded memory for any input."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from omnigraph.errors import InvalidInput, ResourceLimit

# Maximum length of a line of a strict input, without its line end.
LINE_BYTES = 33_554_432


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Complete lines; `first` is the number of the first line. A line over the limit is a block without data."""

    first: int
    data: bytes
    too_long: bool = False


def line_blocks(
    stream: BinaryIO | Iterable[bytes], size: int, limit: int = LINE_BYTES
) -> Iterator[LineBlock]:
    """Yield blocks of about `size` bytes. The last line may lack a line end.

    At most `limit` bytes of a line are kept in memory; the rest of a longer line is read and discarded.

    >>> [(block.first, block.data) for block in line_blocks([b"a\\nb", b"b\\nc"], 2)]
    [(1, b'a\\n'), (2, b'bb\\n'), (3, b'c')]
    """
    number = 1
    pending: list[bytes] = []
    pending_bytes = 0
    discarding = False
    for piece in chunks(stream, size):
        chunk = piece
        if discarding:
            end = chunk.find(b"\n")
            if end < 0:
                continue
            yield LineBlock(number, b"", too_long=True)
            number, discarding, chunk = number + 1, False, chunk[end + 1 :]
        cut = chunk.rfind(b"\n") + 1
        if cut:
            data = b"".join([*pending, chunk[:cut]])
            yield from _bounded(number, data, limit)
            number += data.count(b"\n")
            pending, pending_bytes, chunk = [], 0, chunk[cut:]
        if chunk:
            pending.append(chunk)
            pending_bytes += len(chunk)
            # One byte more for a carriage return at the end of the line.
            if pending_bytes > limit + 1:
                pending, pending_bytes, discarding = [], 0, True
    if discarding:
        yield LineBlock(number, b"", too_long=True)
    elif pending:
        yield from _bounded(number, b"".join(pending), limit)


def line_too_long() -> ResourceLimit:
    """Return the error for a line over the limit."""
    details = {"resource": "graph_batch_line_bytes", "limit": LINE_BYTES}
    return ResourceLimit(f"the line is longer than {LINE_BYTES:,} bytes", details=details)


def chunks(stream: BinaryIO | Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the bytes of a stream in chunks of `size`; the last one may be shorter."""
    pending: list[bytes] = []
    count = 0
    for part in _parts(stream, size):
        if not isinstance(part, bytes | bytearray | memoryview):
            raise InvalidInput(
                f"expected bytes, got {type(part).__name__}", hint="open the file in binary mode"
            )
        pending.append(bytes(part))
        count += len(pending[-1])
        if count >= size:
            joined = b"".join(pending)
            cut = count - count % size
            yield from (joined[start : start + size] for start in range(0, cut, size))
            pending, count = [joined[cut:]], count - cut
    if count:
        yield b"".join(pending)


def without_bom(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file from its start, without the UTF-8 byte-order mark.

    >>> list(without_bom([b"\\xef", b"\\xbb\\xbf{", b"}"]))
    [b'{', b'}']
    """
    start: bytes | None = b""
    for part in parts:
        # The consumer rejects values that are not bytes.
        if start is None or not isinstance(part, bytes | bytearray | memoryview):
            yield part
            continue
        start += bytes(part)
        if len(start) < len(BOM_UTF8) and BOM_UTF8.startswith(start):
            continue
        first, start = start.removeprefix(BOM_UTF8), None
        if first:
            yield first
    if start:
        yield start


def _parts(stream: Any, size: int) -> Iterator[Any]:
    read = getattr(stream, "read", None)
    return iter(stream) if read is None else iter(partial(read, size), b"")


def _bounded(number: int, data: bytes, limit: int) -> Iterator[LineBlock]:
    """Yield the block, or its parts around lines over the limit."""
    if len(data) <= limit:
        yield LineBlock(number, data)
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
                yield LineBlock(number - data.count(b"\n", start, position), data[start:position])
            yield LineBlock(number, b"", too_long=True)
            start = after
        number += 1
        position = after
    if start < len(data):
        tail = data[start:]
        count = tail.count(b"\n") + (not tail.endswith(b"\n"))
        yield LineBlock(number - count, tail)

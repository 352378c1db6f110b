"""Blocks of complete lines of a byte stream, with bounded memory for any input."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from omnigraph.errors import InvalidInput, ResourceLimit

# Maximum length of a line of a strict input, without its line end and the bytes of its Blob values.
LINE_BYTES = 33_554_432
# Maximum length of a line with Blob values, which is held in memory as a whole.
BLOB_LINE_BYTES = (1 << 31) - 1

_SLACK = len('"base64:') + 1


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

    A line has at most `limit` bytes, not counting base64 values, and `BLOB_LINE_BYTES` with them. No more of a line
    is kept in memory: the rest of a longer line is read and discarded.

    >>> [(block.first, block.data) for block in line_blocks([b"a\\nb", b"b\\nc"], 2)]
    [(1, b'a\\n'), (2, b'bb\\n'), (3, b'c')]
    """
    number = 1
    pending: list[bytes] = []
    pending_bytes = 0
    discarding = False
    # The length of an unfinished line at which its base64 values are measured again.
    check_at = limit + 1
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
            pending, pending_bytes, chunk, check_at = [], 0, chunk[cut:], limit + 1
        if chunk:
            pending.append(chunk)
            pending_bytes += len(chunk)
            if pending_bytes > check_at:
                pending = [b"".join(pending)]
                check_at = min(2 * pending_bytes, BLOB_LINE_BYTES)
                # Some bytes more for a carriage return at the end of the line, or the start of a base64 value.
                if _is_too_long(pending[0], limit + _SLACK):
                    pending, pending_bytes, discarding, check_at = [], 0, True, limit + 1
    if discarding:
        yield LineBlock(number, b"", too_long=True)
    elif pending:
        yield from _bounded(number, b"".join(pending), limit)


def counted_length(text: str | bytes, start: int = 0) -> int:
    """Return the length of JSON text that counts towards the limit: without strings that begin with `base64:`.

    >>> counted_length('{"a":"base64:aGVsbG8=","b":1}')
    13
    """
    if isinstance(text, str):
        find_value, find_quote = partial(text.find, '"base64:'), partial(text.find, '"')
    else:
        find_value, find_quote = partial(text.find, b'"base64:'), partial(text.find, b'"')
    count, position = len(text) - start, start
    while (begin := find_value(position)) >= 0:
        end = find_quote(begin + 1)
        position = len(text) if end < 0 else end
        count -= position - begin
    return count


def _is_too_long(line: bytes, limit: int) -> bool:
    return len(line) > limit and (len(line) > BLOB_LINE_BYTES or counted_length(line) > limit)


def line_too_long() -> ResourceLimit:
    """Return the error for a line over the limit."""
    return ResourceLimit(
        f"the line is longer than {LINE_BYTES:,} bytes, not counting base64 values of Blob properties, "
        f"or than {BLOB_LINE_BYTES:,} bytes with them",
        details={"resource": "graph_batch_line_bytes", "limit": LINE_BYTES, "blob_limit": BLOB_LINE_BYTES},
        hint='load values of this size from Parquet or Arrow; `export` writes Parquet with `format="parquet"`',
    )


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
        if _is_too_long(text, limit):
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

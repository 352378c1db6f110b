"""Decoded sizes of the record batches of an Arrow file or stream, read from their headers.

A compressed buffer states its decoded length in its first eight bytes, and Arrow allocates that length. The
headers are FlatBuffers, of which only the few members that are needed are read here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

import pyarrow as pa

_MAGIC: Final = b"ARROW1"
_CONTINUATION: Final = 0xFFFFFFFF
# Types of a message header.
_DICTIONARY, _RECORD_BATCH = 2, 3
# A header of a table with thousands of columns has a few hundred kB.
_MAX_HEADER: Final = 256 << 20
_BLOCK: Final = struct.Struct("<qi4xq")
_BUFFER: Final = struct.Struct("<qq")


@dataclass(frozen=True, slots=True)
class DecodedSize:
    """The rows of a record batch and the bytes of its buffers after decompression."""

    rows: int
    size: int


def file_sizes(stream: BinaryIO) -> tuple[DecodedSize, list[DecodedSize]]:
    """Return the size of all dictionaries of an Arrow file together, and of each of its record batches.

    Raises `ArrowInvalid` if the file is damaged. The position of the stream is kept.
    """
    position = stream.tell()
    try:
        end = stream.seek(-len(_MAGIC) - 4, 2)
        (length,) = struct.unpack("<i", _read(stream, 4))
        if not 0 < length <= min(end, _MAX_HEADER):
            raise _damaged()
        stream.seek(end - length)
        footer = _Table.root(_read(stream, length))
        dictionaries = [_message_size(stream, block) for block in footer.structs(2, _BLOCK)]
        batches = [_message_size(stream, block) for block in footer.structs(3, _BLOCK)]
        total = DecodedSize(sum(item.rows for item in dictionaries), sum(item.size for item in dictionaries))
        return total, batches
    except (struct.error, OSError, OverflowError, ValueError) as error:
        raise _damaged() from error
    finally:
        stream.seek(position)


def next_size(stream: BinaryIO) -> DecodedSize | None:
    """Return the size of the next record batch of an Arrow stream, with the dictionaries before it.

    None at the end of the stream. Raises `ArrowInvalid` if it is damaged. The position of the stream is kept.
    """
    position = at = stream.tell()
    size = 0
    try:
        while True:
            found = _read_message(stream, at)
            if found is None:
                return None
            message, body, at = found
            if message.kind in (_DICTIONARY, _RECORD_BATCH):
                decoded = message.decoded_size(stream, body)
                size += decoded.size
                if message.kind == _RECORD_BATCH:
                    return DecodedSize(decoded.rows, size)
    except (struct.error, OSError, OverflowError, ValueError) as error:
        raise _damaged() from error
    finally:
        stream.seek(position)


def _read_message(stream: BinaryIO, at: int) -> tuple[_Message, int, int] | None:
    """Return the message at an offset, the offset of its body and that of the next message."""
    stream.seek(at)
    prefix = stream.read(4)
    if len(prefix) < 4:
        return None
    (length,) = struct.unpack("<I", prefix)
    start = at + 4
    if length == _CONTINUATION:
        (length,) = struct.unpack("<I", _read(stream, 4))
        start += 4
    if length == 0:
        return None
    if length > _MAX_HEADER:
        raise _damaged()
    message = _Message(_Table.root(_read(stream, length)))
    body = start + length
    return message, body, body + message.body_length


def _message_size(stream: BinaryIO, block: tuple[int, ...]) -> DecodedSize:
    """Return the decoded size of the message of a block in the footer of a file."""
    offset, header_length, _ = block
    found = _read_message(stream, offset)
    if found is None or found[0].kind not in (_DICTIONARY, _RECORD_BATCH):
        raise _damaged()
    return found[0].decoded_size(stream, offset + header_length)


class _Table:
    """A FlatBuffers table."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        vtable = at - self._int32(at)
        self._vtable = vtable
        self._length = self._uint16(vtable)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, struct.unpack_from("<I", data)[0])

    def number(self, field: int, form: str) -> int:
        """Return a number; 0 if it is absent."""
        at = self._find(field)
        return 0 if at is None else int(struct.unpack_from(form, self._data, at)[0])

    def table(self, field: int) -> _Table | None:
        at = self._find(field)
        return None if at is None else _Table(self._data, at + self._uint32(at))

    def structs(self, field: int, form: struct.Struct) -> Iterator[tuple[int, ...]]:
        """Yield the members of a vector of structs."""
        at = self._find(field)
        if at is not None:
            start = at + self._uint32(at)
            for number in range(self._uint32(start)):
                yield form.unpack_from(self._data, start + 4 + number * form.size)

    def _find(self, field: int) -> int | None:
        place = 4 + 2 * field
        offset = self._uint16(self._vtable + place) if place + 2 <= self._length else 0
        return self._at + offset if offset else None

    # A negative offset would be counted from the end.

    def _uint16(self, at: int) -> int:
        return int(struct.unpack_from("<H", self._data, _checked(at))[0])

    def _uint32(self, at: int) -> int:
        return int(struct.unpack_from("<I", self._data, _checked(at))[0])

    def _int32(self, at: int) -> int:
        return int(struct.unpack_from("<i", self._data, _checked(at))[0])


class _Message:
    """The header of a message: its kind, and the buffers of a record batch or of a dictionary."""

    def __init__(self, table: _Table) -> None:
        self.kind = table.number(1, "<B")
        self.body_length = table.number(3, "<q")
        self._header = table.table(2)
        if self.body_length < 0:
            raise _damaged()

    def decoded_size(self, stream: BinaryIO, body: int) -> DecodedSize:
        """Return the rows and the size of the buffers. `body` is the offset of the body in the stream."""
        batch = self._header
        if batch is not None and self.kind == _DICTIONARY:
            batch = batch.table(1)
        if batch is None:
            raise _damaged()
        is_compressed = batch.table(3) is not None
        size = 0
        for offset, length in batch.structs(2, _BUFFER):
            decoded = length
            if is_compressed and length > 8:
                stream.seek(body + offset)
                (stated,) = struct.unpack("<q", _read(stream, 8))
                # -1 marks a buffer that is stored without compression.
                decoded = length - 8 if stated == -1 else stated
            if decoded < 0:
                raise _damaged()
            size += decoded
        return DecodedSize(batch.number(0, "<q"), size)


def _checked(at: int) -> int:
    if at < 0:
        raise _damaged()
    return at


def _read(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) != length:
        raise _damaged()
    return data


def _damaged() -> pa.ArrowInvalid:
    return pa.ArrowInvalid("a message header is damaged")

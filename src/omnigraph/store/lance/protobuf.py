"""Protobuf messages without their definitions, for the few fields of Lance files that are read and written here.

Lance stores manifests and page metadata as Protobuf. A field is a number and a value: an integer, or bytes that are
a text, a nested message or packed integers. The caller knows which. A message that is cut or malformed raises
`ValueError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

Value: TypeAlias = int | bytes
Message: TypeAlias = dict[int, Value]

_VARINT, _LENGTH_DELIMITED = 0, 2
# The wire types with a fixed length, and the length in bytes.
_FIXED_BYTES: Final = {1: 8, 5: 4}
# A varint has 7 bits for each byte and holds at most 64 bits.
_LONGEST_VARINT = 10


def read_fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the number and the value of each field of a message, in the order in which they are stored.

    >>> list(read_fields(bytes.fromhex("089601 1203616263")))
    [(1, 150), (2, b'abc')]
    """
    position = 0
    while position < len(data):
        number, value, position = read_field(data, position)
        yield number, value


def read_field(data: bytes, position: int) -> tuple[int, Value, int]:
    """Return the number and the value of the field at a position, and the position after it."""
    key, position = _read_varint(data, position)
    number, wire_type = key >> 3, key & 7
    if wire_type == _VARINT:
        value, position = _read_varint(data, position)
        return number, value, position
    if wire_type == _LENGTH_DELIMITED:
        size, position = _read_varint(data, position)
    elif wire_type in _FIXED_BYTES:
        size = _FIXED_BYTES[wire_type]
    else:
        raise ValueError(f"field {number} has the unknown wire type {wire_type}")
    end = position + size
    if end > len(data):
        raise ValueError(f"field {number} ends {end - len(data)} bytes after its message")
    return number, data[position:end], end


def read_message(data: bytes) -> Message:
    """Return the fields of a message by number. Of a repeated field the last value remains."""
    return dict(read_fields(data))


def read_packed(data: bytes) -> list[int]:
    """Return the integers of a packed field.

    >>> read_packed(bytes.fromhex("03 8e02 9ea705"))
    [3, 270, 86942]
    """
    numbers = []
    position = 0
    while position < len(data):
        number, position = _read_varint(data, position)
        numbers.append(number)
    return numbers


def encode_number(number: int, value: int) -> bytes:
    """Return a field that holds an integer. A field without presence that holds 0 is not stored: do not encode it.

    >>> encode_number(1, 150).hex()
    '089601'
    """
    return _varint(number << 3 | _VARINT) + _varint(value)


def encode_bytes(number: int, value: bytes) -> bytes:
    """Return a field that holds bytes: a text, a nested message or packed integers.

    >>> encode_bytes(2, b"abc").hex()
    '1203616263'
    """
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(value)) + value


def encode_packed(numbers: Iterable[int]) -> bytes:
    """Return the content of a packed field.

    >>> encode_packed([3, 270, 86942]).hex(" ", -2)
    '038e 029e a705'
    """
    return b"".join(map(_varint, numbers))


def _varint(value: int) -> bytes:
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} is not an unsigned integer of 64 bits")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def as_bytes(value: Value) -> bytes:
    """Return the value of a field that must be bytes."""
    if not isinstance(value, bytes):
        raise ValueError(f"expected bytes, got the number {value}")
    return value


def as_number(value: Value) -> int:
    """Return the value of a field that must be an integer."""
    if not isinstance(value, int):
        raise ValueError(f"expected a number, got {len(value)} bytes")
    return value


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the integer at a position and the position after it."""
    number = 0
    for count, byte in enumerate(data[position : position + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return number, position + count + 1
    raise ValueError("an integer has no end")

"""Decoding of Protobuf messages: every wire type, and an error for every message that is cut or malformed."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.store.lance.protobuf import as_bytes, as_number, read_fields, read_message, read_packed

U64 = st.integers(0, 2**64 - 1)
FIELDS = st.lists(st.tuples(st.integers(1, 500), U64 | st.binary(max_size=300)), max_size=8)


def varint(number: int) -> bytes:
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def encode(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


@given(FIELDS)
def test_read_fields_returns_the_encoded_fields_in_order(fields: list[tuple[int, int | bytes]]) -> None:
    message = b"".join(encode(*field) for field in fields)
    assert list(read_fields(message)) == fields
    assert read_message(message) == dict(fields)


@given(st.lists(U64))
def test_read_packed_returns_the_encoded_numbers(numbers: list[int]) -> None:
    assert read_packed(b"".join(varint(number) for number in numbers)) == numbers


def test_read_fields_fixed_lengths_are_returned_as_bytes() -> None:
    message = varint(1 << 3 | 5) + struct.pack("<f", 1.5) + varint(2 << 3 | 1) + struct.pack("<d", -2.5)
    assert list(read_fields(message)) == [(1, struct.pack("<f", 1.5)), (2, struct.pack("<d", -2.5))]


@given(FIELDS.filter(bool))
def test_read_fields_message_without_its_last_byte_raises(fields: list[tuple[int, int | bytes]]) -> None:
    message = b"".join(encode(*field) for field in fields)[:-1]
    with pytest.raises(ValueError, match=r"no end|after its message"):
        list(read_fields(message))


@given(st.binary(max_size=64))
def test_read_fields_arbitrary_bytes_end_or_raise_value_error(data: bytes) -> None:
    try:
        fields = list(read_fields(data))
    except ValueError:
        return
    assert len(fields) <= len(data)


@pytest.mark.parametrize("wire_type", [3, 4, 6, 7])
def test_read_fields_unknown_wire_type_raises(wire_type: int) -> None:
    with pytest.raises(ValueError, match=f"field 9 has the unknown wire type {wire_type}"):
        list(read_fields(varint(9 << 3 | wire_type) + b"\x00"))


def test_read_fields_integer_of_more_than_ten_bytes_raises() -> None:
    with pytest.raises(ValueError, match="an integer has no end"):
        list(read_fields(varint(1 << 3) + b"\x80" * 10 + b"\x01"))


def test_as_bytes_and_as_number_refuse_the_other_kind() -> None:
    assert (as_bytes(b"a"), as_number(7)) == (b"a", 7)
    with pytest.raises(ValueError, match="expected bytes, got the number 7"):
        as_bytes(7)
    with pytest.raises(ValueError, match="expected a number, got 1 bytes"):
        as_number(b"a")

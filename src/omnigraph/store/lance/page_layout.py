"""Single binary values of a Lance file, and their places, decoded from its metadata.

Lance reads a value as a whole, and a value may be larger than memory. Files of the format 2.1 and later store large
values one after the other, each with its length, and a list of their positions (the full-zip layout). A page with
one value only, such as a page of one row, stores it once (the constant layout). A part of a value is therefore a
byte range of the file. The Lance project specifies the layouts in `file2.proto` and `encodings_v2_1.proto`.
`FILE_FORMAT` pins the version that OmniGraph writes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from omnigraph.store.lance.protobuf import (
    Message,
    as_bytes,
    as_number,
    read_fields,
    read_message,
    read_packed,
)

FOOTER = struct.Struct("<QQQIIHH4s")
_COLUMN = struct.Struct("<QQ")
# The value of a constant page: its number of buffers, their sizes, and the first buffer, which has two offsets.
_SCALAR = struct.Struct("<IIIqq")
_SHORT_SCALAR = struct.Struct("<IIIii")
_LEVEL_BYTES = 2
_MAGIC = b"LANC"
_OLDEST_FORMAT = (2, 1)
_PAGE_LAYOUT = b"encodings21.PageLayout"

# Field numbers of the messages.
_COLUMN_PAGES = 2
_PAGE_OFFSETS, _PAGE_SIZES, _PAGE_LENGTH, _PAGE_ENCODING = 1, 2, 3, 4
_ENCODING_DIRECT, _DIRECT_ANY, _ANY_TYPE, _ANY_VALUE = 2, 1, 1, 2
_LAYOUT_CONSTANT, _LAYOUT_FULL_ZIP, _CONSTANT_LAYERS = 2, 3, 5
_ZIP_BITS_REP, _ZIP_BITS_DEF, _ZIP_BITS_PER_VALUE, _ZIP_BITS_PER_OFFSET, _ZIP_COMPRESSION = 1, 2, 3, 4, 7
_COMPRESSION_FLAT, _COMPRESSION_VARIABLE, _COMPRESSION_GENERAL, _COMPRESSION_LIST = 1, 2, 10, 11
_FLAT_BITS, _LIST_LENGTH, _LIST_ITEMS = 1, 1, 2
_GENERAL_BUFFER, _GENERAL_VALUES, _BUFFER_SCHEME, _VARIABLE_VALUES = 1, 3, 1, 2
_ZSTD = 2

Codec = Literal["none", "zstd"]
# The start and the size of each buffer of a page.
Buffers = list[tuple[int, int]]


class UnknownLayout(ValueError):
    """The bytes are not metadata of a Lance file, or of a layout that this module does not decode."""


@dataclass(frozen=True, slots=True)
class FileFooter:
    """The end of a Lance file: where the positions of the metadata of its columns are."""

    table_start: int
    columns: int

    @classmethod
    def parse(cls, data: bytes) -> FileFooter:
        """Decode the last `FOOTER.size` bytes of a file."""
        _, table_start, _, _, columns, major, minor, magic = FOOTER.unpack(data)
        if magic != _MAGIC or (major, minor) < _OLDEST_FORMAT:
            raise UnknownLayout("not a Lance file of format 2.1 or later")
        return cls(table_start, columns)

    def column_entry(self, column: int) -> tuple[int, int]:
        """Return the start and the end of the entry that locates the metadata of a column."""
        if not 0 <= column < self.columns:
            raise UnknownLayout(f"the file has no column {column}")
        start = self.table_start + column * _COLUMN.size
        return start, start + _COLUMN.size


def parse_column_entry(data: bytes) -> tuple[int, int]:
    """Return the start and the end of the metadata of a column."""
    start, size = _COLUMN.unpack(data)
    return start, start + size


@dataclass(frozen=True, slots=True)
class FullZipPage:
    """A page of large values. Each value is stored as control bytes, its length, and its bytes.

    `index_start` is where the positions of the values are, each of `index_width` bytes, one more than values.
    """

    rows: int
    data_start: int
    index_start: int
    index_width: int
    control_bytes: int
    length_bytes: int
    codec: Codec

    def index_entry(self, row: int) -> tuple[int, int]:
        """Return the start and the end of the two positions that bound a value."""
        start = self.index_start + row * self.index_width
        return start, start + 2 * self.index_width

    def value_span(self, entry: bytes) -> tuple[int, int]:
        """Return the start and the end of a stored value in the file, with its control bytes and length."""
        first, last = (
            int.from_bytes(entry[i : i + self.index_width], "little") for i in (0, self.index_width)
        )
        return self.data_start + first, self.data_start + last

    @property
    def header_bytes(self) -> int:
        """The bytes of a stored value before its content; a compressed value begins with its size."""
        return self.control_bytes + self.length_bytes + (8 if self.codec == "zstd" else 0)


@dataclass(frozen=True, slots=True)
class VectorPage:
    """A page of lists of one length: for each its numbers, after a control byte if it may be null.

    The control byte of a null is not 0.
    """

    rows: int
    data_start: int
    control_bytes: int
    dimension: int
    number_bytes: int

    @property
    def row_bytes(self) -> int:
        """The bytes of a stored vector."""
        return self.control_bytes + self.dimension * self.number_bytes


@dataclass(frozen=True, slots=True)
class ConstantPage:
    """A page whose values are equal or null. The value is stored once, after the sizes of its two buffers.

    `levels_start` is where the two bytes of each row are that are zero if the row has the value; None if all rows
    have it.
    """

    rows: int
    value_start: int
    value_end: int
    levels_start: int | None

    def level(self, row: int) -> tuple[int, int] | None:
        """Return the start and the end of the bytes that say whether a row has the value; None if all rows have."""
        if self.levels_start is None:
            return None
        start = self.levels_start + row * _LEVEL_BYTES
        return start, start + _LEVEL_BYTES

    @property
    def header(self) -> tuple[int, int]:
        """The start and the end of the bytes before the value."""
        return self.value_start, self.value_start + _SCALAR.size

    def content(self, header: bytes) -> tuple[int, int]:
        """Return the start and the end of the value."""
        if len(header) < _SCALAR.size:
            raise UnknownLayout("the value of a page is cut")
        buffers, offset_bytes, size, first, last = _SCALAR.unpack(header)
        start = self.value_start + _SCALAR.size
        if (buffers, offset_bytes, first, last) != (2, 16, 0, size) or start + size != self.value_end:
            raise UnknownLayout("the value of a page is not one binary value")
        return start, self.value_end


@dataclass(frozen=True, slots=True)
class OtherPage:
    """A page of another layout, such as one of small values or of nulls only."""

    rows: int


Page = FullZipPage | VectorPage | ConstantPage | OtherPage


def parse_pages(metadata: bytes) -> list[Page]:
    """Return the pages of a column from its metadata."""
    try:
        return [
            _page(read_message(as_bytes(value)))
            for number, value in read_fields(metadata)
            if number == _COLUMN_PAGES
        ]
    except (IndexError, KeyError, ValueError) as error:
        raise UnknownLayout(f"the metadata of a column cannot be decoded: {error}") from error


def read_single_row(data: bytes) -> list[bytes]:
    """Return the texts of all columns of a file with one row, given its content, none of them null.

    Raises `UnknownLayout` for any other file.
    """
    footer = FileFooter.parse(data[-FOOTER.size :])
    values = []
    for column in range(footer.columns):
        entry_start, entry_end = footer.column_entry(column)
        start, end = parse_column_entry(data[entry_start:entry_end])
        pages = parse_pages(data[start:end])
        page = pages[0] if len(pages) == 1 else None
        if not isinstance(page, ConstantPage) or page.rows != 1 or page.levels_start is not None:
            raise UnknownLayout(f"column {column} is not one value")
        values.append(_short_value(data[page.value_start : page.value_end]))
    return values


def _short_value(data: bytes) -> bytes:
    """Return the value of a constant page of texts, whose two offsets have four bytes each."""
    if len(data) < _SHORT_SCALAR.size:
        raise UnknownLayout("the value of a page is cut")
    buffers, offset_bytes, size, first, last = _SHORT_SCALAR.unpack_from(data)
    if (buffers, offset_bytes, first, last) != (2, 8, 0, size) or _SHORT_SCALAR.size + size != len(data):
        raise UnknownLayout("the value of a page is not one text")
    return data[_SHORT_SCALAR.size :]


def _page(page: Message) -> Page:
    rows = as_number(page.get(_PAGE_LENGTH, 0))
    layout = _layout(as_bytes(page.get(_PAGE_ENCODING, b"")))
    offsets, sizes = (read_packed(as_bytes(page.get(number, b""))) for number in (_PAGE_OFFSETS, _PAGE_SIZES))
    buffers = list(zip(offsets, sizes, strict=True))
    if _LAYOUT_FULL_ZIP in layout:
        return _full_zip(rows, buffers, read_message(as_bytes(layout[_LAYOUT_FULL_ZIP])))
    if _LAYOUT_CONSTANT in layout:
        return _constant(rows, buffers, read_message(as_bytes(layout[_LAYOUT_CONSTANT])))
    return OtherPage(rows)


def _full_zip(rows: int, buffers: Buffers, zipped: Message) -> Page:
    if len(buffers) == 1 and _ZIP_BITS_PER_VALUE in zipped:
        return _vectors(rows, *buffers[0], zipped)
    if len(buffers) != 2 or buffers[1][1] % (rows + 1):
        return OtherPage(rows)
    (data_start, _), (index_start, index_size) = buffers
    codec = _codec(read_message(as_bytes(zipped[_ZIP_COMPRESSION])))
    bits = as_number(zipped.get(_ZIP_BITS_DEF, 0))
    width = as_number(zipped.get(_ZIP_BITS_PER_OFFSET, 0))
    if codec is None or zipped.get(_ZIP_BITS_REP, 0) or bits > 16 or width not in (32, 64):
        return OtherPage(rows)
    control = 0 if not bits else 1 if bits <= 8 else 2
    return FullZipPage(rows, data_start, index_start, index_size // (rows + 1), control, width // 8, codec)


def _vectors(rows: int, start: int, size: int, zipped: Message) -> Page:
    compression = read_message(as_bytes(zipped[_ZIP_COMPRESSION]))
    bits = as_number(zipped.get(_ZIP_BITS_DEF, 0))
    if set(compression) != {_COMPRESSION_LIST} or zipped.get(_ZIP_BITS_REP, 0) or bits > 1:
        return OtherPage(rows)
    lists = read_message(as_bytes(compression[_COMPRESSION_LIST]))
    items = read_message(as_bytes(lists.get(_LIST_ITEMS, b"")))
    # Lists whose numbers may be null have one more field.
    if set(lists) != {_LIST_LENGTH, _LIST_ITEMS} or set(items) != {_COMPRESSION_FLAT}:
        return OtherPage(rows)
    flat = read_message(as_bytes(items[_COMPRESSION_FLAT]))
    length, width = as_number(lists[_LIST_LENGTH]), as_number(flat.get(_FLAT_BITS, 0))
    page = VectorPage(rows, start, bits, length, width // 8)
    is_plain = set(flat) == {_FLAT_BITS} and width % 8 == 0
    is_plain = is_plain and as_number(zipped[_ZIP_BITS_PER_VALUE]) in (
        length * width,
        length * width + 8 * bits,
    )
    return page if is_plain and size == rows * page.row_bytes else OtherPage(rows)


def _constant(rows: int, buffers: Buffers, constant: Message) -> Page:
    value_start, value_size = buffers[0] if buffers else (0, 0)
    if set(constant) - {_CONSTANT_LAYERS} or value_size < _SHORT_SCALAR.size:
        # A small value in the metadata, compressed levels, or nulls only.
        return OtherPage(rows)
    levels = [start for start, size in buffers[1:] if size == rows * _LEVEL_BYTES]
    if len(buffers) > 1 and (len(buffers) != 3 or buffers[1][1] or not levels):
        return OtherPage(rows)
    return ConstantPage(rows, value_start, value_start + value_size, levels[0] if levels else None)


@lru_cache(maxsize=64)
def _layout(encoding: bytes) -> Message:
    # Files of one kind have the same few layouts.
    direct = read_message(as_bytes(read_message(encoding).get(_ENCODING_DIRECT, b"")))
    any_ = read_message(as_bytes(direct.get(_DIRECT_ANY, b"")))
    if not as_bytes(any_.get(_ANY_TYPE, b"")).endswith(_PAGE_LAYOUT):
        return {}
    return read_message(as_bytes(any_.get(_ANY_VALUE, b"")))


def _codec(compression: Message) -> Codec | None:
    """Return how values are compressed; None for any other way."""
    if set(compression) == {_COMPRESSION_VARIABLE}:
        variable = read_message(as_bytes(compression[_COMPRESSION_VARIABLE]))
        return None if _VARIABLE_VALUES in variable else "none"
    if set(compression) != {_COMPRESSION_GENERAL}:
        return None
    general = read_message(as_bytes(compression[_COMPRESSION_GENERAL]))
    scheme = read_message(as_bytes(general.get(_GENERAL_BUFFER, b""))).get(_BUFFER_SCHEME)
    inner = read_message(as_bytes(general.get(_GENERAL_VALUES, b"")))
    return "zstd" if scheme == _ZSTD and _codec(inner) == "none" else None

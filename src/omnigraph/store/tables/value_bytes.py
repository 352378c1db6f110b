"""Byte ranges of single large values of a table, read without the rest of the value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import lance
import pyarrow as pa

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import get_fragment
from omnigraph.store.lance.page_layout import (
    FOOTER,
    ConstantPage,
    FileFooter,
    FullZipPage,
    Page,
    UnknownLayout,
    parse_column_entry,
    parse_pages,
)
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.request_counts import count_requests
from omnigraph.store.tables.row_addresses import fragment_and_offset
from omnigraph.store.tables.tables import Tables

# The largest part of a value in memory at a time.
CHUNK_BYTES = 1 << 20
# One request for the end of a file, where the footer and usually all metadata are.
_TAIL_BYTES = 64 << 10


class ValueBytes(Protocol):
    """The bytes of one value. Not safe to share between threads."""

    @property
    def size(self) -> int:
        """The number of bytes."""
        ...

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`, which is at most `size`."""
        ...


@dataclass(frozen=True)
class ColumnPages:
    """The pages of one column in one data file, and the file. Both never change."""

    file: str
    pages: tuple[Page, ...]

    @property
    def nbytes(self) -> int:
        """Estimated bytes of memory."""
        return 200 * len(self.pages) + 200

    def find(self, row: int) -> tuple[Page, int] | None:
        """Return the page of a row of the file, and the row in the page."""
        for page in self.pages:
            if row < page.rows:
                return page, row
            row -= page.rows
        return None


class ColumnFile:
    """A data file of a table version, to read values of one nested column from it."""

    def __init__(self, tables: Tables, pin: TablePin, column: str, member: str, address: int) -> None:
        self._dataset = tables.open(pin.path, pin.version)
        self._session = tables.root.file_session(pin.path)
        self._path = pin.path
        self._names = (column, member)
        self.fragment, self.row = fragment_and_offset(address)

    @cached_property
    def _data_file(self) -> tuple[Any, int] | None:
        """The data file that holds the column, and the number of the column in it; None if no file does."""
        with translate_lance_errors(f"open {self._path}"):
            field = _leaf_field(self._dataset, *self._names)
            for file in get_fragment(self._dataset, self.fragment).metadata.files:
                if field in file.fields:
                    return file, file.column_indices[file.fields.index(field)]
        return None

    def read_pages(self) -> ColumnPages | None:
        """Read the pages of the column; None if the fragment has no values of it.

        Raises `UnknownLayout` if the metadata cannot be decoded.
        """
        found = self._data_file
        if found is None:
            return None
        file, column = found
        size = file.file_size_bytes
        if not size:
            raise UnknownLayout("the size of the file is not recorded")
        tail_start = max(0, size - _TAIL_BYTES)
        tail = self.read(file.path, tail_start, size)

        def part(start: int, end: int) -> bytes:
            if start >= tail_start:
                return tail[start - tail_start : end - tail_start]
            return self.read(file.path, start, end)

        footer = FileFooter.parse(tail[-FOOTER.size :])
        pages = parse_pages(part(*parse_column_entry(part(*footer.column_entry(column)))))
        return ColumnPages(file.path, tuple(pages))

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return a byte range of a data file. Raises `StorageError` if the file ends before."""
        if start >= end:
            return b""
        count_requests(reads=1)
        with translate_lance_errors(f"read {self._path}/data/{name}"):
            data = self._session.read_range(name, start, end - start)
        if len(data) != end - start:
            raise StorageError(
                f"{self._path}/data/{name} ends after {start + len(data):,} bytes, expected at least {end:,}"
            )
        return data

    def open_value(self, pages: ColumnPages) -> ValueBytes | None:
        """Return the bytes of the row's value; None if it is null. Reads no more than its length.

        Raises `UnknownLayout` if its page has another layout than that of large values.
        """
        page, row = pages.find(self.row) or (None, 0)
        if isinstance(page, ConstantPage):
            return self._open_constant(pages.file, page, row)
        if not isinstance(page, FullZipPage):
            raise UnknownLayout("the value is not stored in a layout of large values")
        start, end = page.value_span(self.read(pages.file, *page.index_entry(row)))
        header = self.read(pages.file, start, min(end, start + page.header_bytes))
        if any(header[: page.control_bytes]):
            return None
        content = start + page.header_bytes
        stored = int.from_bytes(header[page.control_bytes :][: page.length_bytes], "little")
        if page.control_bytes + page.length_bytes + stored != end - start:
            raise StorageError(f"{self._path}/data/{pages.file} is damaged: a value has two lengths")
        if page.codec == "none":
            return _StoredValue(self, pages.file, content, stored)
        size = int.from_bytes(header[-8:], "little")
        return _CompressedValue(self, pages.file, content, end, size)

    def _open_constant(self, file: str, page: ConstantPage, row: int) -> ValueBytes | None:
        level = page.level(row)
        if level is not None and any(self.read(file, *level)):
            return None
        start, end = page.content(self.read(file, *page.header))
        return _StoredValue(self, file, start, end - start)


@dataclass(frozen=True)
class _StoredValue:
    """A value that is stored as it is. A range of it is a range of the file."""

    column_file: ColumnFile
    file: str
    start: int
    size: int

    def read(self, start: int, end: int) -> bytes:
        return self.column_file.read(self.file, self.start + start, self.start + end)


class _CompressedValue:
    """A value that is compressed as one stream.

    A range is read by decompressing what precedes it, in chunks. Ranges in ascending order continue the stream.
    """

    def __init__(self, column_file: ColumnFile, file: str, start: int, end: int, size: int) -> None:
        self.size = size
        self._column_file = column_file
        self._file = file
        self._span = start, end
        self._position = 0
        self._stream: pa.CompressedInputStream | None = None

    def read(self, start: int, end: int) -> bytes:
        if self._stream is None or start < self._position:
            self._position = 0
            source = _ChunkFile(self._chunks())
            self._stream = pa.CompressedInputStream(pa.PythonFile(source, "r"), "zstd")
        try:
            while self._position < start:
                self._skip(min(start - self._position, CHUNK_BYTES))
            data = self._stream.read(end - start)
        except pa.ArrowException as error:
            raise StorageError(f"the value in {self._file} cannot be decompressed: {error}") from error
        self._position += len(data)
        if len(data) != end - start:
            raise StorageError(f"the value in {self._file} ends after {self._position:,} bytes")
        return bytes(data)

    def _skip(self, count: int) -> None:
        assert self._stream is not None
        skipped = len(self._stream.read(count))
        if not skipped:
            raise StorageError(f"the value in {self._file} ends after {self._position:,} bytes")
        self._position += skipped

    def _chunks(self) -> Iterator[bytes]:
        start, end = self._span
        for first in range(start, end, CHUNK_BYTES):
            yield self._column_file.read(self._file, first, min(end, first + CHUNK_BYTES))


class _ChunkFile:
    """The chunks of an iterator as a file for Arrow."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""
        self.closed = False

    def read(self, count: int) -> bytes:
        """Return up to `count` bytes, fewer at the end."""
        parts, missing = [], count
        while missing > 0:
            if not self._rest:
                self._rest = next(self._chunks, b"")
                if not self._rest:
                    break
            parts.append(self._rest[:missing])
            self._rest = self._rest[missing:]
            missing -= len(parts[-1])
        return b"".join(parts)

    def readable(self) -> bool:
        """Return true, which Arrow asks for."""
        return True

    def close(self) -> None:
        """Release the chunks."""
        self.closed = True


def _leaf_field(dataset: lance.LanceDataset, column: str, member: str) -> int:
    """Return the number of a member of a struct column in the schema of a table."""
    for field in dataset.lance_schema.fields():
        if field.name() == column:
            for child in field.children():
                if child.name() == member:
                    return int(child.id())
    raise NotFound(f"there is no column {column}.{member}")

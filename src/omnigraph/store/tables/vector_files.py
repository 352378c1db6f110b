"""Vectors of data files on a local disk, read without Lance.

Lance stores vectors of 256 bytes and more one after the other. Reading one takes a system call, and
Lance takes about fifteen times as long. Vectors of other layouts, and those of object stores, are left to Lance.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.lance.lance_files import file_name, get_fragment
from omnigraph.store.lance.page_layout import (
    FOOTER,
    FileFooter,
    UnknownLayout,
    VectorPage,
    parse_column_entry,
    parse_pages,
)
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.sync import storage_error_from_os
from omnigraph.store.tables.row_addresses import Offsets
from omnigraph.store.tables.tables import Tables

_SPAN_BYTES = 4 << 20
# Reading one vector by itself costs about as much as reading this many vectors at once.
_READ_PER_TAKEN = 8
_NUMBER = np.dtype("<f4")


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A data file, and the pages of one of its columns. Both never change."""

    path: str
    pages: tuple[VectorPage, ...]

    def read(self, offsets: Offsets) -> pa.Array:
        """Return the vectors at ascending offsets, null where there is none. Raises `StorageError`."""
        parts: list[pa.Array] = []
        ends = np.cumsum([page.rows for page in self.pages])
        bounds = np.searchsorted(offsets, ends).tolist()
        with _opened(self.path) as file:
            start = 0
            for page, end, bound in zip(self.pages, ends.tolist(), bounds, strict=True):
                if start < bound:
                    rows = offsets[start:bound].astype(np.int64) - (end - page.rows)
                    parts.append(_read_page(file, self.path, page, rows))
                start = bound
        if start < len(offsets):
            raise StorageError(
                f"{Path(self.path).name} has {int(ends[-1]):,} rows, and one after them was asked for"
            )
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def find_vector_files(
    tables: Tables, pin: TablePin, column: str, fragments: list[int]
) -> Mapping[int, VectorFile]:
    """Return the files with the vectors of some fragments, for those that can be read without Lance."""
    local = tables.root.local
    if local is None:
        return {}
    dataset = tables.open(pin.path, pin.version)
    kind = dataset.schema.field(column).type
    if kind.value_type != pa.float32():
        return {}
    field = next(item.id() for item in dataset.lance_schema.fields() if item.name() == column)
    found: dict[int, VectorFile] = {}
    for fragment in fragments:
        place = _place(dataset, fragment, int(field))
        if place is None:
            continue
        pages = _vector_pages(str(local / pin.path / "data" / place[0]), place[1], place[2])
        if pages and all(page.dimension == kind.list_size and page.number_bytes == 4 for page in pages):
            found[fragment] = VectorFile(str(local / pin.path / "data" / place[0]), pages)
    return found


def _place(dataset: lance.LanceDataset, fragment: int, field: int) -> tuple[str, int, int] | None:
    """Return the data file with a column of a fragment, its size, and the number of the column in it."""
    for file in get_fragment(dataset, fragment).metadata.files:
        if field in file.fields and file.file_size_bytes:
            return file_name(file), file.file_size_bytes, file.column_indices[file.fields.index(field)]
    return None


@lru_cache(maxsize=4_096)
def _vector_pages(path: str, size: int, column: int) -> tuple[VectorPage, ...]:
    """Return the pages of a column, none if one of them has another layout."""
    with _opened(path) as file:
        try:
            footer = FileFooter.parse(_read(file, path, size - FOOTER.size, FOOTER.size))
            start, end = footer.column_entry(column)
            start, end = parse_column_entry(_read(file, path, start, end - start))
            pages = parse_pages(_read(file, path, start, end - start))
        except UnknownLayout:
            return ()
    vectors = tuple(page for page in pages if isinstance(page, VectorPage))
    return vectors if len(vectors) == len(pages) else ()


def _read_page(file: int, path: str, page: VectorPage, rows: npt.NDArray[np.int64]) -> pa.Array:
    width = page.row_bytes
    stored = np.empty((len(rows), width), np.uint8)
    # Parts of the page of a bounded size are read at once where many of their rows are needed.
    bounds = np.searchsorted(rows, range(int(rows[0]), int(rows[-1]) + 1, max(1, _SPAN_BYTES // width)))
    for start, end in pairwise([*bounds.tolist(), len(rows)]):
        if start == end:
            continue
        first, count = int(rows[start]), int(rows[end - 1] - rows[start]) + 1
        if count <= _READ_PER_TAKEN * (end - start):
            span = _read(file, path, page.data_start + first * width, count * width)
            stored[start:end] = np.frombuffer(span, np.uint8).reshape(-1, width)[rows[start:end] - first]
        else:
            _read_each(file, path, page, rows[start:end], stored[start:end])
    numbers = np.ascontiguousarray(stored[:, page.control_bytes :]).reshape(-1).view(_NUMBER)
    is_null = pa.array(stored[:, 0] != 0) if page.control_bytes else None
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers), page.dimension, mask=is_null)


def _read_each(
    file: int, path: str, page: VectorPage, rows: npt.NDArray[np.int64], stored: npt.NDArray[np.uint8]
) -> None:
    """Read single vectors of a page into an array."""
    width = page.row_bytes
    places = stored.reshape(-1).data
    starts = (page.data_start + rows * width).tolist()
    for place, start in zip(range(0, len(places), width), starts, strict=True):
        if os.preadv(file, [places[place : place + width]], start) != width:
            places[place : place + width] = _read(file, path, start, width)


def _read(file: int, path: str, start: int, size: int) -> bytes:
    data = os.pread(file, size, start)
    while len(data) < size:
        # A call may return less than there is.
        more = os.pread(file, size - len(data), start + len(data))
        if not more:
            raise StorageError(f"{Path(path).name} ends before byte {start + size:,}")
        data += more
    return data


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """Open a file for reading; an error of the system is that of the storage."""
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            yield file
        finally:
            os.close(file)
    except FileNotFoundError as error:
        raise NotFound(f"could not read {Path(path).name}: not found") from error
    except OSError as error:
        raise storage_error_from_os(error, f"read {Path(path).name}") from error

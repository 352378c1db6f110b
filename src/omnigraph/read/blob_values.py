"""Read single Blob values in byte ranges, without reading the rest of the value or of its column.

The tag of a value identifies its location. Data files are immutable, so a location always holds the same bytes.
The tag is known without reading the bytes, and does not change when other rows are written.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from omnigraph.catalog.columns import BLOB_DATA, BLOB_URI
from omnigraph.engine.memory.cached_table import CachedTable
from omnigraph.graph.snapshot import Snapshot
from omnigraph.store.lance.page_layout import UnknownLayout
from omnigraph.store.tables.value_bytes import ColumnFile, ColumnPages, ValueBytes


@dataclass(frozen=True)
class StoredBlob:
    """A Blob value in storage: the `uri` of an external value, or its bytes."""

    table: CachedTable
    physical: str
    position: int
    address: int
    file: str
    uri: str | None

    @cached_property
    def tag(self) -> str:
        """A text that identifies this value among all current and earlier values of the graph."""
        offset = self.address & 0xFFFFFFFF
        location = "\n".join((self.table.pin.path, self.file, str(offset), self.physical))
        return hashlib.sha256(location.encode()).hexdigest()[:32]

    def open(self) -> ValueBytes | None:
        """Return the bytes for reading; None if the entity has no value or an external one.

        Only metadata is read. Small values, and values in a layout that cannot be read in parts, are read whole.
        """
        if self.uri is not None:
            return None
        try:
            with self.table.snapshot.reading():
                value = self._open_parts()
        except UnknownLayout:
            return self._read_whole()
        return None if value is None else SnapshotValue(self.table.snapshot, value)

    def _open_parts(self) -> ValueBytes | None:
        table = self.table
        file = ColumnFile(table.snapshot.tables, table.pin, self.physical, BLOB_DATA, self.address)
        family = ("blob pages", table.pin.path, self.physical)
        pages = table.cache.get_or_build(family, self.file, lambda: file.read_pages() or ColumnPages("", ()))
        return file.open_value(pages) if pages.file else None

    def _read_whole(self) -> ValueBytes | None:
        place = np.array([self.position], np.int64)
        value = self.table.take_rows(place, [f"{self.physical}.{BLOB_DATA}"])[self.physical][0]
        data = value[BLOB_DATA] if value.is_valid else None
        return LoadedValue(data.as_buffer()) if data is not None and data.is_valid else None


@dataclass(frozen=True)
class SnapshotValue:
    """A value of a snapshot. Reads report data that is missing or damaged. See `Snapshot.reading`."""

    snapshot: Snapshot
    value: ValueBytes

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.value.size

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`."""
        with self.snapshot.reading():
            return self.value.read(start, end)


@dataclass(frozen=True)
class LoadedValue:
    """A value that was read whole."""

    data: pa.Buffer

    @property
    def size(self) -> int:
        """The number of bytes."""
        return int(self.data.size)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`."""
        data: bytes = self.data.slice(start, end - start).to_pybytes()
        return data


def find_blob(table: CachedTable, property_: str, id_: str) -> StoredBlob | None:
    """Locate the Blob value of an entity without reading its bytes; None if there is no such entity."""
    position = table.position(id_)
    if position < 0:
        return None
    physical = table.layout.physical(property_)
    place = np.array([position], np.int64)
    row = table.take_rows(place, [f"{physical}.{BLOB_URI}"])
    address = int(table.numbers.addresses(place)[0])
    file = next(fragment.files for fragment in table.fragments() if fragment.id == address >> 32)
    value = row[physical][0]
    uri = value[BLOB_URI].as_py() if value.is_valid else None
    return StoredBlob(table, physical, position, address, file, uri)

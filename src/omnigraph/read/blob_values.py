"""Read single Blob values without reading the rest of their column.

The tag of a value identifies its location. Data files are immutable, so a location always holds the same bytes.
The tag is known without reading the bytes, and does not change when other rows are written.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from omnigraph.catalog.columns import BLOB_DATA, BLOB_URI
from omnigraph.engine.memory.cached_table import CachedTable
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.errors import ResourceLimit
from omnigraph.store.tables.table_fragments import take_positions

RESOURCE = "blob_bytes_in_use"
_ADDRESS = "_rowaddr"
_OFFSET_BITS = 32


@dataclass(frozen=True)
class BlobBytes:
    """The bytes of a value as a cache entry; None if there is no value."""

    data: pa.Buffer | None

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return 64 if self.data is None else 64 + self.data.size


class BlobsInUse:
    """The Blob bytes in memory, cached or on the way to a client. Thread-safe.

    Storage returns a value only as a whole, so a slow client holds all of its bytes. Concurrent reads of a value
    share its bytes. No further value is read while more than `limit` bytes are in use.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._alive: WeakValueDictionary[Hashable, pa.Buffer] = WeakValueDictionary()

    @property
    def nbytes(self) -> int:
        """The number of bytes in use."""
        with self._lock:
            return sum(item.size for item in self._alive.values())

    def share(self, key: Hashable, load: Callable[[], pa.Buffer | None]) -> pa.Buffer | None:
        """Return the bytes of a value that is in use, or load them.

        Raises `ResourceLimit` if they have to be loaded and too many bytes are in use.
        """
        with self._lock:
            found = self._alive.get(key)
        if found is not None:
            return found
        in_use = self.nbytes
        if in_use > self._limit:
            raise ResourceLimit(
                "too many Blob bytes are in use",
                details={"resource": RESOURCE, "limit": self._limit, "actual": in_use},
                hint="retry when other Blob downloads have finished",
            )
        found = load()
        if found is not None:
            with self._lock:
                self._alive[key] = found
        return found


@dataclass(frozen=True)
class StoredBlob:
    """A Blob value in storage."""

    table: CachedTable
    physical: str
    position: int
    file: str
    offset: int
    uri: str | None

    @cached_property
    def tag(self) -> str:
        """A text that identifies this value among all current and earlier values of the graph."""
        location = "\n".join((self.table.pin.path, self.file, str(self.offset), self.physical))
        return hashlib.sha256(location.encode()).hexdigest()[:32]

    def read(self, in_use: BlobsInUse) -> memoryview | None:
        """Return the bytes; None if the entity has no value or an external one."""
        if self.uri is not None:
            return None
        cache: Cache = self.table.cache
        family = ("blob", self.table.pin.path, self.file, self.physical)
        # Another graph may have a value with the same tag, but not in the same cache.
        key = (id(cache), self.tag)
        found = cache.get_or_build(family, self.offset, lambda: BlobBytes(in_use.share(key, self._load)))
        return None if found.data is None else memoryview(found.data)

    def _load(self) -> pa.Buffer | None:
        value = _take(self.table, self.position, f"{self.physical}.{BLOB_DATA}")[self.physical][0]
        data = value[BLOB_DATA] if value.is_valid else None
        return data.as_buffer() if data is not None and data.is_valid else None


def find_blob(table: CachedTable, property_: str, id_: str) -> StoredBlob | None:
    """Locate the Blob value of an entity without reading its bytes; None if there is no such entity."""
    position = table.position(id_)
    if position < 0:
        return None
    physical = table.layout.physical(property_)
    row = _take(table, position, f"{physical}.{BLOB_URI}", _ADDRESS)
    fragment_id, offset = divmod(int(row[_ADDRESS][0].as_py()), 1 << _OFFSET_BITS)
    file = next(fragment.files for fragment in table.fragments() if fragment.id == fragment_id)
    value = row[physical][0]
    uri = value[BLOB_URI].as_py() if value.is_valid else None
    return StoredBlob(table, physical, position, file, offset, uri)


def _take(table: CachedTable, position: int, *columns: str) -> pa.Table:
    with table.snapshot.reading():
        return take_positions(table.snapshot.tables, table.pin, np.array([position], np.int64), columns)

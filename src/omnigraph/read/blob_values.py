"""Single values of bytes, read by themselves: never the column that they stand in.

The tag of a value says where it stands: files do not change, so a place in one holds the same bytes for ever. It
needs no bytes to be known, and stays the same when other rows are written.
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
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.engine.memory.table_columns import Frame
from omnigraph.errors import NotFound, ResourceLimit
from omnigraph.graph.snapshot import reclaimed
from omnigraph.store.tables.table_fragments import take_positions

RESOURCE = "blob_bytes_in_use"
_ADDRESS = "_rowaddr"
_OFFSET_BITS = 32


@dataclass(frozen=True)
class BlobBytes:
    """The bytes of a value, as they were read; None for a value that is not there."""

    data: pa.Buffer | None

    @property
    def nbytes(self) -> int:
        """Memory of the bytes."""
        return 64 if self.data is None else 64 + self.data.size


class BlobsInUse:
    """Bytes that somebody still has, in a cache or on the way to a client. Safe to share between threads.

    Storage has no part of a value without the rest, so whoever is slow to take one holds all of it. Those who read
    the same value hold the same bytes, and when `limit` is reached no further value is read.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._alive: WeakValueDictionary[Hashable, pa.Buffer] = WeakValueDictionary()

    @property
    def nbytes(self) -> int:
        """How many there are now."""
        with self._lock:
            return sum(item.size for item in self._alive.values())

    def share(self, key: Hashable, load: Callable[[], pa.Buffer | None]) -> pa.Buffer | None:
        """The bytes that somebody has, or those that are loaded; `ResourceLimit` when there are too many."""
        with self._lock:
            found = self._alive.get(key)
        if found is not None:
            return found
        held = self.nbytes
        if held > self._limit:
            raise ResourceLimit(
                "too many values of bytes are being sent",
                details={"resource": RESOURCE, "limit": self._limit, "actual": held},
                hint="try again when some of them have arrived",
            )
        found = load()
        if found is not None:
            with self._lock:
                self._alive[key] = found
        return found


@dataclass(frozen=True)
class StoredBlob:
    """A value of bytes where it is stored."""

    frame: Frame
    physical: str
    position: int
    file: str
    offset: int
    uri: str | None

    @cached_property
    def tag(self) -> str:
        """What tells this value from all others of the graph, also from what it was before."""
        place = "\n".join((self.frame.pin.path, self.file, str(self.offset), self.physical))
        return hashlib.sha256(place.encode()).hexdigest()[:32]

    def read(self, in_use: BlobsInUse) -> memoryview | None:
        """The bytes; None when the entity has no value, or one that is kept elsewhere."""
        if self.uri is not None:
            return None
        cache: Cache = self.frame.cache
        family = ("blob", self.frame.pin.path, self.file, self.physical)
        # Another graph may have a value of the same tag, but not in the same cache.
        key = (id(cache), self.tag)
        found = cache.make(family, self.offset, lambda: BlobBytes(in_use.share(key, self._load)))
        return None if found.data is None else memoryview(found.data)

    def _load(self) -> pa.Buffer | None:
        value = _take(self.frame, self.position, f"{self.physical}.{BLOB_DATA}")[self.physical][0]
        data = value[BLOB_DATA] if value.is_valid else None
        return data.as_buffer() if data is not None and data.is_valid else None


def find_blob(frame: Frame, property_: str, id_: str) -> StoredBlob | None:
    """Where the value of an entity stands; None when there is no such entity. No bytes of it are read."""
    position = frame.position(id_)
    if position < 0:
        return None
    physical = frame.table.physical(property_)
    row = _take(frame, position, f"{physical}.{BLOB_URI}", _ADDRESS)
    fragment, offset = divmod(int(row[_ADDRESS][0].as_py()), 1 << _OFFSET_BITS)
    file = next(part.files for part in frame.parts() if part.id == fragment)
    value = row[physical][0]
    uri = value[BLOB_URI].as_py() if value.is_valid else None
    return StoredBlob(frame, physical, position, file, offset, uri)


def _take(frame: Frame, position: int, *columns: str) -> pa.Table:
    try:
        return take_positions(frame.snapshot.tables, frame.pin, np.array([position], np.int64), columns)
    except NotFound as error:
        raise reclaimed(frame.snapshot.commit) from error

"""Caches of computed vectors by a digest of model and text: in memory, and in a file that processes share.

A cache only saves requests. If its file cannot be read or written, the vectors are computed again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

MEMORY_BYTES = 64 << 20
FILE_BYTES = 256 << 20
# A full file gives up this share of its vectors at once, so that most writes delete nothing.
_EVICTED = 0.2
_BUSY_SECONDS = 5.0
# SQLite takes this many parameters in a statement of any build.
_MAX_PARAMETERS = 900

Vector = npt.NDArray[np.float32]


def vector_key(provider: str, model: str | None, dim: int, text: str) -> bytes:
    """Return the key of a vector: a digest of everything that determines it.

    >>> vector_key("openai", "small", 3, "tea") == vector_key("openai", "large", 3, "tea")
    False
    """
    given = json.dumps([provider, model, dim, text])
    return hashlib.sha256(given.encode()).digest()


class MemoryCache:
    """Vectors in memory, the least recently used discarded first. Thread-safe."""

    def __init__(self, max_bytes: int = MEMORY_BYTES) -> None:
        self._vectors: LRUCache[bytes, Vector] = LRUCache(
            max_bytes, getsizeof=lambda vector: vector.nbytes + 64
        )
        self._lock = threading.Lock()

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """Return the vectors that are cached."""
        with self._lock:
            return {key: vector for key in keys if (vector := self._vectors.get(key)) is not None}

    def add(self, vectors: Mapping[bytes, Vector]) -> None:
        """Add vectors. One that is larger than the cache is ignored."""
        with self._lock:
            for key, vector in vectors.items():
                if vector.nbytes + 64 <= self._vectors.maxsize:
                    self._vectors[key] = vector


class FileCache:
    """Vectors in an SQLite file of bounded size. Several processes may use it at the same time."""

    def __init__(self, path: Path, max_bytes: int = FILE_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Vector]:
        """Return the vectors that are cached; none if the file cannot be read."""
        found: dict[bytes, Vector] = {}
        try:
            with self._open() as database:
                for part in _parts(keys):
                    marks = ",".join("?" * len(part))
                    rows = database.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)
                    found.update({key: np.frombuffer(data, np.float32) for key, data in rows})
                for part in _parts(list(found)):
                    marks = ",".join("?" * len(part))
                    used = f"UPDATE vectors SET used = ? WHERE key IN ({marks})"
                    database.execute(used, (time.time_ns(), *part))
        except (OSError, sqlite3.Error):
            # Without the cache the vectors are computed.
            return found
        return found

    def add(self, vectors: Mapping[bytes, Vector]) -> None:
        """Add vectors, and discard the least recently used ones of a full file. Ignored if it cannot be written."""
        now = time.time_ns()
        rows = [(key, vector.tobytes(), now, vector.nbytes) for key, vector in vectors.items()]
        try:
            with self._open() as database:
                database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", rows)
                self._evict(database)
        except (OSError, sqlite3.Error):
            # The next write computes the vectors again.
            return

    def _evict(self, database: sqlite3.Connection) -> None:
        (size,) = database.execute("SELECT coalesce(sum(size), 0) FROM vectors").fetchone()
        excess = size - self._max_bytes
        if excess <= 0:
            return
        excess += self._max_bytes * _EVICTED
        oldest = database.execute("SELECT key, size FROM vectors ORDER BY used, key").fetchall()
        evicted = []
        for key, of_vector in oldest:
            if excess <= 0:
                break
            evicted.append((key,))
            excess -= of_vector
        database.executemany("DELETE FROM vectors WHERE key = ?", evicted)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one use, as a transaction. A connection must not be used after a fork."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(
                "CREATE TABLE IF NOT EXISTS vectors"
                " (key BLOB PRIMARY KEY, vector BLOB, used INTEGER, size INTEGER) WITHOUT ROWID"
            )
            with database:
                yield database


def _parts(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (keys[start : start + _MAX_PARAMETERS] for start in range(0, len(keys), _MAX_PARAMETERS))

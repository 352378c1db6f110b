"""Counters that all processes of a server share, so that a limit holds over all of them together."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final

_ENTRY: Final = struct.Struct("<qq")
_KEY_BYTES: Final = 16
# Row 0 counts all requests. Each actor with requests in flight has a row for each kind of count.
_ROWS: Final = 4096
_ALL: Final = b"\0" * _KEY_BYTES


class SharedUsage:
    """Requests in flight and their bytes, of the whole server and of each actor, by process.

    The table is memory that all processes map. A file lock protects it, which the kernel releases when a process is
    killed. The parent then clears the column of the process.
    """

    def __init__(self, folder: Path, processes: int) -> None:
        # The entries of all processes in one row.
        self._entries = struct.Struct(f"<{2 * processes}q")
        self._row_bytes = _KEY_BYTES + self._entries.size
        self._memory = mmap.mmap(-1, _ROWS * self._row_bytes)
        self._path = folder / "usage.lock"
        self._path.touch(mode=0o600)
        self._column = 0
        self._file = -1
        self._mutex = threading.Lock()

    def attach(self, column: int) -> None:
        """Count for a process. Called after the fork, because a lock belongs to an open file."""
        self._column = column
        self._mutex = threading.Lock()
        self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)

    def add(
        self, kind: str, actor: str | None, requests: int, size: int, limits: tuple[int, int]
    ) -> int | None:
        """Count requests and bytes; return the index of the limit it would exceed, and then count nothing."""
        return self._add(_key(kind, actor), requests, size, limits)

    def add_to_all(self, requests: int, size: int, limits: tuple[int, int]) -> int | None:
        """Like `add`, for the limits of the whole server."""
        return self._add(_ALL, requests, size, limits)

    def total(self) -> tuple[int, int]:
        """Return the requests and the bytes of the whole server."""
        with self._locked():
            return self._sum(0)

    def clear(self, column: int) -> None:
        """Remove the counts of a process that has ended."""
        with self._locked():
            for row in range(_ROWS):
                _ENTRY.pack_into(self._memory, self._at(row, column), 0, 0)

    def _add(self, key: bytes, requests: int, size: int, limits: tuple[int, int]) -> int | None:
        # Without a context manager, which takes longer than the lock: every request counts several times. The file
        # lock is of the process, the mutex of its threads.
        with self._mutex:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                row = 0 if key == _ALL else self._find_row(key)
                if row is None:
                    return 0
                if requests > 0 or size > 0:
                    used, bytes_ = self._sum(row)
                    if requests > 0 and used + requests > limits[0]:
                        return 0
                    if size > 0 and bytes_ + size > limits[1]:
                        return 1
                at = self._at(row, self._column)
                own = _ENTRY.unpack_from(self._memory, at)
                _ENTRY.pack_into(self._memory, at, own[0] + requests, own[1] + size)
                return None
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._mutex:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _find_row(self, key: bytes) -> int | None:
        """Return the row of an actor; None if all are taken. A row without requests is free for another actor."""
        first = int.from_bytes(key[:4], "little")
        free = None
        for step in range(_ROWS - 1):
            row = 1 + (first + step) % (_ROWS - 1)
            at = row * self._row_bytes
            found = self._memory[at : at + _KEY_BYTES]
            if found == key:
                return row
            if free is None and self._sum(row) == (0, 0):
                free = row
            if found == _ALL:
                break
        if free is not None:
            self._memory[free * self._row_bytes : free * self._row_bytes + _KEY_BYTES] = key
        return free

    def _sum(self, row: int) -> tuple[int, int]:
        entries = self._entries.unpack_from(self._memory, row * self._row_bytes + _KEY_BYTES)
        return sum(entries[::2]), sum(entries[1::2])

    def _at(self, row: int, column: int) -> int:
        return row * self._row_bytes + _KEY_BYTES + column * _ENTRY.size


@lru_cache(_ROWS)
def _key(kind: str, actor: str | None) -> bytes:
    # A request without an actor is counted apart from an actor with a blank name.
    text = f"{kind}-" if actor is None else f"{kind}+{actor}"
    return hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()

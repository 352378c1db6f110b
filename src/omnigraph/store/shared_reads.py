"""Reads that several threads need at the same time and one of them performs."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class SharedReads:
    """Locks by key. Reads of different keys do not wait for each other.

    A thread that gets the lock looks into its cache again, and finds what another thread has read in the meantime.

    >>> reads = SharedReads()
    >>> with reads.alone("file"):
    ...     len(reads)
    1
    >>> len(reads)
    0
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The lock of a key, and the number of threads that hold or await it.
        self._held: dict[Hashable, tuple[threading.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._held)

    @contextmanager
    def alone(self, key: Hashable) -> Iterator[None]:
        """Hold the lock of a key. The last thread to leave removes the lock, also after an error."""
        with self._lock:
            lock, threads = self._held.get(key) or (threading.Lock(), 0)
            self._held[key] = lock, threads + 1
        try:
            with lock:
                yield
        finally:
            with self._lock:
                lock, threads = self._held[key]
                if threads == 1:
                    del self._held[key]
                else:
                    self._held[key] = lock, threads - 1

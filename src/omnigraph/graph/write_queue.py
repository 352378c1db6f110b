"""A write queue for each branch: the writers of one handle publish to a branch one after another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Longer than a queue of small writes takes. A writer does not wait longer than this.
WAIT_TIMEOUT = 30.0


class WriteQueue:
    """Locks by branch. Safe to share between threads.

    The queue is an optimization, and correctness does not depend on it: the compare-and-swap of the manifest
    decides between threads as between processes. A write that is prepared while another one commits often has
    to be prepared again, and with many threads on one branch this is the rule. A writer that waited for the
    timeout proceeds without the lock, so that a stuck writer does not block others forever.

    >>> queue = WriteQueue()
    >>> with queue.acquire("main"), queue.acquire("main"), queue.acquire("review"):
    ...     queue.branches
    ['main', 'review']
    >>> queue.branches
    []
    """

    def __init__(self, timeout: float = WAIT_TIMEOUT) -> None:
        self._timeout = timeout
        self._lock = threading.Lock()
        # The lock of each branch, and the number of threads that hold it or wait for it.
        self._branches: dict[str, tuple[threading.RLock, int]] = {}

    @property
    def branches(self) -> list[str]:
        """The branches that a thread writes to or waits for."""
        with self._lock:
            return sorted(self._branches)

    @contextmanager
    def acquire(self, branch: str) -> Iterator[None]:
        """Hold the lock of a branch, or proceed without it after the timeout. The lock is reentrant."""
        with self._lock:
            lock, users = self._branches.get(branch, (threading.RLock(), 0))
            self._branches[branch] = lock, users + 1
        acquired = lock.acquire(timeout=self._timeout)
        try:
            yield
        finally:
            if acquired:
                lock.release()
            with self._lock:
                lock, users = self._branches[branch]
                if users > 1:
                    self._branches[branch] = lock, users - 1
                else:
                    del self._branches[branch]

"""Turns at a branch: writers of one handle that meet there go one after another instead of against each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Longer than a queue of small writes takes; what takes longer than this is not waited for.
PATIENCE = 30.0


class Turns:
    """Whose turn it is to write to a branch. Safe to share between threads.

    It is courtesy and nothing depends on it: publishing is what decides, among processes as among threads. But work
    that is prepared while another commits is often prepared for nothing, and with many threads at one branch most
    of it is. Whoever has waited long enough goes ahead, so that nobody is held up by one who is stuck.

    >>> turns = Turns()
    >>> with turns.take("main"), turns.take("main"), turns.take("review"):
    ...     turns.branches
    ['main', 'review']
    >>> turns.branches
    []
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        # With how many want it; one that nobody wants is forgotten.
        self._turns: dict[str, tuple[threading.RLock, int]] = {}

    @property
    def branches(self) -> list[str]:
        """The branches that somebody writes to, or waits to."""
        with self._lock:
            return sorted(self._turns)

    @contextmanager
    def take(self, branch: str) -> Iterator[None]:
        """Wait for one's turn, and have it while the context lasts. A thread that has it may take it again."""
        with self._lock:
            turn, wanted = self._turns.get(branch, (threading.RLock(), 0))
            self._turns[branch] = turn, wanted + 1
        taken = turn.acquire(timeout=self._patience)
        try:
            yield
        finally:
            if taken:
                turn.release()
            with self._lock:
                turn, wanted = self._turns[branch]
                if wanted > 1:
                    self._turns[branch] = turn, wanted - 1
                else:
                    del self._turns[branch]

"""Statistics of the writes of one handle: commits, sizes of groups, and retries."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping


class WriteStatistics:
    """Counts the commits that a handle has published. Thread-safe.

    >>> statistics = WriteStatistics()
    >>> statistics.record_group(3)
    >>> statistics.record_group(1)
    >>> statistics.record_retry()
    >>> statistics.commits, dict(statistics.group_sizes()), statistics.retries
    (4, {3: 1, 1: 1}, 1)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sizes: Counter[int] = Counter()
        self._retries = 0

    def record_group(self, size: int) -> None:
        """Count the commits that one swap of the manifest has published."""
        with self._lock:
            self._sizes[size] += 1

    def record_retry(self) -> None:
        """Count a preparation that is made again because another writer was faster."""
        with self._lock:
            self._retries += 1

    @property
    def commits(self) -> int:
        """The number of published commits."""
        return sum(size * count for size, count in self.group_sizes().items())

    @property
    def retries(self) -> int:
        """The number of repeated preparations."""
        return self._retries

    def group_sizes(self) -> Mapping[int, int]:
        """Return the number of groups by size."""
        with self._lock:
            return dict(self._sizes)

"""The time of a garbage collection, which is that of the storage system."""

from __future__ import annotations

from omnigraph.graph.repository import Repository
from omnigraph.lang.temporal import epoch_micros
from omnigraph.store.boot_clock import boot_clock
from omnigraph.store.objects.store_clock import read_store_clock, warn_about_clock


class CollectionClock:
    """The clock of the storage system, read once. A clock of this machine that never jumps continues it."""

    def __init__(self, repository: Repository) -> None:
        began = boot_clock()
        read = read_store_clock(repository.objects)
        warn_about_clock(repository.warnings, read)
        # Later than every file that was written before. Object stores have times in whole seconds.
        self.started = epoch_micros(read) + (1 if read.microsecond else 1_000_000)
        self._began = began

    def now(self) -> int:
        """Return the present time in microseconds since the epoch."""
        return self.started + int((boot_clock() - self._began) * 1_000_000)

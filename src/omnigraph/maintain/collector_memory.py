"""What a garbage collection that runs again and again remembers, and how it shares the processor."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from omnigraph.maintain.commit_memory import CommitMemory
from omnigraph.maintain.retention import MergeBases
from omnigraph.maintain.thinning import Thinning
from omnigraph.maintain.version_memory import VersionMemory

# Work of this length is followed by a pause of the same length.
_WORK_SECONDS: Final = 0.004


class WorkStopped(Exception):
    """The work was asked to stop. What is done stays done, and a later run continues."""


class Pace:
    """Divides background work into short pieces with pauses, so that it takes at most half of a processor.

    Python threads take turns. Without pauses, a write would wait several milliseconds for each of its turns.
    """

    def __init__(self, is_stopped: Callable[[], bool]) -> None:
        self._is_stopped = is_stopped
        self._since = time.monotonic()

    def step(self) -> None:
        """Pause if it is time to; raise `WorkStopped` if the work should stop."""
        if self._is_stopped():
            raise WorkStopped
        worked = time.monotonic() - self._since
        if worked >= _WORK_SECONDS:
            time.sleep(min(worked, 10 * _WORK_SECONDS))
            self._since = time.monotonic()


@dataclass
class CollectorMemory:
    """The memory of a collector: thinned commits, merge bases, the commits it has read, and the files of versions.

    After a run it holds what the run has used. Its size follows what is retained.

    `max_files` bounds the number of files that one run removes. `listed` and `retained` are results of the last
    run: the number of files in storage and the number of retained commits.
    """

    pace: Pace
    thinning: Thinning
    commits: CommitMemory
    merge_bases: MergeBases
    max_files: int
    versions: VersionMemory = field(default_factory=VersionMemory)
    listed: int = 0
    retained: int = 0

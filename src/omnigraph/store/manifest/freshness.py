"""Detection of changes in a local directory with one `stat` call.

The modification time of a directory changes whenever an entry is created, renamed or removed. It has a
resolution of some milliseconds, so two changes within one tick leave the same time. An equal time therefore
proves that nothing changed only if it was well in the past when it was read. A network file system may cache
the time for seconds, so nothing is concluded from it there.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

# Far above the resolution of any file system, including those that count in whole seconds.
_STABLE_AFTER_NANOS = 2_100_000_000
_MOUNTS = Path("/proc/self/mountinfo")
# File systems that only the kernel of this machine changes.
_LOCAL_FILE_SYSTEMS = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "bcachefs"}
)


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """The modification time of a directory, and the time when it was read, in nanoseconds since the epoch."""

    modified: int
    read_at: int

    @property
    def is_stable(self) -> bool:
        """Whether any later change results in another modification time."""
        return self.read_at - self.modified > _STABLE_AFTER_NANOS


def read_directory_state(folder: Path) -> DirectoryState | None:
    """Return the state of a directory, or None when it does not allow to detect changes.

    Read the state before the content of the directory. A change after that is then detected.
    """
    read_at = time.time_ns()
    try:
        status = folder.stat()
    except OSError:
        return None
    return DirectoryState(status.st_mtime_ns, read_at) if _is_local(status.st_dev) else None


def is_unchanged(folder: Path, since: DirectoryState | None) -> bool:
    """Return whether no entry was created, renamed or removed since; False when that is not known."""
    if since is None or not since.is_stable:
        return False
    try:
        return folder.stat().st_mtime_ns == since.modified
    except OSError:
        return False


@lru_cache(maxsize=64)
def _is_local(device: int) -> bool:
    """Return whether only this machine changes the file system of a device."""
    name = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    for line in lines:
        before, _, after = line.partition(" - ")
        if before.split(" ")[2:3] == [name]:
            return after.split(" ")[0] in _LOCAL_FILE_SYSTEMS
    return False

"""Whether a local folder has changed since it was looked at, for the price of one `stat`.

The time of a folder's last change moves with every name in it that is made, renamed or removed. It moves in ticks
of some milliseconds: two changes in one tick leave the same time, so it only says that nothing has happened
when it was well in the past already at the time of looking. On file systems of other machines the answer may be
kept by this one for seconds, so there nothing is concluded from it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

# Far above any file system's tick: those that count in whole seconds are never settled before two of them.
_SETTLED_NANOS = 2_100_000_000
_MOUNTS = Path("/proc/self/mountinfo")
# File systems whose every change is made by this machine's kernel.
_OWN = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "bcachefs"})


@dataclass(frozen=True, slots=True)
class Sight:
    """When a folder was looked at, and when it had last changed then."""

    changed: int
    looked: int

    @property
    def is_settled(self) -> bool:
        """Whether any later change would show."""
        return self.looked - self.changed > _SETTLED_NANOS


def look_at(folder: Path) -> Sight | None:
    """Look before reading the folder: what changes afterwards then differs. None when looking tells nothing."""
    looked = time.time_ns()
    try:
        found = folder.stat()
    except OSError:
        return None
    return Sight(found.st_mtime_ns, looked) if _is_own(found.st_dev) else None


def is_unchanged(folder: Path, since: Sight | None) -> bool:
    """Whether nothing has been made, renamed or removed in the folder since; False when that is not known."""
    if since is None or not since.is_settled:
        return False
    try:
        return folder.stat().st_mtime_ns == since.changed
    except OSError:
        return False


@lru_cache(maxsize=64)
def _is_own(device: int) -> bool:
    """Whether a device's file system is this machine's own."""
    name = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    for line in lines:
        before, _, after = line.partition(" - ")
        if before.split(" ")[2:3] == [name]:
            return after.split(" ")[0] in _OWN
    return False

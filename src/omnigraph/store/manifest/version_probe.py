"""Finding the newest version of `__manifest` on a local disk without listing its directory.

Versions are numbered without gaps, and old versions are removed in ascending order. If a version exists and its
successor does not, it is the newest one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.version_digests import last_recorded_version

_MOUNTS = Path("/proc/self/mountinfo")
# File systems that only the kernel of this machine changes. A network file system may cache for seconds that a file
# does not exist.
_LOCAL_FILE_SYSTEMS = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "bcachefs"}
)


@dataclass(frozen=True, slots=True)
class VersionProbe:
    """The directory of `__manifest` on a file system that always tells whether a file exists."""

    folder: str

    @classmethod
    def of(cls, folder: Path) -> VersionProbe | None:
        """Return a probe; None if the file system may give outdated answers."""
        try:
            device = folder.stat().st_dev
        except OSError:
            return None
        return cls(str(folder)) if _is_local(device) else None

    def find_newest(self, known: int) -> int | None:
        """Return the newest version, given one that was the newest before; None if that one was removed."""
        if not self._exists(known + 1):
            # In this order: the successor of a version that exists now cannot have been removed before.
            return known if self._exists(known) else None
        step = 1
        while self._exists(known + 2 * step):
            step *= 2
        # Version `known + step` exists, and `known + 2 * step` does not.
        newest, missing = known + step, known + 2 * step
        while missing - newest > 1:
            middle = (newest + missing) // 2
            if self._exists(middle):
                newest = middle
            else:
                missing = middle
        return newest if self._exists(known) else None

    def _exists(self, version: int) -> bool:
        return os.path.exists(f"{self.folder}/{version_file(version)}")  # noqa: PTH110 - every read does it


def find_newest_version(view: ManifestView, probe: VersionProbe | None) -> int:
    """Return the newest version of `__manifest`, given a view of it. With a probe, Lance is not called."""
    latest = None if probe is None else probe.find_newest(view.version)
    if latest is not None:
        return latest
    with translate_lance_errors("refresh __manifest"):
        return int(view.latest_dataset.latest_version)


def find_recorded_version(local: Path | None) -> int | None:
    """Return the newest version of `__manifest` of a graph, given its directory; None if it must be listed.

    The search begins at the last version in the log of digests.
    """
    if local is None:
        return None
    folder = local / "__manifest"
    known = last_recorded_version(folder)
    probe = None if known is None else VersionProbe.of(folder)
    return None if known is None or probe is None else probe.find_newest(known)


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

"""Versions of tables on a local disk, read from their manifest files."""

from __future__ import annotations

import threading
from typing import Final

from cachetools import LRUCache

from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.lance.version_manifest import StoredFragment, read_version

# The versions of a commit and of the one before are asked for several times.
_KEPT_VERSIONS: Final = 32


class StoredVersions:
    """The fragments of versions, without opening them. Safe to share between threads."""

    def __init__(self, root: LanceRoot) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._versions: LRUCache[tuple[str, int], tuple[StoredFragment, ...]] = LRUCache(_KEPT_VERSIONS)

    def fragments(self, path: str, version: int) -> tuple[StoredFragment, ...] | None:
        """Return the fragments of a version; None if it must be opened.

        That is so on an object store, in memory, if files are compared with their digests, and for a version that
        cannot be read.
        """
        if self._root.local is None or self._root.verify_reads:
            return None
        key = (path, version)
        with self._lock:
            known = self._versions.get(key)
        if known is not None:
            return known
        found = read_version(f"{self._root.local}/{path}/{version_file(version)}", version)
        if found is None:
            return None
        with self._lock:
            self._versions[key] = found.fragments
        return found.fragments

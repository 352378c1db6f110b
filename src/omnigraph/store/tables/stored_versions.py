"""Versions of tables on a local disk, read from their manifest files."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import pyarrow as pa
from cachetools import LRUCache

from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.lance.version_manifest import StoredFragment, StoredVersion, read_version

# The versions of a commit and of the one before are asked for several times.
_KEPT_VERSIONS: Final = 32
_KEPT_SCHEMAS: Final = 256


class StoredVersions:
    """The fragments and schemas of versions, without opening them. Safe to share between threads."""

    def __init__(self, root: LanceRoot) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._versions: LRUCache[tuple[str, int], StoredVersion] = LRUCache(_KEPT_VERSIONS)
        # By the bytes that a version states about its columns, which few versions of a table change.
        self._schemas: LRUCache[bytes, pa.Schema] = LRUCache(_KEPT_SCHEMAS)

    def fragments(self, path: str, version: int) -> tuple[StoredFragment, ...] | None:
        """Return the fragments of a version; None if it must be opened.

        That is so on an object store, in memory, if files are compared with their digests, and for a version that
        cannot be read.
        """
        found = self.find(path, version)
        return None if found is None else found.fragments

    def schema(self, path: str, version: int, open_schema: Callable[[], pa.Schema]) -> pa.Schema:
        """Return the schema of a version. `open_schema` opens it, once for all versions with equal columns."""
        found = self.find(path, version)
        if found is None:
            return open_schema()
        with self._lock:
            schema = self._schemas.get(found.columns)
        if schema is None:
            schema = open_schema()
            with self._lock:
                self._schemas[found.columns] = schema
        return schema

    def forget(self, path: str) -> None:
        """Read the versions of a table from storage again."""
        with self._lock:
            for key in [item for item in self._versions if item[0] == path]:
                del self._versions[key]

    def find(self, path: str, version: int) -> StoredVersion | None:
        """Return a version; None if it must be opened."""
        if self._root.local is None or self._root.verify_reads:
            return None
        key = (path, version)
        with self._lock:
            known = self._versions.get(key)
        if known is None:
            known = read_version(f"{self._root.local}/{path}/{version_file(version)}", version)
            if known is not None:
                with self._lock:
                    self._versions[key] = known
        return known

    def add(self, path: str, version: StoredVersion) -> None:
        """Add a version that was just written, so that it is not read."""
        with self._lock:
            self._versions[(path, version.version)] = version

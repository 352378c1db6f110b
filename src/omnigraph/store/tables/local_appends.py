"""Appends of a group of writes to tables on a local disk, whose versions are written without Lance.

The writes of a group are prepared one after another by one thread, and each waits for the versions before it. A
commit of Lance passes every file to another thread, and the version is read back to find its fragments. Here the
version is made from the bytes of its base, and its fragments are known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import lance
import pyarrow as pa
from cachetools import LRUCache

from omnigraph.store.file_digests import FileDigest
from omnigraph.store.lance.lance_files import data_file_sizes, version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.lance.version_manifest import StoredFragment, StoredVersion
from omnigraph.store.lance.version_writer import append_fragments, create_version
from omnigraph.store.request_counts import count_requests
from omnigraph.store.sync import storage_error_from_os
from omnigraph.store.tables.fragment_writer import append_rows
from omnigraph.store.tables.stored_versions import StoredVersions

_KEPT_DATASETS: Final = 64


class LocalAppends:
    """Appends small batches to versions. Safe to share between threads."""

    def __init__(self, root: LanceRoot, stored: StoredVersions) -> None:
        self._root = root
        self._stored = stored
        self._lock = threading.Lock()
        # A dataset for each table and the bytes that state its columns: Lance writes rows with any version of them.
        self._datasets: LRUCache[tuple[str, bytes], lance.LanceDataset] = LRUCache(_KEPT_DATASETS)

    def base(self, path: str, version: int) -> StoredVersion | None:
        """Return a version that can be appended to; None if Lance must commit its successor."""
        found = self._stored.find(path, version)
        return found if found is not None and found.is_plain else None

    def append(
        self,
        path: str,
        base: StoredVersion,
        batches: Sequence[pa.RecordBatch],
        schema: pa.Schema,
        open_base: Callable[[], lance.LanceDataset],
    ) -> tuple[int, tuple[FileDigest, ...]] | None:
        """Append rows to a version; return the new version and the digests of its files. None if Lance must do it.

        Nothing refers to the files of a failed attempt.
        """
        folder = f"{self._root.local}/{path}"
        new = append_rows(self._dataset(path, base.columns, open_base), batches, schema)
        try:
            with open(f"{folder}/{version_file(base.version)}", "rb", 0) as stream:  # noqa: PTH123 - every commit
                following = append_fragments(stream.read(), new)
            count_requests(writes=2)
            if following is None or not create_version(folder, following):
                return None
        except FileNotFoundError:
            # Lance reports a base that was removed, and creates a folder that a copy of the graph does not have.
            return None
        except OSError as error:
            raise storage_error_from_os(error, f"cannot append to {path}") from error
        digests = self._root.seal(path, data_file_sizes(new)) + self._root.seal_written(path, following.files)
        added = [replace(StoredFragment.of(item), id=following.first_id + n) for n, item in enumerate(new)]
        self._stored.add(path, replace(base, version=following.version, fragments=(*base.fragments, *added)))
        return following.version, digests

    def _dataset(
        self, path: str, columns: bytes, open_base: Callable[[], lance.LanceDataset]
    ) -> lance.LanceDataset:
        with self._lock:
            known = self._datasets.get((path, columns))
        if known is None:
            known = open_base()
            with self._lock:
                self._datasets[path, columns] = known
        return known

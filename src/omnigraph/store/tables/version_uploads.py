"""Table versions that are built on the local disk and uploaded to an object store in the background.

A version depends only on the manifest file of its base version, and that file is small. The writes of a group build
their versions on each other on a scratch folder, without waiting for the object store, and all their files are
uploaded at the same time. An uploaded version is the same as one that Lance writes to the object store directly.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import lance
import pyarrow as pa
from lance import LanceOperation

from omnigraph.errors import NotFound, OutcomeUnknown, StorageError
from omnigraph.store.file_digests import FileDigest, read_stored_file
from omnigraph.store.lance.file_checks import incomplete_file
from omnigraph.store.lance.lance_files import data_file_sizes, transaction_file, version_file
from omnigraph.store.lance.read_back import read_back
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context
from omnigraph.store.sync import SyncBatch
from omnigraph.store.tables.fragment_writer import append_rows

_THREADS = 32
# Manifest files in the scratch folder. Each is the base of the next version of one table.
_KEPT_VERSIONS = 128


class VersionUploads:
    """The versions that a handle builds on the local disk, and their uploads. Safe to share between threads."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._files: ObjectStore | None = None
        self._datasets: OrderedDict[tuple[str, int], lance.LanceDataset] = OrderedDict()
        # The versions that were built here and have not been opened in storage since.
        self._built: set[tuple[str, int]] = set()
        self._uploads: dict[tuple[str, int], list[Future[None]]] = {}

    def find(self, path: str, version: int) -> lance.LanceDataset | None:
        """Return the local copy of a version, which has its metadata and no rows; None if there is none."""
        with self._lock:
            found = self._datasets.get((path, version))
            if found is not None:
                self._datasets.move_to_end((path, version))
            return found

    def wait(self, path: str, version: int) -> bool:
        """Wait until a version is uploaded. Raises the error of its upload.

        Returns whether the version was built here and is opened for the first time. Its files are checked already.
        """
        with self._lock:
            uploads = self._uploads.get((path, version), ())
        for upload in uploads:
            upload.result()
        with self._lock:
            is_built = (path, version) in self._built
            self._built.discard((path, version))
            return is_built

    def base(self, path: str, version: int) -> lance.LanceDataset:
        """Return a local copy of a version to build on. Its manifest file is downloaded if necessary."""
        found = self.find(path, version)
        if found is not None:
            return found
        name = version_file(version)
        content = self._objects.get(f"{path}/{name}").data
        target = self._folder(path) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # Writers of two branches may build on the same version.
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as temporary:
            temporary.write(content)
        Path(temporary.name).rename(target)
        dataset = lance.dataset(str(self._folder(path)), version=version)
        self._keep(path, dataset)
        return dataset

    def append(
        self,
        path: str,
        base: lance.LanceDataset,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        batch: SyncBatch,
    ) -> tuple[int, tuple[FileDigest, ...]]:
        """Build a version with new rows and start its upload; return its number and the digests of its files.

        `batch` waits for the upload. No commit may refer to the version before.
        """
        new = append_rows(base, batches, schema)
        operation = LanceOperation.Update(removed_fragment_ids=[], new_fragments=new)
        transaction = lance.Transaction(base.version, operation)
        dataset = lance.LanceDataset.commit(base, transaction, detached=True)
        names = (version_file(dataset.version), transaction_file(transaction))
        sizes = {**data_file_sizes(new), **dict.fromkeys(names)}
        digests = read_back(self._local(), path, sizes, transaction=names[1])
        self._keep(path, dataset)
        upload = propagate_context(self._upload)
        uploads = [_pool(os.getpid()).submit(upload, path, digest) for digest in digests]
        key = (path, int(dataset.version))
        with self._lock:
            self._built.add(key)
            self._uploads[key] = uploads
        batch.wait_for(uploads)
        return key[1], tuple(digests)

    def _upload(self, path: str, digest: FileDigest) -> None:
        key, file = f"{path}/{digest.name}", self._folder(path) / digest.name
        try:
            self._objects.put(key, file.read_bytes())
            # The manifest file holds the same bytes as the transaction file, which is not read back either.
            if not digest.name.startswith("_transactions/"):
                found, _ = read_stored_file(self._objects, path, digest.name)
                if found != digest:
                    raise incomplete_file(key, f"{found.size} bytes in storage differ from the bytes written")
        except (NotFound, OutcomeUnknown) as error:
            # No commit refers to the file, so that it does not matter whether it exists.
            raise StorageError(f"{key} was not uploaded: {error.message}", kind="transient") from error
        if not digest.name.startswith("_versions/"):
            file.unlink(missing_ok=True)

    def _folder(self, path: str) -> Path:
        return Path(self._local().location.path) / path

    def _local(self) -> ObjectStore:
        """The files of the scratch folder, which is removed with this object."""
        with self._lock:
            if self._files is None:
                scratch = tempfile.mkdtemp(prefix="omnigraph-")
                weakref.finalize(self, _remove_folder, scratch, os.getpid())
                self._files = ObjectStore.open(scratch, durability="os")
            return self._files

    def _keep(self, path: str, dataset: lance.LanceDataset) -> None:
        with self._lock:
            self._datasets[(path, int(dataset.version))] = dataset
            if len(self._datasets) <= _KEPT_VERSIONS:
                return
            old = next(iter(self._datasets))
            if not all(upload.done() for upload in self._uploads.get(old, ())):
                return
            del self._datasets[old]
            self._uploads.pop(old, None)
            self._built.discard(old)
        (self._folder(old[0]) / version_file(old[1])).unlink(missing_ok=True)


def _remove_folder(folder: str, pid: int) -> None:
    # A forked process ends earlier than its parent, which still uses the folder.
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:  # noqa: ARG001 - threads do not survive a fork: a child process needs its own pool
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="omnigraph-upload")

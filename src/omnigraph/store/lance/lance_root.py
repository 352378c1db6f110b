"""The directory of a graph as Lance addresses it: opening, creating and syncing the datasets below it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import lance
import pyarrow as pa
from lance.file import LanceFileSession
from lance.lance import _Session as Session

from omnigraph.store.file_digests import FileDigest, digest_bytes
from omnigraph.store.lance.file_checks import check_complete
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import FILE_FORMAT
from omnigraph.store.lance.read_back import read_back
from omnigraph.store.location import Location
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import LanceCall, LanceRequestCounter, attribute_requests_to
from omnigraph.store.storage_options import StorageOptions, lance_options, resolve_options
from omnigraph.store.sync import AnyPath, Durability, SyncBatch, sync_files, sync_tree

# Every commit adds a version with its files to the cache of a process that writes, and few of them are read again.
_METADATA_CACHE_BYTES: Final = 16 << 20
_INDEX_CACHE_BYTES: Final = 1 << 30


def new_session() -> Session:
    """Return an empty cache of file metadata and index pages, of bounded size."""
    return Session(index_cache_size_bytes=_INDEX_CACHE_BYTES, metadata_cache_size_bytes=_METADATA_CACHE_BYTES)


@dataclass(frozen=True)
class LanceRoot:
    """The root directory of a graph's datasets.

    `local` is the directory on a local disk, where commits must be synced explicitly. An object store makes every
    put durable; `storage` has the options to read its objects with. The files of a graph in memory cannot be read.
    With `verify_reads` files are compared with their recorded digests when they are first read.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)
    local: Path | None = None
    durable: bool = True
    storage: StorageOptions | None = field(default=None, compare=False, repr=False)
    verify_reads: bool = field(default=False, compare=False)
    session: Session = field(default_factory=new_session, compare=False)
    request_counter: LanceRequestCounter = field(
        default_factory=LanceRequestCounter, compare=False, repr=False
    )
    _durable_folders: set[str] = field(default_factory=set, compare=False, repr=False)

    @classmethod
    def at(cls, location: Location, options: StorageOptions, durability: Durability) -> LanceRoot:
        """Return the root at a location. Storage is not accessed."""
        storage = resolve_options(options) if location.scheme == "s3" else None
        return cls(
            uri=location.lance_uri,
            options={} if storage is None else lance_options(storage),
            local=Path(location.path) if location.is_local else None,
            durable=durability == "full",
            storage=storage,
            verify_reads=options.get("verify_reads") == "true",
        )

    @classmethod
    def from_uri(cls, uri: str, options: StorageOptions, durability: Durability) -> LanceRoot:
        """Return the root at the address of a graph. Storage is not accessed."""
        return cls.at(Location.parse(uri), options, durability)

    def __reduce__(self) -> tuple[Any, ...]:
        # Sessions are local to a process, so a pickled root carries the address only.
        members = (self.uri, dict(self.options), self.local, self.durable, self.storage, self.verify_reads)
        return type(self), members

    @cached_property
    def objects(self) -> ObjectStore | None:
        """The objects below the root on an object store; None on a local disk and in memory."""
        return None if self.storage is None else ObjectStore.open(self.uri, self.storage)

    @cached_property
    def files(self) -> ObjectStore | None:
        """The files below the root on a local disk or an object store; None in memory, where only Lance reads."""
        return self.objects if self.local is None else ObjectStore.open(str(self.local))

    def dataset_uri(self, path: str) -> str:
        """Return the address of a dataset below the root."""
        return f"{self.uri.rstrip('/')}/{path}"

    def uncached(self) -> LanceRoot:
        """Return the same root without the cached metadata of this one, to find out what is in storage now."""
        return replace(self, session=new_session())

    def open(self, path: str, version: int | None = None) -> lance.LanceDataset:
        """Open a dataset, at its latest version unless one is given; `NotFound` when it does not exist."""
        attribute_requests_to(self.request_counter)
        with translate_lance_errors(f"open {path}"):
            dataset = lance.dataset(
                self.dataset_uri(path),
                version=version,
                storage_options=dict(self.options) or None,
                session=self.session,
            )
            self.request_counter.add_source("opened", dataset.io_stats_snapshot)
            return dataset

    def create(self, path: str, data: pa.Table) -> lance.LanceDataset:
        """Create a dataset.

        The path must be unique to this caller: of two concurrent creators, one overwrites the dataset of the other.
        """
        attribute_requests_to(self.request_counter)
        with LanceCall():
            dataset = lance.write_dataset(
                data,
                self.dataset_uri(path),
                mode="create",
                data_storage_version=FILE_FORMAT,
                storage_options=dict(self.options) or None,
                session=self.session,
            )
            self.request_counter.add_source("created", dataset.io_stats_snapshot)
            return dataset

    def file_session(self, path: str) -> LanceFileSession:
        """Return a session that writes single Lance files into the data directory of a dataset."""
        return self.folder_session(f"{path}/data")

    def folder_session(self, folder: str) -> LanceFileSession:
        """Return a session that reads and writes single Lance files in a directory below the root."""
        return LanceFileSession(self.dataset_uri(folder), storage_options=dict(self.options) or None)

    def sync_all(self, path: str) -> None:
        """Make all files of a new dataset durable."""
        if self.local is not None and self.durable:
            folder = self.local / path
            # A process that was killed may have left temporary files, whose names begin with a dot.
            files = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")]
            self.sync(path, [str(file.relative_to(folder)) for file in files])

    def sync(self, path: str, names: Iterable[str]) -> None:
        """Check that files of a dataset are complete, and make them and their directory entries durable.

        Only a local disk needs it. Raises `StorageError`; no commit may refer to the files then.
        """
        if self.local is None:
            return
        files = [Path(f"{self.local}/{path}/{name}") for name in names]
        check_complete(files)
        self._sync(files)

    def sync_checked(self, path: str, names: Iterable[str]) -> None:
        """Make files of a dataset durable that were found to be complete when they were written."""
        if self.local is not None and self.durable:
            self._sync([f"{self.local}/{path}/{name}" for name in names])

    def seal(
        self, path: str, sizes: Mapping[str, int | None], transaction: str | None = None
    ) -> tuple[FileDigest, ...]:
        """Check new files of a table, make them durable, and return their digests.

        While a `SyncBatch` collects files, they are added to it and become durable later.
        Every file that a commit introduces passes through here. `sizes` has the size that the writer of each file
        reported, if it reported one. Files on an object store are read back. The files of a graph in memory have no
        digests, because only Lance can read them. `transaction` is the transaction file of a version among the
        files of a local disk. Raises `StorageError`; no commit may refer to the files then.
        """
        digests = [] if self.files is None else read_back(self.files, path, sizes, transaction)
        self._make_durable(path, sizes)
        return tuple(digests)

    def seal_written(self, path: str, files: Mapping[str, bytes]) -> tuple[FileDigest, ...]:
        """Seal new files of a table on a local disk, given their content, whose writer reported no error."""
        self._make_durable(path, files)
        return tuple(digest_bytes(name, content) for name, content in files.items())

    def _make_durable(self, path: str, names: Iterable[str]) -> None:
        if self.local is not None and self.durable:
            files = [f"{self.local}/{path}/{name}" for name in names]
            batch = SyncBatch.current()
            if batch is None:
                self._sync(files)
            else:
                batch.add(self._sync, files)

    def seal_version(
        self, path: str, sizes: Mapping[str, int | None], transaction: str, version: str
    ) -> tuple[FileDigest, ...]:
        """Seal a new version: its new files, its transaction file and its manifest file."""
        if self.local is None:
            # The manifest file has a copy of the transaction.
            return self.seal(path, {**sizes, version: None})
        return self.seal(path, {**sizes, transaction: None, version: None}, transaction)

    def _sync(self, files: Sequence[AnyPath]) -> None:
        assert self.local is not None
        if not self.durable:
            return
        folders = {os.path.dirname(file) for file in files}  # noqa: PTH120 - faster than path objects
        if folders <= self._durable_folders:
            sync_files(files)
        else:
            # A folder that was not synced before may be new. Its own name and those above must be durable too.
            sync_tree(self.local.parent, map(Path, files))
            self._durable_folders.update(folders)

"""Checks of the files of a table version when it is first opened for reading.

On a local disk the size of every data file is compared with the size in the version: one `stat` for each new file.
With the storage option `verify_reads` the content of every file that the version needs is compared with the digest
that `__manifest` holds. A handle checks each file once. A missing file is not an error here: garbage collection may
have removed the version, and Lance reports it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import lance
from cachetools import LRUCache
from lance.fragment import FragmentMetadata

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.file_digests import FileDigest, read_stored_file
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import data_file_sizes, version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.lance.version_manifest import StoredFragment
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.request_counts import propagate_context
from omnigraph.store.sync import storage_error_from_os
from omnigraph.store.tables.version_files import fragment_files, index_folders

# Returns the recorded digests by table path and file name.
RecordedDigests: TypeAlias = Callable[[], Mapping[tuple[str, str], FileDigest]]

# Bounds the memory of a handle. A file that is forgotten is checked again.
_REMEMBERED_FILES = 500_000
_THREADS = 8


class ReadChecks:
    """The checks of one handle. Safe to share between threads.

    `recorded` returns the digests; by default they are read from the manifest of the root when first needed.
    `fragments` limits the checks to the files of some fragments, for a process that reads no others.
    """

    def __init__(
        self,
        root: LanceRoot,
        recorded: RecordedDigests | None = None,
        fragments: Collection[int] | None = None,
    ) -> None:
        self._root = root
        self._recorded = recorded
        self._fragments = fragments
        self._lock = threading.Lock()
        self._checked: LRUCache[tuple[str, str], bool] = LRUCache(_REMEMBERED_FILES)

    def check(
        self, path: str, dataset: lance.LanceDataset, describe: Callable[[], Sequence[FragmentMetadata]]
    ) -> str | None:
        """Check the files of an opened version that were not checked before; `StorageError` for a damaged one.

        `describe` returns the fragments of the version. Rows can be read without an index. The problem of a damaged
        index file is returned, None if there is none.
        """
        if self._root.files is None or (self._root.local is None and not self._root.verify_reads):
            return None
        fragments = describe()
        if self._fragments is not None:
            fragments = [item for item in fragments if item.id in self._fragments]
        if self._root.verify_reads:
            return self._check_digests(path, dataset, fragments)
        self._check_new_sizes(path, data_file_sizes(fragments))
        return None

    @property
    def are_complete(self) -> bool:
        """Whether the files of all fragments are checked."""
        return self._fragments is None

    def check_sizes(self, path: str, fragments: Iterable[StoredFragment]) -> None:
        """Check the sizes of the data files of a version that were not checked before, like `check`."""
        self._check_new_sizes(
            path,
            {
                f"data/{name}": size
                for fragment in fragments
                for name, size in zip(fragment.file_names, fragment.sizes, strict=True)
            },
        )

    def _check_new_sizes(self, path: str, stated: Mapping[str, int | None]) -> None:
        sizes = {name: size for name, size in stated.items() if size is not None}
        new = self._new(path, sizes)
        for name in new:
            self._check_size(path, name, sizes[name])
        self._remember(path, new)

    def _check_digests(
        self, path: str, dataset: lance.LanceDataset, fragments: Sequence[FragmentMetadata]
    ) -> str | None:
        index_problem = None
        files = {file.name: file.size for file in fragment_files(fragments)}
        new = self._new(path, [*files, version_file(dataset.version)])
        self._verify(path, new, files)
        # Lance may open index files to describe them, so the other files are checked first.
        if self._fragments is None:
            indexes = self._new(path, self._index_files(path, dataset))
            try:
                self._verify(path, indexes, {})
                new += indexes
            except StorageError as error:
                if error.details.get("reason") != "damaged":
                    raise
                index_problem = error.message
        self._remember(path, new)
        return index_problem

    def _remember(self, path: str, names: Iterable[str]) -> None:
        with self._lock:
            self._checked.update(((path, name), True) for name in names)

    def _new(self, path: str, names: Iterable[str]) -> list[str]:
        with self._lock:
            return [name for name in names if (path, name) not in self._checked]

    def _index_files(self, path: str, dataset: lance.LanceDataset) -> Iterator[str]:
        with translate_lance_errors(f"open {path}"):
            folders = index_folders(dataset)
        assert self._root.files is not None
        for folder in folders:
            for item in self._root.files.list(f"{path}/{folder}"):
                yield item.key.removeprefix(f"{path}/")

    def _check_size(self, path: str, name: str, size: int | None) -> None:
        assert self._root.local is not None
        file = self._root.local / path / name
        try:
            actual = file.stat().st_size
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error_from_os(error, f"cannot read {file}") from error
        if size is not None and actual != size:
            raise _damaged(path, name, f"{actual} bytes in storage, {size} bytes were written")

    def _verify(self, path: str, names: Collection[str], sizes: Mapping[str, int | None]) -> None:
        if not names:
            return
        recorded = self._digests()

        def verify(name: str) -> None:
            expected = recorded.get((path, name))
            if expected is None:
                # Written before format 2, and `verify --record` has not run since.
                if self._root.local is not None:
                    self._check_size(path, name, sizes.get(name))
                return
            actual = self._digest(path, name)
            if actual is not None and actual.size != expected.size:
                raise _damaged(
                    path, name, f"{actual.size} bytes in storage, {expected.size} bytes were written"
                )
            if actual is not None and actual.digest != expected.digest:
                problem = f"its digest is {actual.digest}, {expected.digest} was recorded"
                raise _damaged(path, name, problem)

        if len(names) == 1:
            verify(next(iter(names)))
            return
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="omnigraph-verify-reads") as threads:
            for _ in threads.map(propagate_context(verify), names):
                pass

    def _digests(self) -> Mapping[tuple[str, str], FileDigest]:
        if self._recorded is None:
            manifest = Manifest.open(self._root)
            self._recorded = lambda: manifest.recorded_files(manifest.refresh())
        return self._recorded()

    def _digest(self, path: str, name: str) -> FileDigest | None:
        """Return the digest of the stored file, or None if it is missing."""
        assert self._root.files is not None
        try:
            return read_stored_file(self._root.files, path, name)[0]
        except NotFound:
            return None


def _damaged(path: str, name: str, problem: str) -> StorageError:
    return StorageError(
        f"{path}/{name} is damaged: {problem}",
        kind="permanent",
        details={"reason": "damaged", "dataset": path, "file": f"{path}/{name}", "problem": problem},
        hint="run `omnigraph verify` for the extent of the damage",
    )

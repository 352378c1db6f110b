"""Copying of table files: which files a copy lacks, the transfer, and the check of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock, Semaphore
from typing import TypeVar

from omnigraph.errors import NotFound, StorageError
from omnigraph.graph.progress import Progress
from omnigraph.store.file_digests import FileDigest, digest_chunks
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.objects.backend import Writable
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context
from omnigraph.store.tables.table_files import TableFiles, TableListing
from omnigraph.store.tables.tables import EMPTY_VERSION

T = TypeVar("T")
R = TypeVar("R")

# Each transfer holds one chunk of 8 MiB, and up to 5 parts of 16 MiB of a large object that it uploads.
WORKERS = 4


class HeadDataMissing(Exception):
    """A table version of a branch head disappeared: the branch moved, and the version was removed."""


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file to copy. `key` is relative to the graph."""

    key: str
    size: int
    is_version: bool = False


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The files of one table that a copy needs: those to copy, those that exist, and those of them to trust.

    Files that exist are trusted if an earlier run has published them. The others may be left from an interrupted
    run.
    """

    path: str
    missing: tuple[CopiedFile, ...]
    present: tuple[CopiedFile, ...]
    untrusted: tuple[CopiedFile, ...]


@dataclass(slots=True)
class CopyCounts:
    """The number and size of files copied, and of files that the target had."""

    files_copied: int = 0
    bytes_copied: int = 0
    files_skipped: int = 0
    bytes_skipped: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False)

    def add_copied(self, size: int) -> int:
        """Count a copied file; return the bytes copied so far."""
        with self._lock:
            self.files_copied += 1
            self.bytes_copied += size
            return self.bytes_copied

    def add_skipped(self, size: int) -> None:
        """Count a file that the target had."""
        with self._lock:
            self.files_skipped += 1
            self.bytes_skipped += size


class FileCopier:
    """The transfer of files from one storage to another, with several threads.

    `digests` has the recorded digests by table path and file name.
    """

    def __init__(
        self,
        source: ObjectStore,
        target: ObjectStore,
        digests: Mapping[tuple[str, str], FileDigest],
        progress: Progress | None,
    ) -> None:
        self._source = source
        self._target = target
        self._digests = digests
        self._progress = progress
        # Tables are copied concurrently, each with several threads. This bounds the transfers of all of them.
        self._transfers = Semaphore(WORKERS)
        self.counts = CopyCounts()
        self.copied: set[str] = set()

    def copy(self, files: Iterable[CopiedFile]) -> None:
        """Copy files. A file appears in the target complete or not at all.

        Raises `NotFound` for a file that does not exist any more, and `StorageError` for one that has another size.
        """
        # The largest first, so that no thread is left with a large file at the end.
        run_parallel(self._copy, sorted(files, key=lambda file: -file.size))

    def read_back(self, files: Iterable[CopiedFile]) -> list[CopiedFile]:
        """Read files of the target; return those whose content is not the recorded one."""
        recorded = [file for file in files if self._recorded(file) is not None]
        return [
            file
            for file, is_equal in zip(recorded, run_parallel(self._is_equal, recorded), strict=True)
            if not is_equal
        ]

    def _copy(self, file: CopiedFile) -> None:
        with self._transfers, self._target.open_write(file.key) as out:
            found = digest_chunks(file.key, _written(self._source.read_chunks(file.key), out))
            recorded = self._recorded(file)
            if found.size != file.size or recorded not in (None, found.digest):
                # An error in this block leaves no object.
                raise _damaged(file)
        self.copied.add(file.key)
        done = self.counts.add_copied(file.size)
        if self._progress is not None:
            self._progress("copy", done)

    def _is_equal(self, file: CopiedFile) -> bool:
        try:
            found = digest_chunks(file.key, self._target.read_chunks(file.key))
        except NotFound:
            return False
        return found.digest == self._recorded(file)

    def _recorded(self, file: CopiedFile) -> str | None:
        folder, _, rest = file.key.partition("/")
        table, _, name = rest.partition("/")
        recorded = self._digests.get((f"{folder}/{table}", name))
        return None if recorded is None else recorded.digest


def _written(chunks: Iterable[bytes], out: Writable) -> Iterator[bytes]:
    for chunk in chunks:
        out.write(chunk)
        yield chunk


def _damaged(file: CopiedFile) -> StorageError:
    return StorageError(
        f"{file.key} is damaged: its content is not the one that was written",
        details={"file": file.key},
        hint="run `omnigraph verify` for the extent of the damage, and `omnigraph repair` to repair the graph",
    )


def plan_table(
    source: TableFiles,
    target: TableFiles,
    path: str,
    versions: Mapping[int, bool],
    published_at: int | None,
) -> TablePlan:
    """Compare a table with its copy, with one listing of each.

    A file is present if the copy has one of the same name and size. `published_at` is the time of the last
    successful run. Raises `HeadDataMissing`.
    """
    listing, copy = source.table(path), target.table(path)
    stored = {file.name: file for file in listing.files}
    names = _needed_names(source, listing, versions, copy.has_version(EMPTY_VERSION))
    existing = {file.name: file for file in copy.files}
    missing: list[CopiedFile] = []
    present: list[CopiedFile] = []
    untrusted: list[CopiedFile] = []
    for name in sorted(names):
        file = stored[name]
        item = CopiedFile(f"{path}/{name}", file.size, file.is_version)
        twin = existing.get(name)
        if twin is None or twin.size != file.size:
            missing.append(item)
            continue
        present.append(item)
        if published_at is None or twin.modified >= published_at:
            untrusted.append(item)
    return TablePlan(path, tuple(missing), tuple(present), tuple(untrusted))


def _needed_names(
    files: TableFiles, listing: TableListing, versions: Mapping[int, bool], has_empty_version: bool
) -> set[str]:
    needed: set[str] = set()
    for part in run_parallel(lambda item: _complete_version(files, listing, *item), versions.items()):
        needed |= part
    if not has_empty_version:
        # Lance needs the empty version that every table starts with, to open the table.
        needed |= listing.select(files.needed_by(listing.path, EMPTY_VERSION))
        needed |= {file.name for file in listing.files if file.is_head_lineage}
    return needed


def _complete_version(files: TableFiles, listing: TableListing, version: int, required: bool) -> set[str]:
    """Return the files of a version; none if garbage collection has removed the version."""
    path = listing.path
    if listing.has_version(version):
        try:
            needed = files.needed_by(path, version)
        except NotFound:
            if files.has_version(path, version):
                raise
        else:
            found = listing.select(needed)
            absent = needed.files - found
            if not absent:
                return found
            if files.has_version(path, version):
                raise _incomplete(path, version, sorted(absent))
    if required:
        raise HeadDataMissing(f"{path}/{version_file(version)}")
    return set()


def _incomplete(path: str, version: int, absent: Sequence[str]) -> StorageError:
    more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
    return StorageError(
        f"{path}/{absent[0]}{more} does not exist, but version {version} needs it",
        details={"path": path, "version": str(version), "files": list(absent[:100])},
        hint="the graph is damaged: run `omnigraph verify`",
    )


def check_sizes(target: TableFiles, plans: Iterable[TablePlan]) -> None:
    """List the tables of a copy again and check that every file exists in its size. Raises `StorageError`."""

    def check(plan: TablePlan) -> None:
        found = {f"{plan.path}/{file.name}": file.size for file in target.table(plan.path).files}
        for file in (*plan.missing, *plan.present):
            size = found.get(file.key)
            if size != file.size:
                raise not_verified(file, "it does not exist" if size is None else f"it has {size} bytes")

    run_parallel(check, [plan for plan in plans if plan.missing or plan.untrusted])


def not_verified(file: CopiedFile, problem: str) -> StorageError:
    """Return the error of a copied file that is not as expected."""
    return StorageError(
        f"the copy of {file.key} is wrong: expected {file.size} bytes, {problem}",
        details={"file": file.key, "expected": file.size},
        hint="nothing was published; check the storage of the target, then run the command again",
    )


def run_parallel(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Run a function on items with several threads; return the results in order, or raise the first error."""
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="omnigraph-copy") as pool:
        futures = [pool.submit(propagate_context(work), item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise

"""Copying of table files: which files a copy lacks, the transfer, and the check of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock, Semaphore
from typing import TypeAlias, TypeVar

from omnigraph.errors import NotFound, StorageError
from omnigraph.graph.progress import Progress
from omnigraph.store.file_digests import FileDigest, digest_chunks
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.objects.backend import Writable
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context
from omnigraph.store.tables.table_files import TableFiles, TableListing, folder_of
from omnigraph.store.tables.tables import EMPTY_VERSION

# Called with a file of the source and its problem, to leave the file out. Without it a damaged file is an error.
OnDamage: TypeAlias = Callable[[str, str], None]
# The names of the recorded files in a directory, given the path of the table and the name of the directory.
RecordedIn: TypeAlias = Callable[[str, str], Sequence[str]]
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

    `digests` has the recorded digests by table path and file name. With `skip_damaged`, damaged table files are
    left out and collected in `damaged`.
    """

    def __init__(
        self,
        source: ObjectStore,
        target: ObjectStore,
        digests: Mapping[tuple[str, str], FileDigest],
        progress: Progress | None,
        *,
        skip_damaged: bool = False,
    ) -> None:
        self._source = source
        self._target = target
        self._digests = digests
        self._by_folder = _by_folder(digests)
        self._progress = progress
        # Tables are copied concurrently, each with several threads. This bounds the transfers of all of them.
        self._transfers = Semaphore(WORKERS)
        self.counts = CopyCounts()
        self.copied: set[str] = set()
        self.damaged: dict[str, str] = {}
        self._skip_damaged = skip_damaged

    @property
    def on_damage(self) -> OnDamage | None:
        """What to do about damaged files that are found before they are copied."""
        return self.damaged.__setitem__ if self._skip_damaged else None

    def recorded_in(self, path: str, folder: str) -> Sequence[str]:
        """Return the names of files that have a recorded digest and belong into a directory of a table."""
        return self._by_folder.get((path, folder), ())

    def copy(self, files: Iterable[CopiedFile]) -> None:
        """Copy files. A file appears in the target complete or not at all.

        Raises `NotFound` for a file that does not exist any more, and `StorageError` for one that has another size.
        """
        # The largest first, so that no thread is left with a large file at the end.
        run_parallel(self._copy, sorted(files, key=lambda file: -file.size))

    def copy_intact(self, files: Iterable[CopiedFile]) -> None:
        """Copy files of tables, as `copy` does, and leave out damaged ones if they are to be skipped."""

        def copy(file: CopiedFile) -> None:
            try:
                self._copy(file)
            except _DamagedFile as error:
                if not self._skip_damaged:
                    raise
                self.damaged[file.key] = error.problem

        run_parallel(copy, sorted(files, key=lambda file: -file.size))

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
            chunks = _readable(self._source.read_chunks(file.key), file)
            found = digest_chunks(file.key, _written(chunks, out))
            recorded = self._recorded(file)
            if found.size != file.size or recorded not in (None, found.digest):
                # An error in this block leaves no object.
                raise _DamagedFile(file, "its content is not the one that was written")
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


def _by_folder(digests: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Sequence[str]]:
    """Group the names of files in directories of indices and blobs by table and directory."""
    found: dict[tuple[str, str], list[str]] = {}
    for path, name in digests:
        folder = folder_of(name)
        if folder is not None:
            found.setdefault((path, folder), []).append(name)
    return found


def _written(chunks: Iterable[bytes], out: Writable) -> Iterator[bytes]:
    for chunk in chunks:
        out.write(chunk)
        yield chunk


class _DamagedFile(StorageError):
    """A file of the source that cannot be read, or that is not as it was written."""

    def __init__(self, file: CopiedFile, problem: str) -> None:
        self.problem = problem
        super().__init__(
            f"{file.key} is damaged: {problem}",
            kind="permanent",
            details={"file": file.key},
            hint="run `omnigraph verify` for the extent of the damage, and `omnigraph repair` to repair the graph, "
            "or use `--skip-damaged` (`skip_damaged=True`) to copy everything else",
        )


def _readable(chunks: Iterable[bytes], file: CopiedFile) -> Iterator[bytes]:
    """Yield the chunks of a file of the source; raise `_DamagedFile` if the storage cannot read it."""
    try:
        yield from chunks
    except StorageError as error:
        if error.kind != "permanent":
            raise
        raise _DamagedFile(file, error.message) from error


def plan_table(
    source: TableFiles,
    target: TableFiles,
    path: str,
    versions: Mapping[int, bool],
    published_at: int | None,
    recorded_in: RecordedIn,
    on_damage: OnDamage | None = None,
    skip_heads: bool = False,
) -> TablePlan:
    """Compare a table with its copy, with one listing of each.

    A file is present if the copy has one of the same name and size. `published_at` is the time of the last
    successful run. `recorded_in` gives the files that a directory of indices or blobs must have. Raises
    `HeadDataMissing`, except with `skip_heads`, and `StorageError` without `on_damage` if a version cannot be read
    or lacks a file.
    """
    listing, copy = source.table(path), target.table(path)
    stored = {file.name: file for file in listing.files}
    names = _needed_names(
        _VersionFiles(source, listing, recorded_in, on_damage, skip_heads),
        versions,
        copy.has_version(EMPTY_VERSION),
    )
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
    versions_of: _VersionFiles, versions: Mapping[int, bool], has_empty_version: bool
) -> set[str]:
    needed: set[str] = set()
    for part in run_parallel(lambda item: versions_of.complete(*item), versions.items()):
        needed |= part
    if not has_empty_version:
        # Lance needs the empty version that every table starts with, to open the table.
        needed |= versions_of.existing(EMPTY_VERSION)
        needed |= {file.name for file in versions_of.listing.files if file.is_head_lineage}
    return needed


@dataclass(frozen=True)
class _VersionFiles:
    """The files of the versions of one table of the source."""

    files: TableFiles
    listing: TableListing
    recorded_in: RecordedIn
    on_damage: OnDamage | None
    skip_heads: bool

    def existing(self, version: int) -> set[str]:
        """Return the files of a version that exist."""
        try:
            return self.listing.select(self.files.needed_by(self.listing.path, version))
        except (NotFound, StorageError) as error:
            if self.on_damage is None or (isinstance(error, StorageError) and error.is_refusal):
                raise
            self.on_damage(f"{self.listing.path}/{version_file(version)}", error.message)
            return set()

    def complete(self, version: int, required: bool) -> set[str]:
        """Return the files of a version; none if garbage collection has removed the version."""
        path = self.listing.path
        if self.listing.has_version(version):
            try:
                needed = self.files.needed_by(path, version)
            except NotFound:
                if self.files.has_version(path, version):
                    raise
            except StorageError as error:
                if self.on_damage is None or error.is_refusal:
                    raise
                self.on_damage(f"{path}/{version_file(version)}", error.message)
                return set()
            else:
                found = self.listing.select(needed)
                # A version names its directories of indices and blobs, and not the files in them.
                inside = (name for folder in needed.folders for name in self.recorded_in(path, folder))
                absent = sorted({*needed.files, *inside} - found)
                if not absent:
                    return found
                if self.files.has_version(path, version):
                    self._report_absent(version, absent)
                    return found
        if required and not (self.skip_heads and self.on_damage is not None):
            raise HeadDataMissing(f"{path}/{version_file(version)}")
        if required and self.on_damage is not None:
            self.on_damage(f"{path}/{version_file(version)}", "it does not exist")
        return set()

    def _report_absent(self, version: int, absent: Sequence[str]) -> None:
        path = self.listing.path
        if self.on_damage is None:
            raise _incomplete(path, version, absent)
        for name in absent:
            self.on_damage(f"{path}/{name}", "it does not exist")


def _incomplete(path: str, version: int, absent: Sequence[str]) -> StorageError:
    others = len(absent) - 1
    missing = f"{path}/{absent[0]} does not exist, but version {version} needs it"
    more = f" (and {others} more {'file' if others == 1 else 'files'})" if others else ""
    return StorageError(
        missing + more,
        details={"path": path, "version": str(version), "files": list(absent[:100])},
        hint="the graph is damaged: run `omnigraph verify`, or use `--skip-damaged` (`skip_damaged=True`) to copy "
        "everything else",
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

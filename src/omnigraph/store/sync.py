"""Making local files durable, so that they survive a power failure. Neither Lance nor obstore syncs its files.

A rename is durable only when three things are synced: the content of the file, the directory that holds its
name, and every directory above it that is new. All files of one step are synced concurrently, so that the disk
flushes its cache once or twice instead of once per file. Object stores make every put durable and do not need
this module.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

from omnigraph.errors import InvalidInput, StorageError, StorageErrorKind

__all__ = [
    "Durability",
    "SyncBatch",
    "kind_of_errno",
    "make_directories",
    "storage_error_from_os",
    "sync_directory",
    "sync_files",
    "sync_tree",
]

Durability: TypeAlias = Literal["full", "os"]
"""`full` syncs before a write is acknowledged; `os` lets the operating system choose when to write to disk."""

AnyPath: TypeAlias = str | Path
# The operating system is busy or short of a resource that becomes available again.
_TRANSIENT = frozenset(
    {errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOLCK, errno.ETIMEDOUT}
)
# The address, or the permissions of the process, are wrong.
_CONFIGURATION = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EINVAL,
        errno.ENOTSUP,
    }
)
# The disk is full, read-only or broken, or the process has exceeded a limit.
_PERMANENT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EMLINK})
_NOT_FOUND = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ESTALE})
# The disk flushes its cache for all threads that wait at the same time.
_SYNC_THREADS = 16
# On macOS, fsync does not flush the cache of the drive.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class SyncBatch:
    """Staged files that become durable later, so that the files of several writes are synced in one pass.

    On an object store, `defers_uploads` allows to build table versions on the local disk and to upload them in the
    background. No commit may refer to the files before `flush` returns.

    >>> synced = []
    >>> batch = SyncBatch()
    >>> with batch.collecting():
    ...     SyncBatch.current().add(synced.extend, [Path("a")])
    ...     SyncBatch.current().add(synced.extend, [Path("b")])
    >>> len(synced), batch.flush(), len(synced)
    (0, None, 2)
    """

    def __init__(self, *, defers_uploads: bool = False) -> None:
        self.defers_uploads = defers_uploads
        self._uploads: list[Future[None]] = []
        self._files: list[AnyPath] = []
        self._sync: Callable[[Sequence[AnyPath]], None] | None = None

    @staticmethod
    def current() -> SyncBatch | None:
        """Return the batch that the present context collects files in."""
        return _BATCH.get()

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Add the files that are staged in the body, in this thread, instead of syncing them."""
        token = _BATCH.set(self)
        try:
            yield
        finally:
            _BATCH.reset(token)

    def add(self, sync: Callable[[Sequence[AnyPath]], None], files: Iterable[AnyPath]) -> None:
        """Add files of a graph. `sync` makes files of that graph durable."""
        self._sync = sync
        self._files.extend(files)

    def wait_for(self, uploads: Iterable[Future[None]]) -> None:
        """Add uploads that have begun."""
        self._uploads.extend(uploads)

    def add_all(self, other: SyncBatch) -> None:
        """Add the files and uploads of another batch of the same graph."""
        self.wait_for(other._uploads)
        if other._sync is not None:
            self.add(other._sync, other._files)

    def start(self) -> Future[None]:
        """Begin to make all files durable; the result is that of `flush`. Add nothing until it is there."""
        if self._files or self._uploads:
            return _flush_pool(os.getpid()).submit(self.flush)
        nothing: Future[None] = Future()
        nothing.set_result(None)
        return nothing

    def flush(self) -> None:
        """Make all files durable and wait for all uploads. Raises the errors of `sync_files` and of an upload."""
        if self._sync is not None and self._files:
            self._sync(self._files)
            self._files = []
        wait(self._uploads)
        for upload in self._uploads:
            upload.result()
        self._uploads = []


_BATCH: ContextVar[SyncBatch | None] = ContextVar("omnigraph-sync-batch", default=None)


def sync_files(paths: Iterable[AnyPath]) -> None:
    """Make files and their directory entries durable. Each file and each directory is synced once.

    Raises `StorageError` when one cannot be synced. The files remain; whether they would survive a power failure is
    then unknown.
    """
    # Strings, because every commit syncs a dozen files and path objects are slow.
    files = list(dict.fromkeys(str(path) for path in paths))
    _sync_all([*files, *dict.fromkeys(map(os.path.dirname, files))])


def sync_tree(root: Path, new_files: Iterable[Path]) -> None:
    """Make new files below `root` durable, and every directory from theirs up to `root` itself.

    Use it for files in directories that may be new: a synced file is lost when the name of its directory was never
    synced. Each file and directory is synced once. Raises the same errors as `sync_files`.
    """
    files = list(dict.fromkeys(new_files))
    directories: dict[Path, None] = {}
    for path in files:
        if not path.is_relative_to(root):
            raise InvalidInput(f"cannot sync {path}: it is not below {root}")
        directory = path.parent
        while directory not in directories:
            directories[directory] = None
            if directory == root:
                break
            directory = directory.parent
    _sync_all([*files, *directories])


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable. Raises the same errors as `sync_files`."""
    _sync(path)


def make_directories(path: Path, durability: Durability = "full") -> None:
    """Create a directory and its parents. Several processes may create the same directory.

    With `full`, the names of the new directories are durable on return. A failure leaves the directories that were
    created, which are empty.
    """
    missing: list[Path] = []
    directory = path
    while not directory.is_dir() and directory != directory.parent:
        missing.append(directory)
        directory = directory.parent
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error_from_os(error, f"cannot create directory {path}") from error
    if durability == "full":
        for directory in missing:
            _sync(directory.parent)


def storage_error_from_os(error: OSError, message: str) -> StorageError:
    """Return a `StorageError` for an error of the operating system; transient when a later attempt may succeed."""
    reason = error.strerror or type(error).__name__
    return StorageError(
        f"{message}: {reason}", kind=kind_of_errno(error.errno), details={"errno": error.errno}
    )


def kind_of_errno(number: int | None) -> StorageErrorKind:
    """Return the kind of a `StorageError` for an error number of the operating system.

    >>> kind_of_errno(errno.ENOSPC), kind_of_errno(errno.EACCES), kind_of_errno(errno.EAGAIN)
    ('permanent', 'configuration', 'transient')
    """
    if number in _TRANSIENT:
        return "transient"
    if number in _CONFIGURATION:
        return "configuration"
    if number in _PERMANENT:
        return "permanent"
    return "not_found" if number in _NOT_FOUND else "unknown"


def _sync_all(paths: Sequence[AnyPath]) -> None:
    # Every thread syncs a part of the paths, and the present thread one of the parts.
    parts = [paths[start::_SYNC_THREADS] for start in range(min(len(paths), _SYNC_THREADS))]
    futures = [_pool(os.getpid()).submit(_sync_each, part) for part in parts[1:]]
    try:
        for part in parts[:1]:
            _sync_each(part)
    finally:
        # Wait for all of them, so that none is still running when the caller handles a failure.
        errors = [error for error in (item.exception() for item in futures) if error is not None]
    if errors:
        raise errors[0]


def _sync_each(paths: Sequence[AnyPath]) -> None:
    for path in paths:
        _sync(path)


@lru_cache(maxsize=1)
def _flush_pool(pid: int) -> ThreadPoolExecutor:  # noqa: ARG001 - see `_pool`; its threads wait for those of the other
    return ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="omnigraph-flush")


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:  # noqa: ARG001 - threads do not survive a fork: a child process needs its own pool
    return ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="omnigraph-sync")


def _sync(path: AnyPath) -> None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _FULL_SYNC is None:
                os.fsync(handle)
            else:
                fcntl.fcntl(handle, _FULL_SYNC)
        finally:
            os.close(handle)
    except OSError as error:
        raise storage_error_from_os(error, f"cannot sync {path}") from error

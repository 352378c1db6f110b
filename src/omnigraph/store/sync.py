"""Making local files survive a power failure, which neither Lance nor obstore does.

A rename is only durable when three things were synced: the file's content, the folder that holds its name, and
every folder above that was made on the way. What belongs to one step is synced at the same time: the disk then
needs one or two turns for all of it instead of one for each. Object stores are durable by their put, so nothing
here concerns them.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

from omnigraph.errors import InvalidInput, StorageError

__all__ = [
    "Durability",
    "make_directories",
    "storage_error_from_os",
    "sync_directory",
    "sync_files",
    "sync_tree",
]

Durability: TypeAlias = Literal["full", "os"]
"""`full` syncs before a write is acknowledged; `os` leaves the moment to the operating system."""

# What the system says when it is merely busy or out of something that comes back.
_TRANSIENT = frozenset(
    {errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOLCK, errno.ETIMEDOUT}
)
_SYNCING = 8
# On macOS a plain fsync stops at the drive's cache.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def sync_files(paths: Iterable[Path]) -> None:
    """Make files and their names durable: each file and each folder that holds one, once.

    Raises `StorageError` when one cannot be synced; the files stay as they are, and whether they would
    survive a power failure is then unknown.
    """
    files = list(dict.fromkeys(paths))
    _sync_all([*files, *dict.fromkeys(path.parent for path in files)])


def sync_tree(root: Path, new_files: Iterable[Path]) -> None:
    """Make new files below `root` durable, with every folder from theirs up to `root` itself.

    For files in folders that may be new as well: a synced file in a folder whose own name was never synced is
    lost with that folder. Each is synced once. Fails as `sync_files` does.
    """
    files = list(dict.fromkeys(new_files))
    folders: dict[Path, None] = {}
    for path in files:
        if not path.is_relative_to(root):
            raise InvalidInput(f"{path} is not below {root}")
        folder = path.parent
        while folder not in folders:
            folders[folder] = None
            if folder == root:
                break
            folder = folder.parent
    _sync_all([*files, *folders])


def sync_directory(path: Path) -> None:
    """Make the names in a folder durable, after any change to them. Fails as `sync_files` does."""
    _sync(path)


def make_directories(path: Path, durability: Durability = "full") -> None:
    """Make a folder and those above it, safe against others doing the same.

    With `full`, the names of the new folders are durable when this returns. A failure leaves the folders
    that could be made, which are empty and harmless.
    """
    missing: list[Path] = []
    folder = path
    while not folder.is_dir() and folder != folder.parent:
        missing.append(folder)
        folder = folder.parent
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error_from_os(error, f"cannot make folder {path}") from error
    if durability == "full":
        for folder in missing:
            _sync(folder.parent)


def storage_error_from_os(error: OSError, message: str) -> StorageError:
    """What the operating system said, as our error; transient only where waiting helps by itself."""
    reason = error.strerror or type(error).__name__
    return StorageError(
        f"{message}: {reason}", transient=error.errno in _TRANSIENT, details={"errno": error.errno}
    )


def _sync_all(paths: Sequence[Path]) -> None:
    if len(paths) < 2:
        for path in paths:
            _sync(path)
        return
    waiting = [_pool(os.getpid()).submit(_sync, path) for path in paths]
    # Every one is waited for, so that none is still under way when the caller hears of a failure.
    errors = [error for error in (item.exception() for item in waiting) if error is not None]
    if errors:
        raise errors[0]


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:  # noqa: ARG001 - threads do not survive a fork: a child gets its own
    return ThreadPoolExecutor(_SYNCING, thread_name_prefix="omnigraph-sync")


def _sync(path: Path) -> None:
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

"""Objects as files, written with system calls.

obstore has a local store, but it neither syncs its writes nor supports a conditional replace. This module therefore
implements the operations itself:

- **put**: write a temporary file beside the target, sync it, rename it to the target, sync the directory;
- **create if absent**: the same with a hard link instead of the rename, which fails when the name exists;
- **replace if matches**: compare and rename while holding an exclusive `flock` on the directory. Puts and
  deletes hold the lock too, so none of them can happen between the comparison and the rename. The lock is on
  the directory itself, so there is no lock file to leave behind or to delete by mistake, and the operating
  system releases it when its owner dies. It works between threads and processes of one machine. A network file
  system that cannot lock a directory reports an error.

A crash leaves at most one temporary file, which listings omit and `is_temporary` recognizes.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from omnigraph.errors import NotFound, OutcomeUnknown, StorageError
from omnigraph.store.location import Location
from omnigraph.store.objects.backend import Object, ObjectInfo, Writable
from omnigraph.store.sync import Durability, make_directories, storage_error_from_os, sync_directory

__all__ = ["LocalBackend", "is_temporary"]

_TEMPORARY = (".omnigraph-", ".tmp")
# Seconds between two attempts to lock a directory. A lock is held for one comparison and one rename.
_MIN_LOCK_DELAY = 0.0005
_MAX_LOCK_DELAY = 0.02
_BUFFER_BYTES = 1024 * 1024


def is_temporary(name: str) -> bool:
    """Return whether a file name belongs to an unfinished write.

    >>> is_temporary(".omnigraph-5f3a.tmp"), is_temporary("01J.json")
    (True, False)
    """
    return name.startswith(_TEMPORARY[0]) and name.endswith(_TEMPORARY[1])


class LocalBackend:
    """Objects below one directory."""

    def __init__(self, location: Location, durability: Durability, lock_timeout: float) -> None:
        """`lock_timeout` is how many seconds to wait for a directory that another writer has locked."""
        self._root = Path(location.path)
        self._lock_timeout = lock_timeout
        self._durability: Durability = durability
        self._synced_directories: set[Path] = set()

    def get(self, key: str) -> Object:
        return self._read(self._root / key, key)

    def read_chunks(self, key: str) -> Iterator[bytes]:
        with _translate_os_errors("get", key):
            try:
                with (self._root / key).open("rb") as file:
                    while chunk := file.read(_BUFFER_BYTES):
                        yield chunk
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise _not_found(key) from None

    def put(self, key: str, data: bytes) -> str:
        target = self._root / key
        with (
            self._temporary_file(target, data) as temporary,
            _directory_lock(target.parent, self._lock_timeout),
            _translate_os_errors("put", key),
        ):
            temporary.rename(target)
        self._sync_directory(target.parent, key)
        return _etag(data)

    def create_if_absent(self, key: str, data: bytes) -> bool:
        target = self._root / key
        with self._temporary_file(target, data) as temporary, _translate_os_errors("create", key):
            try:
                target.hardlink_to(temporary)
            except FileExistsError:
                return False
        self._sync_directory(target.parent, key)
        return True

    def replace_if_matches(self, key: str, data: bytes, etag: str) -> str | None:
        target = self._root / key
        if not target.is_file():
            return None
        with (
            self._temporary_file(target, data) as temporary,
            _directory_lock(target.parent, self._lock_timeout),
        ):
            try:
                current = self._read(target, key)
            except NotFound:
                return None
            if current.etag != etag:
                return None
            with _translate_os_errors("replace", key):
                temporary.rename(target)
        self._sync_directory(target.parent, key)
        return _etag(data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._walk(self._root / prefix, f"{prefix}/" if prefix else "")

    def delete_many(self, keys: Sequence[str]) -> None:
        by_folder: dict[Path, list[str]] = {}
        for key in keys:
            by_folder.setdefault((self._root / key).parent, []).append(key)
        for folder, folder_keys in by_folder.items():
            if not folder.is_dir():
                continue
            with _directory_lock(folder, self._lock_timeout):
                for key in folder_keys:
                    with _translate_os_errors("delete", key), suppress(FileNotFoundError):
                        (self._root / key).unlink()
            if self._durability == "full":
                sync_directory(folder)

    def delete_tree(self) -> None:
        if not self._root.is_dir():
            return
        with _translate_os_errors("delete", self._root.name):
            shutil.rmtree(self._root)
        if self._durability == "full":
            sync_directory(self._root.parent)

    def head(self, key: str) -> ObjectInfo:
        with _translate_os_errors("stat", key):
            try:
                status = (self._root / key).stat()
            except (FileNotFoundError, NotADirectoryError):
                raise _not_found(key) from None
        if not stat.S_ISREG(status.st_mode):
            raise _not_found(key)
        return _info(key, status)

    def open_range_reader(self, info: ObjectInfo) -> _FileRangeReader:
        with _translate_os_errors("read", info.key):
            try:
                return _FileRangeReader((self._root / info.key).open("rb", buffering=0), info.key)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                raise _not_found(info.key) from None

    @contextmanager
    def open_write(self, key: str) -> Iterator[Writable]:
        target = self._root / key
        with self._temporary_file(target, b"") as temporary:
            with _translate_os_errors("write", key):
                file = temporary.open("wb", buffering=_BUFFER_BYTES)
            try:
                yield _FileWriter(file, key)
                with _translate_os_errors("write", key):
                    file.flush()
                    if self._durability == "full":
                        os.fsync(file.fileno())
                    file.close()
            finally:
                # After a failed write the rest of the buffer fails again.
                with suppress(OSError):
                    file.close()
            with _directory_lock(target.parent, self._lock_timeout), _translate_os_errors("put", key):
                temporary.rename(target)
        self._sync_directory(target.parent, key)

    def _read(self, path: Path, key: str) -> Object:
        try:
            data = path.read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise _not_found(key) from None
        except OSError as error:
            raise storage_error_from_os(error, f"cannot read object `{key}`") from error
        return Object(data, _etag(data))

    def _walk(self, folder: Path, prefix: str) -> Iterator[ObjectInfo]:
        try:
            with os.scandir(folder) as found:
                entries = [entry for entry in found if not is_temporary(entry.name)]
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise storage_error_from_os(error, f"cannot list `{prefix}`") from error
        # A directory sorts like the keys in it, that is, with the slash that follows its name.
        named = sorted(
            (os.fsencode(entry.name) + (b"/" if entry.is_dir(follow_symlinks=False) else b""), entry)
            for entry in entries
        )
        for name, entry in named:
            if name.endswith(b"/"):
                yield from self._walk(folder / entry.name, f"{prefix}{entry.name}/")
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise storage_error_from_os(error, f"cannot list `{prefix}{entry.name}`") from error
            yield _info(prefix + entry.name, status)

    @contextmanager
    def _temporary_file(self, target: Path, data: bytes) -> Iterator[Path]:
        """Yield a synced temporary file beside the target. It is removed afterwards unless it was renamed."""
        self._ensure_directory(target.parent)
        temporary = target.parent / secrets.token_hex(8).join(_TEMPORARY)
        try:
            with _translate_os_errors("write", target.name), temporary.open("xb") as file:
                file.write(data)
                file.flush()
                if self._durability == "full":
                    os.fsync(file.fileno())
            yield temporary
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _ensure_directory(self, folder: Path) -> None:
        """Create a directory, and sync the names of all directories above it up to the root, once.

        An existing directory is synced too: the process that created it may not have synced it yet.
        """
        if folder in self._synced_directories and folder.is_dir():
            return
        make_directories(folder, self._durability)
        if self._durability == "full":
            above = folder
            while above != self._root:
                above = above.parent
                sync_directory(above)
        self._synced_directories.add(folder)

    def _sync_directory(self, folder: Path, key: str) -> None:
        if self._durability != "full":
            return
        try:
            sync_directory(folder)
        except StorageError as error:
            # The new object is visible. Only whether it would survive a power failure is unknown.
            raise OutcomeUnknown(
                f"object `{key}` was written but not synced to disk: {error.message}",
                details={"key": key},
                hint="check the disk, then write the object again",
            ) from error


class _FileRangeReader:
    """An open file. A replace of the object renames another file, so this one keeps its content."""

    def __init__(self, file: FileIO, key: str) -> None:
        self._file = file
        self._key = key
        with _translate_os_errors("read", key):
            self.size = os.fstat(file.fileno()).st_size

    def read(self, start: int, end: int) -> bytes:
        data = bytearray()
        while len(data) < end - start:
            with _translate_os_errors("read", self._key):
                piece = os.pread(self._file.fileno(), end - start - len(data), start + len(data))
            if not piece:
                raise StorageError(
                    f"object `{self._key}` was truncated while it was read",
                    details={"key": self._key},
                    hint="read it again from its beginning",
                )
            data += piece
        return bytes(data)

    def close(self) -> None:
        self._file.close()


class _FileWriter:
    """A file that is being written. Its failures are raised as `StorageError`."""

    def __init__(self, file: BinaryIO, key: str) -> None:
        self._file = file
        self._key = key

    def write(self, data: bytes, /) -> int:
        with _translate_os_errors("write", self._key):
            return self._file.write(data)


@contextmanager
def _directory_lock(folder: Path, timeout: float) -> Iterator[None]:
    """Hold the lock of a directory. Every file descriptor owns its lock, so threads exclude each other too."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise storage_error_from_os(error, f"cannot open directory {folder}") from error
    try:
        _lock(handle, folder, time.monotonic() + timeout)
        yield
    finally:
        # Closing the descriptor releases the lock, unless a fork in another thread has copied it.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _lock(handle: int, folder: Path, deadline: float) -> None:
    """Take the lock, with retries until the deadline: a suspended owner must not block other writers forever."""
    delay = _MIN_LOCK_DELAY
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if not isinstance(error, BlockingIOError) or time.monotonic() + delay > deadline:
                raise storage_error_from_os(error, f"cannot lock directory {folder}") from error
        time.sleep(delay)
        delay = min(_MAX_LOCK_DELAY, delay * 2)


@contextmanager
def _translate_os_errors(action: str, key: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error_from_os(error, f"cannot {action} object `{key}`") from error


def _not_found(key: str) -> NotFound:
    return NotFound(f"no object `{key}`", details={"key": key})


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def _etag(data: bytes) -> str:
    return sha256(data).hexdigest()

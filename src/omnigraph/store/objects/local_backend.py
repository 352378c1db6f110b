"""Control objects as files, written by the operating system's own calls.

obstore has a local store, but it neither syncs what it writes nor knows a conditional replace, so it is not
used here. The primitives instead:

- **replace**: write a temporary file beside the target, sync it, rename it over the target, sync the folder;
- **create if absent**: the same with a hard link instead of the rename, which fails when the name is taken;
- **replace if it matches**: compare and rename while holding an exclusive `flock` on the folder. Plain
  replaces and deletes hold it too, so none can slip in between comparing and renaming. The lock is on the
  folder itself: there is no lock file to leave behind or to delete by mistake, and the system releases it
  when its holder dies. It works among threads and processes of one machine; network file systems that
  cannot lock a folder say so with an error rather than pretend.

A crash leaves at most one temporary file, which no listing shows and `is_temporary` recognises.
"""

from __future__ import annotations

import fcntl
import os
import secrets
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
# A lock is held for one comparison and one rename.
_SHORTEST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.02
_BUFFER = 1024 * 1024


def is_temporary(name: str) -> bool:
    """Whether a file of this name is an unfinished write.

    >>> is_temporary(".omnigraph-5f3a.tmp"), is_temporary("01J.json")
    (True, False)
    """
    return name.startswith(_TEMPORARY[0]) and name.endswith(_TEMPORARY[1])


class LocalBackend:
    """Control objects below one folder."""

    def __init__(self, location: Location, durability: Durability, patience: float) -> None:
        """`patience` is how many seconds to wait for a folder that another writer holds."""
        self._root = Path(location.path)
        self._patience = patience
        self._durability: Durability = durability
        self._prepared: set[Path] = set()

    def get(self, key: str) -> Object:
        return self._read(self._root / key, key)

    def put(self, key: str, data: bytes) -> str:
        target = self._root / key
        with (
            self._written(target, data) as temporary,
            _exclusive(target.parent, self._patience),
            _mapped("put", key),
        ):
            temporary.rename(target)
        self._sync_names(target.parent, key)
        return _tag(data)

    def create_if_absent(self, key: str, data: bytes) -> bool:
        target = self._root / key
        with self._written(target, data) as temporary, _mapped("create", key):
            try:
                target.hardlink_to(temporary)
            except FileExistsError:
                return False
        self._sync_names(target.parent, key)
        return True

    def replace_if_matches(self, key: str, data: bytes, etag: str) -> str | None:
        target = self._root / key
        if not target.is_file():
            return None
        with self._written(target, data) as temporary, _exclusive(target.parent, self._patience):
            try:
                current = self._read(target, key)
            except NotFound:
                return None
            if current.etag != etag:
                return None
            with _mapped("replace", key):
                temporary.rename(target)
        self._sync_names(target.parent, key)
        return _tag(data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._walk(self._root / prefix, f"{prefix}/" if prefix else "")

    def delete_many(self, keys: Sequence[str]) -> None:
        by_folder: dict[Path, list[str]] = {}
        for key in keys:
            by_folder.setdefault((self._root / key).parent, []).append(key)
        for folder, found in by_folder.items():
            if not folder.is_dir():
                continue
            with _exclusive(folder, self._patience):
                for key in found:
                    with _mapped("delete", key), suppress(FileNotFoundError):
                        (self._root / key).unlink()
            if self._durability == "full":
                sync_directory(folder)

    def head(self, key: str) -> ObjectInfo:
        with _mapped("look at", key):
            try:
                status = (self._root / key).stat()
            except (FileNotFoundError, NotADirectoryError):
                raise _absent(key) from None
        if not stat.S_ISREG(status.st_mode):
            raise _absent(key)
        return _info(key, status)

    def pin(self, info: ObjectInfo) -> _PinnedFile:
        with _mapped("read", info.key):
            try:
                return _PinnedFile((self._root / info.key).open("rb", buffering=0), info.key)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                raise _absent(info.key) from None

    @contextmanager
    def writing(self, key: str) -> Iterator[Writable]:
        target = self._root / key
        with self._written(target, b"") as temporary:
            with _mapped("write", key):
                file = temporary.open("wb", buffering=_BUFFER)
            with file:
                yield _Draft(file, key)
                with _mapped("write", key):
                    file.flush()
                    if self._durability == "full":
                        os.fsync(file.fileno())
            with _exclusive(target.parent, self._patience), _mapped("put", key):
                temporary.rename(target)
        self._sync_names(target.parent, key)

    def _read(self, path: Path, key: str) -> Object:
        try:
            data = path.read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise _absent(key) from None
        except OSError as error:
            raise storage_error_from_os(error, f"cannot read object `{key}`") from error
        return Object(data, _tag(data))

    def _walk(self, folder: Path, prefix: str) -> Iterator[ObjectInfo]:
        try:
            with os.scandir(folder) as found:
                entries = [entry for entry in found if not is_temporary(entry.name)]
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise storage_error_from_os(error, f"cannot list `{prefix}`") from error
        # A folder's name sorts as the keys in it do, that is with the slash that follows it.
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
    def _written(self, target: Path, data: bytes) -> Iterator[Path]:
        """A synced temporary file beside the target, gone afterwards unless it was renamed."""
        self._prepare(target.parent)
        temporary = target.parent / secrets.token_hex(8).join(_TEMPORARY)
        try:
            with _mapped("write", target.name), temporary.open("xb") as file:
                file.write(data)
                file.flush()
                if self._durability == "full":
                    os.fsync(file.fileno())
            yield temporary
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _prepare(self, folder: Path) -> None:
        """Make a folder, once with the names of all folders down from the root made durable.

        Also when it exists: its maker may be another process that has not come to syncing it yet.
        """
        if folder in self._prepared and folder.is_dir():
            return
        make_directories(folder, self._durability)
        if self._durability == "full":
            above = folder
            while above != self._root:
                above = above.parent
                sync_directory(above)
        self._prepared.add(folder)

    def _sync_names(self, folder: Path, key: str) -> None:
        if self._durability != "full":
            return
        try:
            sync_directory(folder)
        except StorageError as error:
            # The new object is visible by now; only whether it would survive a power failure is not known.
            raise OutcomeUnknown(
                f"object `{key}` was written but could not be made durable", details={"key": key}
            ) from error


class _PinnedFile:
    """An open file: whoever replaces the object gives its name to another one."""

    def __init__(self, file: FileIO, key: str) -> None:
        self._file = file
        self._key = key
        with _mapped("read", key):
            self.size = os.fstat(file.fileno()).st_size

    def read(self, start: int, end: int) -> bytes:
        found = bytearray()
        while len(found) < end - start:
            with _mapped("read", self._key):
                piece = os.pread(self._file.fileno(), end - start - len(found), start + len(found))
            if not piece:
                raise StorageError(f"object `{self._key}` was cut short while it was read")
            found += piece
        return bytes(found)

    def close(self) -> None:
        self._file.close()


class _Draft:
    """A file that is being written, whose failures are errors of ours."""

    def __init__(self, file: BinaryIO, key: str) -> None:
        self._file = file
        self._key = key

    def write(self, data: bytes, /) -> int:
        with _mapped("write", self._key):
            return self._file.write(data)


@contextmanager
def _exclusive(folder: Path, patience: float) -> Iterator[None]:
    """Hold the folder's lock; every handle is its own holder, so threads exclude each other too."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise storage_error_from_os(error, f"cannot open folder {folder}") from error
    try:
        _lock(handle, folder, time.monotonic() + patience)
        yield
    finally:
        # Closing releases the lock, except where a fork in another thread has copied the handle.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _lock(handle: int, folder: Path, deadline: float) -> None:
    """Take the lock, asking again until the deadline: a holder that was stopped must not stop everyone."""
    pause = _SHORTEST_PAUSE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if not isinstance(error, BlockingIOError) or time.monotonic() + pause > deadline:
                raise storage_error_from_os(error, f"cannot lock folder {folder}") from error
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE, pause * 2)


@contextmanager
def _mapped(verb: str, key: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error_from_os(error, f"cannot {verb} object `{key}`") from error


def _absent(key: str) -> NotFound:
    return NotFound(f"no object `{key}`", details={"key": key})


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def _tag(data: bytes) -> str:
    return sha256(data).hexdigest()

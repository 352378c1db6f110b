"""Write the lines of a baseline to a stream, an object store or a local file.

Local and remote graphs share these functions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.api.files.export_files import ExportTarget, check_target
from omnigraph.errors import Conflict

if TYPE_CHECKING:
    from omnigraph.store.storage_options import StorageOptions


def write_lines(target: ExportTarget, lines: Iterable[bytes], options: StorageOptions) -> None:
    """Write the lines of a baseline to the target. `options` are the storage options of an object store.

    A local file is renamed into place when it is complete and synced. If another process is writing the same file,
    `Conflict` is raised: the cursor would not belong to the records in the file.
    """
    from omnigraph.store.location import Location
    from omnigraph.store.objects.object_store import ObjectStore

    check_target(target)
    if not isinstance(target, str | Path):
        for line in lines:
            target.write(line.decode())
        return
    if isinstance(target, str) and "://" in target:
        location = Location.parse(target)
        if not location.is_local:
            store, key = ObjectStore.split_uri(target, options)
            with store.open_write(key) as file:
                for line in lines:
                    file.write(line)
            return
        target = location.path
    _write_file(Path(target), lines)


def _write_file(path: Path, lines: Iterable[bytes]) -> None:
    from omnigraph.api.files.local_files import atomic_write, readable_write_errors
    from omnigraph.store.sync import sync_directory

    with readable_write_errors(path), _locked(path):
        with atomic_write(path) as file:
            for line in lines:
                file.write(line.decode())
        sync_directory(path.parent)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``<path>.lock``. The operating system releases it if the process dies."""
    import fcntl

    lock = path.with_name(f"{path.name}.lock")
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Conflict(
                    f"another process is writing {path}", details={"path": str(path), "lock": str(lock)}
                ) from error
            if not _is_current(lock, descriptor):
                # The previous holder has unlinked the file between open and flock. Lock the new one.
                continue
            try:
                yield
            finally:
                # Before the lock is released: otherwise the next process locks a file that is then unlinked.
                lock.unlink(missing_ok=True)
            return
        finally:
            os.close(descriptor)


def _is_current(lock: Path, descriptor: int) -> bool:
    """Return whether the path still refers to the open file."""
    try:
        there = lock.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)

"""The private folder of a server's temporary files. The next server removes the folder of a killed one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "omnigraph-server-"
_LOCK_SUFFIX = ".lock"


@contextmanager
def private_temporary_folder() -> Iterator[Path]:
    """Put the temporary files of this process into a folder that is removed at the end.

    A killed process leaves its folder behind. The next server on the machine removes it.
    """
    parent = Path(tempfile.gettempdir())
    _remove_stale_folders(parent)
    with tempfile.NamedTemporaryFile(prefix=PREFIX, suffix=_LOCK_SUFFIX, dir=parent) as lock:
        # The lock marks the folder as in use. The kernel releases it when the process ends.
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = Path(lock.name.removesuffix(_LOCK_SUFFIX))
        folder.mkdir(mode=0o700)
        before, tempfile.tempdir = tempfile.tempdir, str(folder)
        try:
            yield folder
        finally:
            tempfile.tempdir = before
            shutil.rmtree(folder, ignore_errors=True)


def _remove_stale_folders(parent: Path) -> None:
    for lock in parent.glob(f"{PREFIX}*{_LOCK_SUFFIX}"):
        # A held lock belongs to a running server. Any other failure must not prevent the start.
        with suppress(OSError):
            _remove_stale_folder(lock)


def _remove_stale_folder(lock: Path) -> None:
    # The parent can be writable for other users: do not follow links, block on a FIFO, or touch files of others.
    descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder = lock.with_suffix("")
        # A lock without a folder can belong to a server that is just starting.
        if folder.is_dir():
            shutil.rmtree(folder)
            lock.unlink()
    finally:
        os.close(descriptor)

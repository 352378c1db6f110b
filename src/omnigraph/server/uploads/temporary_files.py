"""The folder of a server's temporary files: also when servers are killed, what they leave does not pile up."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "omnigraph-server-"
_LOCK = ".lock"


@contextmanager
def own_temporary_folder() -> Iterator[Path]:
    """Have the temporary files of this process in a folder of its own, which goes in the end.

    What is cut off or killed leaves its folder behind, and the next server on the machine removes it.
    """
    parent = Path(tempfile.gettempdir())
    _remove_leftovers(parent)
    with tempfile.NamedTemporaryFile(prefix=PREFIX, suffix=_LOCK, dir=parent) as lock:
        # Held for as long as there is the folder, by this process alone: the system lets go of it when it dies.
        fcntl.flock(lock, fcntl.LOCK_EX)
        home = Path(lock.name.removesuffix(_LOCK))
        home.mkdir(mode=0o700)
        before, tempfile.tempdir = tempfile.tempdir, str(home)
        try:
            yield home
        finally:
            tempfile.tempdir = before
            shutil.rmtree(home, ignore_errors=True)


def _remove_leftovers(parent: Path) -> None:
    for lock in parent.glob(f"{PREFIX}*{_LOCK}"):
        # Whose lock is held is alive; anything else that cannot be removed is no reason not to serve.
        with suppress(OSError):
            _remove_leftover(lock)


def _remove_leftover(lock: Path) -> None:
    # Others may write to the parent too: what is not ours, or no file, is not touched and not waited for.
    descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        home = lock.with_suffix("")
        # Without a folder it may be of one that is just about to begin.
        if home.is_dir():
            shutil.rmtree(home)
            lock.unlink()
    finally:
        os.close(descriptor)

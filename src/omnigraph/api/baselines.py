"""Baselines as the API writes them: to a stream, to a store, or to a file that is there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from omnigraph.api.exports import check_target
from omnigraph.errors import Conflict

if TYPE_CHECKING:
    from omnigraph.changes.baseline import Baseline
    from omnigraph.changes.change_records import ChangeFilter
    from omnigraph.graph.repository import Repository
    from omnigraph.store.storage_options import StorageOptions


def write_baseline(
    repository: Repository, target: str | Path | IO[str], branch: str, wanted: ChangeFilter
) -> Baseline:
    """Write the newest state of a branch and, last, the cursor from which its changes go on.

    A file takes its name when it is complete and on disk. Of two who write one file at a time the second gets
    `Conflict`: its cursor would not belong to what is in the file.
    """
    from omnigraph.changes.baseline import begin_baseline

    found, lines = begin_baseline(repository, branch, wanted)
    write_lines(target, lines, repository.objects.options)
    return found


def write_lines(target: str | Path | IO[str], lines: Iterable[bytes], options: StorageOptions) -> None:
    """Write the lines of a baseline where they are to go; `options` are for a target in a store."""
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
    from omnigraph.api.files import replacing, writing
    from omnigraph.store.sync import sync_directory

    with writing(path), _locked(path):
        with replacing(path) as file:
            for line in lines:
                file.write(line.decode())
        sync_directory(path.parent)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold ``<path>.lock``. The system lets go of it when this process dies, so that none is ever left behind."""
    import fcntl

    lock = path.with_name(f"{path.name}.lock")
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Conflict(
                    f"somebody else is writing {path}", details={"path": str(path), "lock": str(lock)}
                ) from error
            if not _is_still(lock, descriptor):
                # Whoever had it has removed it meanwhile; this one protects nothing any more.
                continue
            try:
                yield
            finally:
                # Before it is let go of: the next one must not lock a file that is about to vanish.
                lock.unlink(missing_ok=True)
            return
        finally:
            os.close(descriptor)


def _is_still(lock: Path, descriptor: int) -> bool:
    try:
        there = lock.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)

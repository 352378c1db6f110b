"""What can befall a command while it works on a graph, in terms of the command and not of the storage."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.cli.render.output import note
from omnigraph.errors import StorageError

if TYPE_CHECKING:
    from omnigraph.graph.repository import Mode
    from omnigraph.store.location import Location

# What a system refuses at a place, where a person can do something about it.
_REFUSALS = {
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "read-only file system",
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "no space left",
    errno.ENOENT: "no such folder",
    errno.ENOTDIR: "not a folder",
}


@contextmanager
def told_interruption(mode: Mode) -> Iterator[None]:
    """Say that a write was interrupted. Whether it had been committed by then is not known here."""
    try:
        yield
    except KeyboardInterrupt:
        if mode == "rw":
            note("interrupted")
        raise


@contextmanager
def told_place(uri: str, location: Location, mode: Mode) -> Iterator[None]:
    """Say of a local graph why the system refuses it, and not which of its files was refused."""
    try:
        yield
    except StorageError as error:
        number = error.details.get("errno")
        reason = _REFUSALS.get(number) if location.is_local and isinstance(number, int) else None
        if reason is None:
            raise
        raise StorageError(
            f"cannot {'read' if mode == 'r' else 'write'} {uri}: {reason}",
            details={**error.details, "uri": uri, "cause": error.message},
        ) from error

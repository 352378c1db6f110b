"""Report interruptions and local file system errors in terms of the command."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.cli.render.output import print_note
from omnigraph.errors import StorageError

if TYPE_CHECKING:
    from omnigraph.graph.repository import Mode
    from omnigraph.store.location import Location

# Errors of the file system that the user can correct.
_REASONS = {
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "read-only file system",
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "no space left",
    errno.ENOENT: "no such folder",
    errno.ENOTDIR: "not a folder",
}


@contextmanager
def report_interruption(mode: Mode) -> Iterator[None]:
    """Print a note if a write is interrupted. The write may already be committed."""
    try:
        yield
    except KeyboardInterrupt:
        if mode == "rw":
            print_note("interrupted")
        raise


@contextmanager
def explain_storage_errors(uri: str, location: Location, mode: Mode) -> Iterator[None]:
    """Replace a `StorageError` of a local graph by one that names the graph instead of an internal file."""
    try:
        yield
    except StorageError as error:
        number = error.details.get("errno")
        reason = _REASONS.get(number) if location.is_local and isinstance(number, int) else None
        if reason is None:
            raise
        raise StorageError(
            f"cannot {'read' if mode == 'r' else 'write'} {uri}: {reason}",
            kind=error.kind,
            details={**error.details, "uri": uri, "cause": error.message},
        ) from error

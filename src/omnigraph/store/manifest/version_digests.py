"""Digests of the manifest files of `__manifest` itself, in a log beside it.

Digests of table files are recorded in `__manifest`. The manifest file of a version of `__manifest` is the root of
all of them, so its own digest must be elsewhere. On a local disk every commit appends one line to this log after
the swap. The log is not part of the commit: a missing line means that the digest was not recorded. On an object
store a commit appends nothing, because that would be one more request. There the log has at most one line, which is
written when a graph comes to rest: by a verification that records digests, and by a backup.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.file_digests import FileDigest, digest_bytes, digest_file, digest_text
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.objects.object_store import ObjectStore

LOG: Final = "__manifest/_digests/versions.log"
_CHECK_LENGTH = 8
# The log is trimmed from this size on, which is the size of some ten thousand lines.
_TRIM_AT = 1 << 20
# The last lines of the log are within this number of bytes.
_LAST_LINES_BYTES = 256


def record_version_digest(folder: Path, version: int, digest: FileDigest | None = None) -> None:
    """Append the digest of a version's manifest file, which is read if it is None, to the log beside `__manifest`.

    One append, which is atomic at this size. It is not synced, and a failure is ignored: the commit is complete.
    """
    with suppress(OSError, StorageError):
        line = _line(version, digest or digest_file(Path(f"{folder}/{version_file(version)}"), ""))
        log = f"{folder}/_digests/versions.log"
        try:
            descriptor = _open(log)
        except FileNotFoundError:
            (folder / "_digests").mkdir(exist_ok=True)
            descriptor = _open(log)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def record_stored_version(root: LanceRoot, objects: ObjectStore, version: int) -> None:
    """Record the digest of the manifest file of a version that is in storage.

    On an object store it is the only line of the log, and the file is read back. Raises `StorageError`.
    """
    if root.local is not None:
        record_version_digest(root.local / "__manifest", version)
    elif objects.location.scheme != "memory":
        data = objects.get(f"__manifest/{version_file(version)}").data
        objects.put(LOG, _line(version, digest_bytes("", data)))


def forget_version_digests(root: LanceRoot, objects: ObjectStore) -> None:
    """Remove the log of an object store, before versions that it may name are made again.

    On a local disk the line of the new version follows, and the last line counts.
    """
    if root.local is None:
        objects.delete(LOG)


def last_recorded_version(folder: Path) -> int | None:
    """Return the version of the last complete line of the log; None if there is none.

    A later version may exist: its line is missing if its writer died before it appended the line.
    """
    try:
        with (folder / "_digests" / "versions.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_LINES_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    digests = _parse_lines(lines)
    return max(digests, default=None)


def read_version_digests(objects: ObjectStore) -> dict[int, FileDigest]:
    """Return the recorded digests by version. Lines that are incomplete or altered are ignored."""
    try:
        data = objects.get(LOG).data
    except NotFound:
        return {}
    return _parse_lines(data.decode("utf-8", "replace").splitlines())


def _parse_lines(lines: Iterable[str]) -> dict[int, FileDigest]:
    digests: dict[int, FileDigest] = {}
    for line in lines:
        with suppress(ValueError):
            text, _, check = line.rpartition(" ")
            version, size, digest = text.split(" ")
            if check == _check(text):
                digests[int(version)] = FileDigest(version_file(int(version)), int(size), digest)
    return digests


def trim_version_digests(folder: Path, first: int) -> None:
    """Remove the lines of versions before `first` if the log is large. A line appended meanwhile is lost."""
    log = folder / "_digests" / "versions.log"
    with suppress(OSError):
        if log.stat().st_size <= _TRIM_AT:
            return
        lines = log.read_text(encoding="ascii", errors="replace").splitlines(keepends=True)
        kept = [
            line
            for line in lines
            if line.partition(" ")[0].isdecimal() and int(line.partition(" ")[0]) >= first
        ]
        new = log.with_suffix(f".{os.getpid()}.tmp")
        new.write_text("".join(kept), encoding="ascii")
        new.replace(log)


def _open(log: str) -> int:
    return os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _line(version: int, found: FileDigest) -> bytes:
    text = f"{version} {found.size} {found.digest}"
    return f"{text} {_check(text)}\n".encode()


def _check(line: str) -> str:
    return digest_text(line)[:_CHECK_LENGTH]

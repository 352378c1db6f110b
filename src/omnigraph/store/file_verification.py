"""Comparison of a stored file with what was recorded when it was written: existence, size, footer and digest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal, TypeAlias

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.file_digests import FileDigest, digest_chunks, digest_file
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.objects.object_store import ObjectStore

FileDamage: TypeAlias = Literal["missing", "truncated", "altered", "unreadable"]

_CHUNK_BYTES = 4 * 1024 * 1024
# Lance files and manifests, and Arrow files, end with a magic number that is written last.
_FOOTERS: Final = {".lance": b"LANC", ".manifest": b"LANC", ".arrow": b"ARROW1"}


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """A file below the root of a graph, with the size and the digest it must have, as far as they are known."""

    path: str
    name: str
    size: int | None = None
    digest: str | None = None

    @property
    def key(self) -> str:
        """The name of the file below the root of the graph."""
        return f"{self.path}/{self.name}"


@dataclass(frozen=True, slots=True)
class FileResult:
    """The result of a check. `damage` is None if the file is as expected; `found` is None if it was not read."""

    damage: FileDamage | None
    problem: str = ""
    size: int = 0
    found: FileDigest | None = None


def check_file(
    objects: ObjectStore, expected: ExpectedFile, stored: ObjectInfo | None, *, quick: bool
) -> FileResult:
    """Compare a file with what is expected of it. `stored` is its entry in a listing, None if it has none.

    With `quick` only existence and size are compared, and nothing is read. Raises `StorageError` only for a
    transient failure of storage, which says nothing about the file.
    """
    if stored is None:
        return FileResult("missing", "the file does not exist")
    if expected.size is not None and stored.size != expected.size:
        shorter = stored.size < expected.size
        return FileResult(
            "truncated" if shorter else "altered",
            f"it has {stored.size} bytes, expected {expected.size}",
            stored.size,
        )
    if quick:
        return FileResult(None, size=stored.size)
    try:
        return _check_content(objects, expected, stored)
    except NotFound:
        return FileResult("missing", "the file does not exist")
    except StorageError as error:
        if error.transient:
            raise
        return FileResult("unreadable", error.message, stored.size)


def _check_content(objects: ObjectStore, expected: ExpectedFile, stored: ObjectInfo) -> FileResult:
    found = read_digest(objects, expected.name, stored)
    if expected.digest is not None:
        if found.digest != expected.digest:
            problem = f"its content has digest {found.digest}, recorded is {expected.digest}"
            return FileResult("altered", problem, found.size, found)
        return FileResult(None, size=found.size, found=found)
    footer = _FOOTERS.get(PurePosixPath(expected.name).suffix)
    if footer is not None and _tail(objects, stored, len(footer)) != footer:
        return FileResult("truncated", "its footer is missing", found.size, found)
    return FileResult(None, size=found.size, found=found)


def read_digest(objects: ObjectStore, name: str, stored: ObjectInfo) -> FileDigest:
    """Read a file and return its digest. Memory holds one chunk."""
    if objects.location.is_local:
        return digest_file(Path(objects.location.path) / stored.key, name)
    return digest_chunks(name, _chunks(objects, stored))


def _chunks(objects: ObjectStore, stored: ObjectInfo) -> Iterator[bytes]:
    with objects.open_read(stored) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk


def _tail(objects: ObjectStore, stored: ObjectInfo, length: int) -> bytes:
    with objects.open_read(stored) as stream:
        stream.seek(max(0, stored.size - length))
        return stream.read(length) or b""

"""Comparison of a stored file with what was recorded when it was written: existence, size, footer and digest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.file_digests import FileDigest, read_stored_file
from omnigraph.store.lance.file_checks import lacks_footer
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.objects.object_store import ObjectStore

FileDamage: TypeAlias = Literal["missing", "truncated", "altered", "unreadable"]


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

    With `quick` only existence and size are compared, and nothing is read. Raises `StorageError` only if
    storage refused the read, which says nothing about the file.
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
        return _check_content(objects, expected)
    except NotFound:
        return FileResult("missing", "the file does not exist")
    except StorageError as error:
        if error.is_refusal:
            raise
        return FileResult("unreadable", error.message, stored.size)


def _check_content(objects: ObjectStore, expected: ExpectedFile) -> FileResult:
    found, end = read_stored_file(objects, expected.path, expected.name)
    if expected.digest is not None:
        if found.digest != expected.digest:
            problem = f"its content has digest {found.digest}, recorded is {expected.digest}"
            return FileResult("altered", problem, found.size, found)
    elif lacks_footer(expected.name, end):
        return FileResult("truncated", "its footer is missing", found.size, found)
    return FileResult(None, size=found.size, found=found)

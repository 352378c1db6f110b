"""Files of tables: which of them a pinned version needs, which are there, and the removal of the others.

Lance has a cleanup of its own, but it does not know detached versions and deletes their files. What a version needs
is therefore read from the version itself, and everything else is told apart by name and age.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import groupby
from typing import Final

from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import data_files, transaction_file, version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.objects.objects import ObjectStore

# The folders of a graph root that hold tables, each table in a folder of its own.
TABLE_FOLDERS: Final = ("nodes", "edges")
# As many as one request to an object store takes.
BATCH: Final = 1000

_VERSIONS = "_versions/"
_DATA = "data/"
_INDICES = "_indices/"
# What may be removed from a table that lives; a name that no code here has ever written is left alone.
_KNOWN_FOLDERS = (_VERSIONS, _DATA, "_deletions/", _INDICES, "_transactions/")
# The HEAD lineage: the empty table that every table begins with. A table without it is none to other Lance tools.
_HEAD_LINEAGE = re.compile(r"_versions/(?:\d{20}\.manifest|latest_version_hint\.json)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table, named relative to the table's folder; `modified` is in epoch microseconds."""

    name: str
    size: int
    modified: int

    @property
    def is_version(self) -> bool:
        """Whether this is what makes a version of the table exist."""
        return self.name.startswith(_VERSIONS) and self.name.endswith(".manifest")

    @property
    def is_removable(self) -> bool:
        """Whether it may be removed from a table that lives on, should no version need it."""
        return self.name.startswith(_KNOWN_FOLDERS) and _HEAD_LINEAGE.fullmatch(self.name) is None


@dataclass(frozen=True)
class TableListing:
    """What is there of one table."""

    path: str
    files: tuple[TableFile, ...]

    @cached_property
    def _versions(self) -> frozenset[str]:
        return frozenset(file.name for file in self.files if file.is_version)

    def has_version(self, version: int) -> bool:
        """Whether the version was there when the listing was made."""
        return version_file(version) in self._versions


@dataclass(frozen=True, slots=True)
class NeededFiles:
    """Files that some version needs: by name, and by folder where Lance does not say what a folder holds."""

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        if name in self.files:
            return True
        first, _, rest = name.partition("/")
        second, slash, _ = rest.partition("/")
        return bool(slash) and f"{first}/{second}" in self.folders

    @classmethod
    def all_of(cls, parts: Iterable[NeededFiles]) -> NeededFiles:
        """What is needed by any of several."""
        files: set[str] = set()
        folders: set[str] = set()
        for part in parts:
            files |= part.files
            folders |= part.folders
        return cls(frozenset(files), frozenset(folders))


class TableFiles:
    """The files of all tables of a graph. Removing what somebody still needs is the caller's to prevent."""

    def __init__(self, root: LanceRoot, objects: ObjectStore) -> None:
        self._root = root
        self._objects = objects

    @property
    def are_visible(self) -> bool:
        """Whether files can be listed at all: Lance keeps those of a graph in memory to itself."""
        return self._objects.location.scheme != "memory"

    def tables(self, folder: str) -> Iterator[TableListing]:
        """Every table in one of `TABLE_FOLDERS`, one after the other; files outside of tables are left out."""
        if not self.are_visible:
            return
        found = (item for item in self._objects.list(folder) if item.key.count("/") > 1)
        for path, items in groupby(found, key=lambda item: "/".join(item.key.split("/", 2)[:2])):
            yield _listing(path, items)

    def table(self, path: str) -> TableListing:
        """One table."""
        return _listing(path, self._objects.list(path) if self.are_visible else ())

    def has_version(self, path: str, version: int) -> bool:
        """Whether a version is there now."""
        key = f"{path}/{version_file(version)}"
        return any(item.key == key for item in self._objects.list(f"{path}/{_VERSIONS.rstrip('/')}"))

    def needed_by(self, path: str, version: int) -> NeededFiles:
        """The files that reading a version, or building on it, needs; `NotFound` when the version is gone."""
        dataset = self._root.open(path, version)
        with translate_lance_errors(f"list the files of {path}"):
            fragments = [item.metadata for item in dataset.get_fragments()]
            deletions = [item.deletion_file.path(item.id) for item in fragments if item.deletion_file]
            # Segments that cover no fragment any more are listed too; Lance may still open them.
            segments = [segment for index in dataset.describe_indices() for segment in index.segments]
            transaction = dataset.read_transaction(version)
        data = data_files(fragments)
        files = {version_file(version), *data, *deletions}
        if transaction is not None:
            # Lance reads a copy inside the version; the file is kept for tools that follow a table's history.
            files.add(transaction_file(transaction))
        indices = [f"{_INDICES}{segment.uuid}" for segment in segments]
        # Large blobs stand beside their data file, in a folder of its name.
        blobs = [name.removesuffix(".lance") for name in data]
        return NeededFiles(frozenset(files), frozenset([*indices, *blobs]))

    def remove(self, path: str, files: Iterable[TableFile]) -> Iterator[Sequence[TableFile]]:
        """Remove files in batches, each given when it is gone, versions before what they consist of.

        Cut off anywhere, a version that lost any file has lost its own first: it is not there, rather than
        there in part.
        """
        ordered = sorted(files, key=lambda file: not file.is_version)
        for _, group in groupby(ordered, key=lambda file: file.is_version):
            found = list(group)
            for start in range(0, len(found), BATCH):
                batch = found[start : start + BATCH]
                self._objects.delete_many(f"{path}/{file.name}" for file in batch)
                yield batch
        self._remove_empty_folders(path, ordered)

    def remove_table(self, listing: TableListing) -> Iterator[Sequence[TableFile]]:
        """Remove a whole table, as `remove` does."""
        yield from self.remove(listing.path, listing.files)
        if self._root.local is not None:
            table = self._root.local / listing.path
            for folder in (*(table / name for name in _KNOWN_FOLDERS), table):
                with suppress(OSError):
                    folder.rmdir()

    def _remove_empty_folders(self, path: str, removed: Iterable[TableFile]) -> None:
        """On a local disk, the folders of indices and blobs outlive their files. No writer returns to one."""
        if self._root.local is None:
            return
        table = self._root.local / path
        for folder in {(table / file.name).parent for file in removed}:
            if folder.parent != table:
                with suppress(OSError):
                    folder.rmdir()


def _listing(path: str, items: Iterable[ObjectInfo]) -> TableListing:
    prefix = f"{path}/"
    return TableListing(
        path,
        tuple(
            TableFile(item.key.removeprefix(prefix), item.size, epoch_micros(item.last_modified))
            for item in items
        ),
    )


def epoch_micros(moment: datetime) -> int:
    """A moment in epoch microseconds.

    >>> epoch_micros(datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC))
    1000005
    """
    return (moment - _EPOCH) // _MICROSECOND

"""The files of tables: which ones a version needs, which ones exist, and the removal of the others.

The cleanup of Lance does not know detached versions and deletes their files. Garbage collection therefore reads the
files of each needed version from the version itself, and selects the others by name and age.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final

from omnigraph.lang.temporal import epoch_micros
from omnigraph.store.lance.lance_files import parse_detached_version, version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.tables.version_files import blob_folder, describe_version

# The directories below the root that hold tables, one directory per table.
TABLE_FOLDERS: Final = ("nodes", "edges")
# The number of objects that one delete request of an object store takes.
DELETE_BATCH: Final = 1000

_VERSIONS = "_versions/"
_DATA = "data/"
_INDICES = "_indices/"
# Only files in these directories are removed from a table in use. Files of other programs are not touched.
_LANCE_FOLDERS = (_VERSIONS, _DATA, "_deletions/", _INDICES, "_transactions/")
# The HEAD lineage: the empty version that every table starts with. Other Lance tools cannot open a table
# without it.
_HEAD_LINEAGE = re.compile(r"_versions/(?:\d{20}\.manifest|latest_version_hint\.json)")


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table. `name` is relative to the table, `modified` is in microseconds since the epoch."""

    name: str
    size: int
    modified: int

    @property
    def is_version(self) -> bool:
        """Whether this is the manifest file of a version."""
        return self.name.startswith(_VERSIONS) and self.name.endswith(".manifest")

    @property
    def detached_version(self) -> int | None:
        """The detached version whose manifest file this is, None for any other file."""
        return parse_detached_version(self.name)

    @property
    def is_head_lineage(self) -> bool:
        """Whether it belongs to the empty version that every table starts with."""
        return _HEAD_LINEAGE.fullmatch(self.name) is not None

    @property
    def is_removable(self) -> bool:
        """Whether garbage collection may remove it from a table in use, if no version needs it."""
        return self.name.startswith(_LANCE_FOLDERS) and not self.is_head_lineage


def folder_of(name: str) -> str | None:
    """Return the directory of an index or of the blobs of a data file that a file is in, or None.

    >>> folder_of("_indices/0b2c/page_data.lance"), folder_of("data/0110.lance")
    ('_indices/0b2c', None)
    """
    first, _, rest = name.partition("/")
    second, slash, _ = rest.partition("/")
    return f"{first}/{second}" if slash else None


@dataclass(frozen=True)
class TableListing:
    """The files of one table at one moment."""

    path: str
    files: tuple[TableFile, ...]

    @cached_property
    def _versions(self) -> frozenset[str]:
        return frozenset(file.name for file in self.files if file.is_version)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(file.name for file in self.files)

    @cached_property
    def _by_folder(self) -> dict[str, list[str]]:
        """The names of files in directories of indices and blobs."""
        folders: dict[str, list[str]] = {}
        for file in self.files:
            folder = folder_of(file.name)
            if folder is not None:
                folders.setdefault(folder, []).append(file.name)
        return folders

    def has_version(self, version: int) -> bool:
        """Return whether the listing has the version."""
        return version_file(version) in self._versions

    def select(self, needed: NeededFiles) -> set[str]:
        """Return the names of the needed files that exist. The cost depends on their number, not on the listing."""
        folders = needed.folders & self._by_folder.keys()
        return {*(needed.files & self._names), *(name for item in folders for name in self._by_folder[item])}


@dataclass(frozen=True, slots=True)
class NeededFiles:
    """The files that versions need: by name, and by directory where Lance does not list the files."""

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        if name in self.files:
            return True
        return folder_of(name) in self.folders

    @classmethod
    def union(cls, parts: Iterable[NeededFiles]) -> NeededFiles:
        """Return the files that any of the parts needs."""
        files: set[str] = set()
        folders: set[str] = set()
        for part in parts:
            files |= part.files
            folders |= part.folders
        return cls(frozenset(files), frozenset(folders))


class TableFiles:
    """The files of all tables of a graph. The caller must not remove files that a reader or writer needs."""

    def __init__(self, root: LanceRoot, objects: ObjectStore) -> None:
        self._root = root
        self._objects = objects

    @property
    def are_visible(self) -> bool:
        """Whether files can be listed. Lance does not list the files of a graph in memory."""
        return self._objects.location.scheme != "memory"

    def tables(self, folder: str) -> Iterator[TableListing]:
        """Yield the tables in one of `TABLE_FOLDERS`; files outside of a table are skipped."""
        if not self.are_visible:
            return
        objects = (item for item in self._objects.list(folder) if item.key.count("/") > 1)
        for path, items in groupby(objects, key=lambda item: "/".join(item.key.split("/", 2)[:2])):
            yield _listing(path, items)

    def table(self, path: str) -> TableListing:
        """Return the files of one table."""
        return _listing(path, self._objects.list(path) if self.are_visible else ())

    def has_version(self, path: str, version: int) -> bool:
        """Return whether a version exists in storage now."""
        key = f"{path}/{version_file(version)}"
        return any(item.key == key for item in self._objects.list(f"{path}/{_VERSIONS.rstrip('/')}"))

    def detached_versions(self, path: str) -> set[int]:
        """Return the detached versions of a table that exist in storage now."""
        listed = self._objects.list(f"{path}/{_VERSIONS.rstrip('/')}")
        found = (parse_detached_version(item.key.removeprefix(f"{path}/")) for item in listed)
        return {version for version in found if version is not None}

    def needed_by(self, path: str, version: int) -> NeededFiles:
        """Return the files that a version needs to be read or written on; `NotFound` when it does not exist."""
        described = describe_version(self._root, path, version)
        indexes = [file.name.rstrip("/") for file in described.files if file.kind == "index"]
        files = [file for file in described.files if file.kind != "index"]
        blobs = [blob_folder(file.name) for file in files if file.kind == "data"]
        return NeededFiles(frozenset(file.name for file in files), frozenset([*indexes, *blobs]))

    def remove(self, path: str, files: Iterable[TableFile]) -> Iterator[Sequence[TableFile]]:
        """Remove files and yield each batch after its removal. Version files go before the files they need.

        After an interruption a version is therefore either complete or does not exist.
        """
        ordered = sorted(files, key=lambda file: not file.is_version)
        for _, group in groupby(ordered, key=lambda file: file.is_version):
            kind = list(group)
            for start in range(0, len(kind), DELETE_BATCH):
                batch = kind[start : start + DELETE_BATCH]
                self._objects.delete_many(f"{path}/{file.name}" for file in batch)
                yield batch
        self._remove_empty_folders(path, ordered)

    def remove_table(self, listing: TableListing) -> Iterator[Sequence[TableFile]]:
        """Remove a whole table. See `remove` for the order."""
        yield from self.remove(listing.path, listing.files)
        if self._root.local is not None:
            table = self._root.local / listing.path
            for folder in (*(table / name for name in _LANCE_FOLDERS), table):
                with suppress(OSError):
                    folder.rmdir()

    def _remove_empty_folders(self, path: str, removed: Iterable[TableFile]) -> None:
        """Remove empty directories of indices and blobs on a local disk. No writer uses them again."""
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

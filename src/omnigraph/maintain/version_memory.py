"""The files of table versions that a garbage collection has read, kept for the next one.

The versions of a table name mostly the same files. Each name is therefore stored once, and a version is an array of
numbers of names. A thousand versions of a table with a hundred files take half a megabyte.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable
from typing import Final, TypeAlias

from omnigraph.store.tables.table_files import NeededFiles

# The path of a table and one of its versions.
VersionKey: TypeAlias = tuple[str, int]

# The number of files of all versions together that are kept at most. Each takes four bytes. Versions beyond it are
# read again by the next run.
_MAX_FILES: Final = 1 << 24
# Names are numbered anew when more than this many have no version any more, and as many as are in use.
_MIN_UNUSED: Final = 4_096


class VersionMemory:
    """The files that table versions need."""

    def __init__(self) -> None:
        self._versions: dict[VersionKey, array[int]] = {}
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._size = 0
        self._renumber_at = _MIN_UNUSED

    def __len__(self) -> int:
        """The number of versions."""
        return len(self._versions)

    def __contains__(self, key: VersionKey) -> bool:
        return key in self._versions

    def add(self, key: VersionKey, needed: NeededFiles) -> None:
        """Remember a version, unless too much is remembered."""
        names = [*needed.files, *(f"{folder}/" for folder in needed.folders)]
        if self._size + len(names) > _MAX_FILES or key in self._versions:
            return
        self._versions[key] = array("I", map(self._number, names))
        self._size += len(names)

    def union(self, keys: Iterable[VersionKey]) -> NeededFiles:
        """Return the files that any of some remembered versions needs."""
        numbers: set[int] = set()
        for key in keys:
            numbers.update(self._versions[key])
        names = [self._names[number] for number in numbers]
        return NeededFiles(
            frozenset(name for name in names if not name.endswith("/")),
            frozenset(name[:-1] for name in names if name.endswith("/")),
        )

    def keep_only(self, keys: Collection[VersionKey]) -> None:
        """Forget all other versions, and the names that only they have."""
        self._versions = {key: files for key, files in self._versions.items() if key in keys}
        self._size = sum(map(len, self._versions.values()))
        if len(self._names) >= self._renumber_at:
            self._renumber()

    def _number(self, name: str) -> int:
        number = self._numbers.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
        return number

    def _renumber(self) -> None:
        names, versions = self._names, self._versions
        self._names, self._numbers = [], {}
        self._versions = {
            key: array("I", (self._number(names[number]) for number in files))
            for key, files in versions.items()
        }
        self._renumber_at = 2 * len(self._names) + _MIN_UNUSED

"""File names of `__manifest`. The name states what a fragment holds.

A Lance manifest lists the file names of its fragments. After opening `__manifest`, a reader therefore knows
which fragment is the registry, which is the head of a branch, and which range of commit ids a log fragment
covers, without reading any of them. The cost of opening a graph does not depend on the length of its history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ulid import ULID

SUFFIX = ".lance"
# The last part of a name is this word and the digest of the content.
_DIGEST = "xxh3_"
# The row of a root whose initialization has not finished. The commit that replaces it creates the graph.
UNFINISHED = "unfinished"
LogKind: TypeAlias = Literal["commit", "recovery", "digests"]
LOG_KINDS: tuple[LogKind, ...] = ("commit", "recovery", "digests")


def new_id() -> str:
    """Return a new sortable id (ULID)."""
    return str(ULID())


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One fragment of `__manifest`, described by its file name. `size` is the file size that Lance states."""

    fragment: int
    name: str
    rows: int
    kind: str
    parts: tuple[str, ...]
    size: int | None = None

    @property
    def level(self) -> int:
        """The compaction level of a log file: how often its rows were compacted."""
        return int(self.parts[0])

    @property
    def digest(self) -> str | None:
        """The digest of the file; None if it was written before names had one."""
        last = self.parts[-1] if self.parts else ""
        return last.removeprefix(_DIGEST) if last.startswith(_DIGEST) else None

    def covers(self, id_: str) -> bool:
        """Return whether a log file may hold the row of an id."""
        return self.parts[1] <= id_ <= self.parts[2]


def parse_file(fragment: int, name: str, rows: int, size: int | None = None) -> ManifestFile:
    """Parse a file name.

    >>> parse_file(3, "head-01J-01K-xxh3_06b05a.lance", 1).digest
    '06b05a'
    """
    kind, *parts = name.removesuffix(SUFFIX).split("-")
    return ManifestFile(fragment, name, rows, kind, tuple(parts), size)


def name_with_digest(name: str, digest: str) -> str:
    """Return the name of a file whose content has a digest. The version that lists the file thus states it too.

    >>> name_with_digest("registry-01J.lance", "06b05a")
    'registry-01J-xxh3_06b05a.lance'
    """
    return f"{name.removesuffix(SUFFIX)}-{_DIGEST}{digest}{SUFFIX}"


def unfinished_name() -> str:
    """Return a name for the file that marks an unfinished initialization."""
    return f"{UNFINISHED}-{new_id()}{SUFFIX}"


def registry_name() -> str:
    """Return a name for a registry file."""
    return f"registry-{new_id()}{SUFFIX}"


def head_name(incarnation: str) -> str:
    """Return a name for a head file."""
    return f"head-{incarnation}-{new_id()}{SUFFIX}"


def schema_name(schema: str) -> str:
    """Return a name for a schema file; schema ids are hexadecimal."""
    return f"schema-{schema}-{new_id()}{SUFFIX}"


def log_name(kind: LogKind, level: int, ids: Iterable[str]) -> str:
    """Return a name for a log file that holds the rows of these ids."""
    ordered = sorted(ids)
    return f"{kind}-{level}-{ordered[0]}-{ordered[-1]}-{new_id()}{SUFFIX}"

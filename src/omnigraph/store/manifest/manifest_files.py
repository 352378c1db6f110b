"""How files of `__manifest` are named: the name alone says what a fragment holds.

A Lance manifest lists its fragments with their file names, so whoever has opened `__manifest` knows which
fragment is the registry, which is a branch's head, and which range of commit ids a log fragment covers, before
reading any of them. Opening a graph therefore costs the same whatever its history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ulid import ULID

SUFFIX = ".lance"
# The row of a root whose initialisation has not been finished: replacing it is what makes a graph.
UNFINISHED = "unfinished"
LogKind: TypeAlias = Literal["commit", "recovery"]
LOG_KINDS: tuple[LogKind, ...] = ("commit", "recovery")


def new_id() -> str:
    """A fresh sortable id."""
    return str(ULID())


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One fragment of `__manifest`, as its file name describes it."""

    fragment: int
    name: str
    rows: int
    kind: str
    parts: tuple[str, ...]

    @property
    def level(self) -> int:
        """How often a log file's rows have been folded."""
        return int(self.parts[0])

    def covers(self, id_: str) -> bool:
        """Whether a log file may hold the row of that id."""
        return self.parts[1] <= id_ <= self.parts[2]


def parse_file(fragment: int, name: str, rows: int) -> ManifestFile:
    """Read a file name."""
    kind, *parts = name.removesuffix(SUFFIX).split("-")
    return ManifestFile(fragment, name, rows, kind, tuple(parts))


def unfinished_name() -> str:
    """The name of the file that a root begins with."""
    return f"{UNFINISHED}-{new_id()}{SUFFIX}"


def registry_name() -> str:
    """The name of a registry file."""
    return f"registry-{new_id()}{SUFFIX}"


def head_name(incarnation: str) -> str:
    """The name of a head file."""
    return f"head-{incarnation}-{new_id()}{SUFFIX}"


def schema_name(schema: str) -> str:
    """The name of a schema file; schema ids are hexadecimal."""
    return f"schema-{schema}-{new_id()}{SUFFIX}"


def log_name(kind: LogKind, level: int, ids: Iterable[str]) -> str:
    """The name of a log file that holds the rows of these ids."""
    found = sorted(ids)
    return f"{kind}-{level}-{found[0]}-{found[-1]}-{new_id()}{SUFFIX}"

"""File names of `__manifest`. The name states what a fragment holds.

A Lance manifest lists the file names of its fragments. After opening `__manifest`, a reader therefore knows
which fragment is the registry, which is the head of a branch, and which range of commit ids a log fragment
covers, without reading any of them. The cost of opening a graph does not depend on the length of its history.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias, TypeVar

from ulid import ULID
from xxhash import xxh3_64_intdigest

SUFFIX = ".lance"
# The last parts of a name: a summand of its weight, and the digest of the content.
_SUMMAND = "sum_"
_DIGEST = "xxh3_"
# Weights are integers modulo this number.
WEIGHT_MODULUS: Final = 1 << 64
_HEX: Final = re.compile("[0-9a-f]{16}")
# The row of a root whose initialization has not finished. The commit that replaces it creates the graph.
UNFINISHED = "unfinished"
BUCKETS = "branches"
TAGS = "tags"
# The kinds of files that hold a range of names each.
BUCKET_KINDS: Final = (BUCKETS, TAGS)
RECLAIMED = "reclaimed"
LogKind: TypeAlias = Literal["commit", "recovery", "digests"]
LOG_KINDS: tuple[LogKind, ...] = ("commit", "recovery", "digests")
# The rows of a file as texts by key.
Rows: TypeAlias = Mapping[str, str]
R = TypeVar("R", bound=Sized)


def new_id() -> str:
    """Return a new sortable id (ULID)."""
    return str(ULID())


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One fragment of `__manifest`, described by its file name. `size` is the file size that Lance states.

    `weight` is the weight of the file in the sum that every version keeps. A file that was written before names had
    a summand has none.
    """

    fragment: int
    name: str
    rows: int
    kind: str
    parts: tuple[str, ...]
    size: int | None = None
    weight: int = 0

    @property
    def level(self) -> int:
        """The compaction level of a log file: how often its rows were compacted."""
        return int(self.parts[0])

    @property
    def digest(self) -> str | None:
        """The digest of the file; None if it was written before names had one."""
        last = self.parts[-1] if self.parts else ""
        return last.removeprefix(_DIGEST) if last.startswith(_DIGEST) else None

    @property
    def lower_bound(self) -> str:
        """The lower bound of the names of a bucket."""
        return _decode_bound(self.parts[0])

    @property
    def id_range(self) -> tuple[str, str]:
        """The least and the greatest id of the rows of a log file."""
        return self.parts[1], self.parts[2]

    def covers(self, id_: str) -> bool:
        """Return whether a log file may hold the row of an id."""
        return self.parts[1] <= id_ <= self.parts[2]


@lru_cache(maxsize=4_096)
def _decode_bound(part: str) -> str:
    # Every new view needs the bounds of all buckets.
    return bytes.fromhex(part.removeprefix("x")).decode()


def parse_file(fragment: int, name: str, rows: int, size: int | None = None) -> ManifestFile:
    """Parse a file name.

    >>> parse_file(3, "head-01J-01K-xxh3_06b05a.lance", 1).digest
    '06b05a'
    """
    kind, *parts = name.removesuffix(SUFFIX).split("-")
    return ManifestFile(fragment, name, rows, kind, tuple(parts), size, _weigh(name, rows))


def balance(
    new: Sequence[tuple[str, R]], removed: Iterable[ManifestFile], added: Iterable[ManifestFile] = ()
) -> list[tuple[str, R]]:
    """Give new files names with which they and the added files weigh as much as the removed files.

    A new file is its name and its rows, or anything that has the length of its rows.
    The weight of a file is a hash of its name and its number of rows, plus a summand in its name. The summand of
    the last file makes up the difference.
    """
    named = [(_name_with_summand(name, 0), rows) for name, rows in new]
    total = sum(_weigh(name, len(rows)) for name, rows in named) + sum(file.weight for file in added)
    difference = (sum(file.weight for file in removed) - total) % WEIGHT_MODULUS
    return [*named[:-1], *((_name_with_summand(name, difference), rows) for name, rows in new[-1:])]


def _name_with_summand(name: str, summand: int) -> str:
    return f"{name.removesuffix(SUFFIX)}-{_SUMMAND}{summand:016x}{SUFFIX}"


def _weigh(name: str, rows: int) -> int:
    """Return the weight of a file; 0 if its name has no summand in the form in which it is written."""
    stem, _, rest = name.removesuffix(SUFFIX).partition(f"-{_SUMMAND}")
    digits = rest.partition("-")[0]
    if _HEX.fullmatch(digits) is None:
        return 0
    return (xxh3_64_intdigest(f"{stem} {rows}".encode()) + int(digits, 16)) % WEIGHT_MODULUS


def name_with_digest(name: str, digest: str) -> str:
    """Return the name of a file whose content has a digest. The version that lists the file thus states it too.

    >>> name_with_digest("registry-01J.lance", "06b05a")
    'registry-01J-xxh3_06b05a.lance'
    """
    return f"{name.removesuffix(SUFFIX)}-{_DIGEST}{digest}{SUFFIX}"


def full_levels(files: Sequence[ManifestFile], count: int) -> Iterator[list[ManifestFile]]:
    """Yield the log files of each level that has at least `count` files, oldest first."""
    if len(files) < count:
        return
    levels: dict[int, list[ManifestFile]] = {}
    for file in files:
        levels.setdefault(file.level, []).append(file)
    for level in sorted(levels):
        if len(levels[level]) >= count:
            yield sorted(levels[level], key=lambda item: item.parts[1])


def unfinished_name() -> str:
    """Return a name for the file that marks an unfinished initialization."""
    return f"{UNFINISHED}-{new_id()}{SUFFIX}"


def registry_name() -> str:
    """Return a name for a registry file."""
    return f"registry-{new_id()}{SUFFIX}"


def head_name(incarnation: str) -> str:
    """Return a name for a head file."""
    return f"head-{incarnation}-{new_id()}{SUFFIX}"


def is_head_name(name: str) -> bool:
    """Return whether a file is a head file.

    >>> is_head_name(head_name("01J")), is_head_name(registry_name())
    (True, False)
    """
    return name.startswith("head-")


def bucket_name(kind: str, lower: str) -> str:
    """Return a name for a bucket of branches or of tags, given the lower bound of its names.

    >>> bucket_name("branches", "ab").startswith("branches-x6162-")
    True
    """
    return f"{kind}-{bound_part(lower)}-{new_id()}{SUFFIX}"


def bound_part(bound: str) -> str:
    """Return the part of a file name that states a bound. The parts have the order of the bounds.

    >>> bound_part("ab") < bound_part("abc") < bound_part("b")
    True
    """
    return f"x{bound.encode('utf-8', 'surrogatepass').hex()}"


def reclaimed_name() -> str:
    """Return a name for a file that lists the versions which garbage collection removes."""
    return f"{RECLAIMED}-{new_id()}{SUFFIX}"


def schema_name(schema: str) -> str:
    """Return a name for a schema file; schema ids are hexadecimal."""
    return f"schema-{schema}-{new_id()}{SUFFIX}"


def log_name(kind: LogKind, level: int, ids: Iterable[str]) -> str:
    """Return a name for a log file that holds the rows of these ids."""
    ordered = sorted(ids)
    return f"{kind}-{level}-{ordered[0]}-{ordered[-1]}-{new_id()}{SUFFIX}"

"""The result of a verification: what was checked, each damage with its extent, and the intact commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

DamageKind: TypeAlias = Literal[
    "missing",
    "truncated",
    "altered",
    "unreadable",
    "rows",
    "duplicate_id",
    "wrong_id",
    "dangling_edge",
    "manifest",
    "lineage",
]
# The kinds of damage that a check of rows finds.
RowDamageKind: TypeAlias = Literal["unreadable", "rows", "duplicate_id", "wrong_id", "dangling_edge"]

# The reports of damages list at most this many commits each. `commit_count` is the number of all of them.
MAX_COMMITS = 100


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged file, or one violated rule.

    `file` is relative to the root of the graph, None if no single file is at fault. `type_key` is the type, such
    as ``node:Person``, and `property` the properties that the file holds, None if it holds all of them. `branches`
    are the branches whose head needs the file. `commits` are the commits that need it, newest first; there are
    `commit_count` of them. `rows` is the number of rows of the newest of these commits that are lost or wrong.
    `blocks_reads` is False if queries without the file still return correct results. `tags` are the tags whose
    commit needs the file.
    """

    kind: DamageKind
    problem: str
    file: str | None = None
    type_key: str | None = None
    property: str | None = None
    branches: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    commit_count: int = 0
    rows: int = 0
    blocks_reads: bool = True
    remedy: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BranchState:
    """A branch: its head, None if the head cannot be read, and its newest intact commit, None if there is none.

    `intact` says whether the head is the newest intact commit and can be read.
    """

    branch: str
    head: str | None
    intact: bool
    newest_intact: str | None


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of `Graph.verify`.

    `commits`, `versions`, `files`, `bytes_read` and `rows` count what was checked. `not_recorded` is the number of
    files without a recorded digest, whose content could not be compared; `recorded` is the number of digests that
    this call has added. `reclaimed` is the number of commits whose data garbage collection has removed. `notes`
    state what is worth knowing and no damage, such as rows without an index.
    """

    quick: bool
    all_commits: bool
    commits: int = 0
    versions: int = 0
    files: int = 0
    bytes_read: int = 0
    rows: int = 0
    not_recorded: int = 0
    recorded: int = 0
    reclaimed: int = 0
    damage: tuple[Damage, ...] = ()
    branches: tuple[BranchState, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def ok(self) -> bool:
        """Whether no damage was found."""
        return not self.damage

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"ok": self.ok, **asdict(self)}


def property_names(columns: tuple[str, ...], names: Mapping[str, str]) -> str | None:
    """Return the properties of physical columns as one text; None for all columns.

    >>> property_names(("age_5", "id"), {"age_5": "age"})
    'age, id'
    """
    return ", ".join(names.get(name, name) for name in columns) or None

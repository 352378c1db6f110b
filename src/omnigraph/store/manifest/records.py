"""The rows of `__manifest`: commits with the table versions they pin, the registry, recovery outcomes.

Each record has one JSON form. Lance version numbers use all 64 bits, so JSON carries them as strings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

Body: TypeAlias = dict[str, Any]
RecoveryOutcome: TypeAlias = Literal["rolled_forward", "discarded", "orphaned"]

GENESIS_SEQUENCE = 1
MAIN_BRANCH = "main"


@dataclass(frozen=True, slots=True)
class TablePin:
    """The version of a table that a commit refers to.

    `content` is the id of the commit that last changed the rows of the table. Two pins with equal content hold the
    same rows, even when maintenance has rewritten the files. `number` counts the versions of the table that the
    commits of the branch have published. It is a small integer, unlike `version`, and does not identify a version
    across branches.
    """

    path: str
    version: int
    rows: int
    content: str
    number: int = field(default=1, compare=False)

    def to_body(self) -> Body:
        """Return the JSON form."""
        return {
            "path": self.path,
            "version": str(self.version),
            "rows": self.rows,
            "content": self.content,
            "number": self.number,
        }

    @classmethod
    def from_body(cls, body: Body, number: int = 1) -> TablePin:
        """Parse the JSON form. `number` applies to a pin without one, which an earlier release wrote."""
        rows, number = int(body["rows"]), int(body.get("number", number))
        return cls(body["path"], int(body["version"]), rows, body["content"], number)


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A graph commit with all of its tables, its schema and its parents. Reading it requires no other commit.

    `files` has the digests of the files that the commit introduced, as `format_digests` writes them. One text
    keeps the cost of reading a commit small whatever the number of files. `runs` has the commit of the last run of
    each pipeline, by the name of the pipeline. `run` is the record of the pipeline run that made the commit. Heads
    hold neither `files` nor `run`.
    """

    id: str
    branch: str
    incarnation: str
    sequence: int
    parent: str | None
    merged_parent: str | None
    actor: str | None
    operation: str
    message: str | None
    created_at: int
    schema: str
    tables: Mapping[str, TablePin] = field(default_factory=dict)
    touched: tuple[str, ...] = ()
    recovered: bool = False
    files: str = field(default="", compare=False, repr=False)
    runs: Mapping[str, str] = field(default_factory=dict)
    run: str = field(default="", compare=False, repr=False)

    def to_body(self) -> Body:
        """Return the JSON form."""
        return {
            "id": self.id,
            "branch": self.branch,
            "incarnation": self.incarnation,
            "sequence": self.sequence,
            "parent": self.parent,
            "merged_parent": self.merged_parent,
            "actor": self.actor,
            "operation": self.operation,
            "message": self.message,
            "created_at": self.created_at,
            "schema": self.schema,
            "tables": {key: pin.to_body() for key, pin in sorted(self.tables.items())},
            "touched": list(self.touched),
            "recovered": self.recovered,
            **({"files": self.files} if self.files else {}),
            **({"runs": dict(sorted(self.runs.items()))} if self.runs else {}),
            **({"run": self.run} if self.run else {}),
        }

    @classmethod
    def from_body(cls, body: Body) -> CommitRecord:
        """Parse the JSON form."""
        sequence = int(body["sequence"])
        return cls(
            id=body["id"],
            branch=body["branch"],
            incarnation=body["incarnation"],
            sequence=sequence,
            parent=body["parent"],
            merged_parent=body["merged_parent"],
            actor=_text(body["actor"]),
            operation=body["operation"],
            message=_text(body["message"]),
            created_at=int(body["created_at"]),
            schema=body["schema"],
            # Numbers that start at the sequence stay below those of later commits.
            tables={key: TablePin.from_body(pin, sequence) for key, pin in body["tables"].items()},
            touched=tuple(body["touched"]),
            recovered=bool(body["recovered"]),
            files=body.get("files", ""),
            runs=dict(body.get("runs", {})),
            run=body.get("run", ""),
        )

    def without_details(self) -> CommitRecord:
        """Return the commit without the digests of its files and the record of its pipeline run."""
        return replace(self, files="", run="") if self.files or self.run else self


@dataclass(frozen=True, slots=True)
class HeadRecord:
    """The head of a branch. The head of a new branch is a commit of another branch."""

    branch: str
    incarnation: str
    commit: CommitRecord

    def without_details(self) -> HeadRecord:
        """Return the head as it is stored: its commit has no details."""
        return replace(self, commit=self.commit.without_details())

    def to_body(self) -> Body:
        """Return the JSON form."""
        commit = self.commit.without_details().to_body()
        return {"branch": self.branch, "incarnation": self.incarnation, "commit": commit}

    @classmethod
    def from_body(cls, body: Body) -> HeadRecord:
        """Parse the JSON form."""
        return cls(body["branch"], body["incarnation"], CommitRecord.from_body(body["commit"]))


@dataclass(frozen=True, slots=True)
class BranchEntry:
    """A branch. `incarnation` distinguishes it from an earlier, deleted branch of the same name.

    `commit` is the id of its head if the branch is at rest, and None if it has a head file.
    """

    incarnation: str
    created_at: int
    created_by: str | None = None
    commit: str | None = None

    def to_body(self) -> Body:
        """Return the JSON form."""
        return {
            "incarnation": self.incarnation,
            "created_at": self.created_at,
            "created_by": self.created_by,
            **({} if self.commit is None else {"commit": self.commit}),
        }

    @classmethod
    def from_body(cls, body: Body) -> BranchEntry:
        """Parse the JSON form."""
        created_by, commit = _text(body["created_by"]), body.get("commit")
        return cls(body["incarnation"], int(body["created_at"]), created_by, commit)


@dataclass(frozen=True, slots=True)
class TagEntry:
    """A tag: a name for a commit. `id` distinguishes it from an earlier, deleted tag of the same name."""

    id: str
    commit: str
    created_at: int
    created_by: str | None = None
    message: str | None = None

    def to_body(self) -> Body:
        """Return the JSON form."""
        return {
            "id": self.id,
            "commit": self.commit,
            "created_at": self.created_at,
            "created_by": self.created_by,
            "message": self.message,
        }

    @classmethod
    def from_body(cls, body: Body) -> TagEntry:
        """Parse the JSON form."""
        return cls(body["id"], body["commit"], int(body["created_at"]), body["created_by"], body["message"])


@dataclass(frozen=True, slots=True)
class BackupMark:
    """The mark of a backup, which cannot be written. `since` is the commit from which on it has data, or None.

    `source` is the address of the graph that was copied, and `version` the version of its `__manifest`. An
    `incomplete` backup lacks files that were damaged in the source.
    """

    source: str
    version: int
    since: str | None
    created_at: int
    incomplete: bool = False

    def to_body(self) -> Body:
        """Return the JSON form."""
        return {
            "source": self.source,
            "version": self.version,
            "since": self.since,
            "created_at": self.created_at,
            **({"incomplete": True} if self.incomplete else {}),
        }

    @classmethod
    def from_body(cls, body: Body) -> BackupMark:
        """Parse the JSON form."""
        incomplete = bool(body.get("incomplete", False))
        return cls(body["source"], int(body["version"]), body["since"], int(body["created_at"]), incomplete)


@dataclass(frozen=True, slots=True)
class Registry:
    """The identity of the graph, and its format version.

    `epoch` increases with every replacement, so that two registries with otherwise equal content differ.
    `next_id` is the next unused id of a type, property or table on any branch; 0 before the first allocation.
    `backup` is set in a backup and None in other graphs. `main` is the incarnation of branch `main`, which always
    has a head file, so that its head is found without its entry. `legacy_branches` are the branches of formats
    before 3. `settings` has the settings of the graph that were changed from their defaults. `fence` changes when
    garbage collection removes files: a write that staged files before is prepared again.
    """

    format: int
    graph_id: str
    created_at: int
    epoch: int = 0
    next_id: int = 0
    backup: BackupMark | None = None
    main: str | None = None
    legacy_branches: Mapping[str, BranchEntry] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    fence: int = 0

    def to_body(self) -> Body:
        """Return the JSON form."""
        return {
            "format": self.format,
            "graph_id": self.graph_id,
            "created_at": self.created_at,
            "epoch": self.epoch,
            "next_id": self.next_id,
            **({} if self.backup is None else {"backup": self.backup.to_body()}),
            **({} if self.main is None else {"main": self.main}),
            **({} if self.legacy_branches is None else {"branches": self._legacy_body()}),
            **({"settings": dict(self.settings)} if self.settings else {}),
            **({"fence": self.fence} if self.fence else {}),
        }

    def _legacy_body(self) -> Body:
        return {name: entry.to_body() for name, entry in sorted((self.legacy_branches or {}).items())}

    @classmethod
    def from_body(cls, body: Body) -> Registry:
        """Parse the JSON form."""
        branches, mark = body.get("branches"), body.get("backup")
        return cls(
            int(body["format"]),
            body["graph_id"],
            int(body["created_at"]),
            int(body["epoch"]),
            int(body.get("next_id", 0)),
            None if mark is None else BackupMark.from_body(mark),
            body.get("main"),
            None
            if branches is None
            else {name: BranchEntry.from_body(entry) for name, entry in branches.items()},
            dict(body.get("settings", {})),
            int(body.get("fence", 0)),
        )

    def with_next_epoch(self) -> Registry:
        """Return the same registry with the next epoch, so that a compare-and-swap against this one fails."""
        return replace(self, epoch=self.epoch + 1)

    def with_next_fence(self) -> Registry:
        """Return the registry with the next fence, which excludes the writes that began before."""
        return replace(self, fence=self.fence + 1, epoch=self.epoch + 1)

    def with_next_id(self, next_id: int) -> Registry:
        """Return the registry with the ids below `next_id` allocated."""
        return replace(self, next_id=next_id, epoch=self.epoch + 1)

    def with_settings(self, settings: Mapping[str, Any]) -> Registry:
        """Return the registry with other settings of the graph."""
        return replace(self, settings=dict(settings), epoch=self.epoch + 1)

    def with_format(self, format_: int) -> Registry:
        """Return the registry with another format version."""
        return replace(self, format=format_, epoch=self.epoch + 1)

    def without_branches(self) -> Registry:
        """Return the registry of a graph whose branches are in buckets."""
        main = (self.legacy_branches or {}).get(MAIN_BRANCH)
        known = self.main if main is None else main.incarnation
        return replace(self, main=known, legacy_branches=None, epoch=self.epoch + 1)


@dataclass(frozen=True, slots=True)
class RecoveryRecord:
    """The outcome of an interrupted bulk write. The operation has the same id, so it has at most one outcome."""

    id: str
    outcome: RecoveryOutcome
    actor: str | None
    branch: str
    operation: str
    commit_id: str | None
    reason: str
    created_at: int
    tables: Mapping[str, str] = field(default_factory=dict)

    def to_body(self) -> Body:
        """Return the JSON form."""
        return {
            "id": self.id,
            "outcome": self.outcome,
            "actor": self.actor,
            "branch": self.branch,
            "operation": self.operation,
            "commit_id": self.commit_id,
            "reason": self.reason,
            "created_at": self.created_at,
            "tables": dict(self.tables),
        }

    @classmethod
    def from_body(cls, body: Body) -> RecoveryRecord:
        """Parse the JSON form."""
        return cls(
            id=body["id"],
            outcome=body["outcome"],
            actor=_text(body["actor"]),
            branch=body["branch"],
            operation=body["operation"],
            commit_id=body["commit_id"],
            reason=body["reason"],
            created_at=int(body["created_at"]),
            tables=dict(body["tables"]),
        )


@dataclass(frozen=True, slots=True)
class DigestRecord:
    """Digests that were recorded after the commits that introduced the files, as `format_digests` writes them."""

    id: str
    created_at: int
    files: str

    def to_body(self) -> Body:
        """Return the JSON form."""
        return {"id": self.id, "created_at": self.created_at, "files": self.files}

    @classmethod
    def from_body(cls, body: Body) -> DigestRecord:
        """Parse the JSON form."""
        return cls(body["id"], int(body["created_at"]), body["files"])


def encode_body(body: Body) -> str:
    """Return the canonical text of a body: compact JSON with the keys in their order."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def _text(value: Any) -> str | None:
    """Return a recorded text. Old graphs may hold numbers, because earlier releases did not check the type."""
    return value if value is None or isinstance(value, str) else str(value)

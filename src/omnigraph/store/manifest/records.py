"""What the manifest's rows say: commits with the table versions they pin, the registry, recovery outcomes.

Frozen data with one JSON form each. Lance version numbers use all 64 bits, so JSON carries them as strings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

Body: TypeAlias = dict[str, Any]
RecoveryOutcome: TypeAlias = Literal["rolled_forward", "discarded", "orphaned"]

GENESIS_SEQUENCE = 1


@dataclass(frozen=True, slots=True)
class TablePin:
    """One table as one commit sees it.

    `content` is the id of the commit that last changed the table's rows: two pins with equal content hold the
    same rows, however maintenance rearranged them.
    """

    path: str
    version: int
    rows: int
    content: str

    def to_body(self) -> Body:
        """The JSON form."""
        return {"path": self.path, "version": str(self.version), "rows": self.rows, "content": self.content}

    @classmethod
    def from_body(cls, body: Body) -> TablePin:
        """Read the JSON form."""
        return cls(body["path"], int(body["version"]), int(body["rows"]), body["content"])


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A graph commit, complete: every table, the schema, the lineage. Reading it needs no other commit."""

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

    def to_body(self) -> Body:
        """The JSON form."""
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
        }

    @classmethod
    def from_body(cls, body: Body) -> CommitRecord:
        """Read the JSON form."""
        return cls(
            id=body["id"],
            branch=body["branch"],
            incarnation=body["incarnation"],
            sequence=int(body["sequence"]),
            parent=body["parent"],
            merged_parent=body["merged_parent"],
            actor=_text(body["actor"]),
            operation=body["operation"],
            message=_text(body["message"]),
            created_at=int(body["created_at"]),
            schema=body["schema"],
            tables={key: TablePin.from_body(pin) for key, pin in body["tables"].items()},
            touched=tuple(body["touched"]),
            recovered=bool(body["recovered"]),
        )


@dataclass(frozen=True, slots=True)
class HeadRecord:
    """Where a branch stands. A new branch stands at a commit that another branch made."""

    branch: str
    incarnation: str
    commit: CommitRecord

    def to_body(self) -> Body:
        """The JSON form."""
        return {"branch": self.branch, "incarnation": self.incarnation, "commit": self.commit.to_body()}

    @classmethod
    def from_body(cls, body: Body) -> HeadRecord:
        """Read the JSON form."""
        return cls(body["branch"], body["incarnation"], CommitRecord.from_body(body["commit"]))


@dataclass(frozen=True, slots=True)
class BranchEntry:
    """A live branch: its incarnation tells it from an earlier branch of the same name."""

    incarnation: str
    created_at: int
    created_by: str | None = None

    def to_body(self) -> Body:
        """The JSON form."""
        return {"incarnation": self.incarnation, "created_at": self.created_at, "created_by": self.created_by}

    @classmethod
    def from_body(cls, body: Body) -> BranchEntry:
        """Read the JSON form."""
        return cls(body["incarnation"], int(body["created_at"]), _text(body["created_by"]))


@dataclass(frozen=True, slots=True)
class Registry:
    """The graph's identity, its format stamp, and the branches that live.

    `epoch` grows with every replacement, so that two registries that say the same are still told apart.
    `next_id` is the next number for a type, property or table that no branch has used; 0 when nobody asked yet.
    """

    format: int
    graph_id: str
    created_at: int
    branches: Mapping[str, BranchEntry]
    epoch: int = 0
    next_id: int = 0

    def to_body(self) -> Body:
        """The JSON form."""
        return {
            "format": self.format,
            "graph_id": self.graph_id,
            "created_at": self.created_at,
            "branches": {name: entry.to_body() for name, entry in sorted(self.branches.items())},
            "epoch": self.epoch,
            "next_id": self.next_id,
        }

    @classmethod
    def from_body(cls, body: Body) -> Registry:
        """Read the JSON form."""
        branches = {name: BranchEntry.from_body(entry) for name, entry in body["branches"].items()}
        return cls(
            int(body["format"]),
            body["graph_id"],
            int(body["created_at"]),
            branches,
            int(body["epoch"]),
            int(body.get("next_id", 0)),
        )

    def touched(self) -> Registry:
        """The same registry, told apart from this one by its epoch alone."""
        return replace(self, epoch=self.epoch + 1)

    def counted_to(self, next_id: int) -> Registry:
        """The same registry with the numbers below one given away."""
        return replace(self, next_id=next_id, epoch=self.epoch + 1)

    def restamped(self, format_: int) -> Registry:
        """The same registry with another format stamp."""
        return replace(self, format=format_, epoch=self.epoch + 1)

    def with_branch(self, name: str, entry: BranchEntry) -> Registry:
        """The same registry with one branch more."""
        return replace(self, branches={**self.branches, name: entry}, epoch=self.epoch + 1)

    def without_branch(self, name: str) -> Registry:
        """The same registry with one branch fewer."""
        kept = {key: entry for key, entry in self.branches.items() if key != name}
        return replace(self, branches=kept, epoch=self.epoch + 1)


@dataclass(frozen=True, slots=True)
class RecoveryRecord:
    """What became of an interrupted bulk write. Its id is the operation's, so there is one per operation."""

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
        """The JSON form."""
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
        """Read the JSON form."""
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


def encode_body(body: Body) -> str:
    """The one text of a body: compact, keys as given."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def _text(value: Any) -> str | None:
    """What is recorded as text. There are graphs with numbers, from when nobody looked; they can be listed too."""
    return value if value is None or isinstance(value, str) else str(value)

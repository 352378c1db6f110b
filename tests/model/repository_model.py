"""A model of the repository in memory: branches with heads, commits with rows.

Table versions and commit ids are taken from the repository as opaque names. Rows, parents, outcomes and errors are
predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from omnigraph.graph.write_plan import OperationClass
from omnigraph.store.manifest.records import CommitRecord

Rows = dict[str, str | None]
Verdict = Literal["published", "again", "conflict", "gone"]


@dataclass(frozen=True)
class ModelCommit:
    """A commit: the rows of every table, the commit that last changed them, and the version that stores them."""

    id: str
    parent: str | None
    sequence: int
    rows: Mapping[str, Rows]
    content: Mapping[str, str]
    version: Mapping[str, int]


@dataclass(frozen=True)
class Effect:
    """A change of one table: rows to delete, then rows to insert. Maintenance changes none."""

    table: str
    insert: Rows = field(default_factory=dict)
    delete: frozenset[str] = frozenset()
    operation_class: OperationClass = "insert"

    def on(self, rows: Rows) -> Rows:
        kept = {id_: name for id_, name in rows.items() if id_ not in self.delete | self.insert.keys()}
        return {**kept, **self.insert}


@dataclass(frozen=True)
class Work:
    """A prepared and unpublished change on a commit of a branch incarnation.

    `fence` is the fence of garbage collection when it was prepared, None if an intent protects its files.
    """

    branch: str
    incarnation: str
    base: str
    effect: Effect | None
    commit_id: str = ""
    fence: int | None = None


@dataclass
class Model:
    """All commits, the branches with incarnation and head, and the interrupted writes."""

    commits: dict[str, ModelCommit] = field(default_factory=dict)
    branches: dict[str, tuple[str, str]] = field(default_factory=dict)
    left: dict[str, Work] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    fence: int = 0

    def head(self, branch: str) -> ModelCommit:
        return self.commits[self.branches[branch][1]]

    def history(self, branch: str) -> list[str]:
        """Return the ids of the first-parent history, newest first."""
        found = []
        id_: str | None = self.branches[branch][1]
        while id_ is not None:
            found.append(id_)
            id_ = self.commits[id_].parent
        return found

    def verdict(self, work: Work) -> Verdict:
        """Return the outcome of publishing a change now."""
        live = dict(self.branches.values())
        if work.incarnation not in live:
            return "gone"
        if work.fence not in (None, self.fence):
            return "again"
        effect = work.effect
        base, head = self.commits[work.base], self.commits[live[work.incarnation]]
        if effect is None or base.version[effect.table] == head.version[effect.table]:
            return "published"
        same_rows = base.content[effect.table] == head.content[effect.table]
        return "again" if same_rows or effect.operation_class != "strict" else "conflict"

    def publish(self, branch: str, effect: Effect, record: CommitRecord, version: int) -> None:
        """Add a commit to a branch. The record provides its id, and everything else is predicted."""
        incarnation, head = self.branches[branch]
        before = self.commits[head]
        changes = effect.operation_class != "maintenance"
        rows = effect.on(before.rows[effect.table]) if changes else before.rows[effect.table]
        content = record.id if changes else before.content[effect.table]
        self.commits[record.id] = ModelCommit(
            id=record.id,
            parent=head,
            sequence=before.sequence + 1,
            rows={**before.rows, effect.table: rows},
            content={**before.content, effect.table: content},
            version={**before.version, effect.table: version},
        )
        self.branches[branch] = (incarnation, record.id)

"""The difference between two states, and the types that name states and changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.api.results.commits import Commit, state_at
from omnigraph.api.results.receipts import by_type_name
from omnigraph.changes.change_records import (
    EVERYTHING,
    ChangeBlock,
    ChangeCause,
    ChangeFilter,
    EntityChange,
    Kind,
    Op,
)
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.graph.snapshot import Snapshot

__all__ = [
    "ChangeBlock",
    "ChangeCause",
    "ChangeFilter",
    "Diff",
    "EntityChange",
    "Kind",
    "Op",
    "State",
    "check_state",
    "named_state",
]

# A branch, a commit, the name of a commit, a time or a manifest version of main, or a snapshot.
State: TypeAlias = "str | int | datetime | Commit | Snapshot"


@dataclass(frozen=True)
class Diff(ABC):
    """The changes from the state `before` to the state `after`. Iterating reads them in batches.

    Nodes come before edges; types and entities are ordered by id. Renaming a type or a property is not a change,
    and neither is writing the same row again. `branch` is the branch that named the later state, if a branch did.
    """

    before: Snapshot
    after: Snapshot
    change_filter: ChangeFilter = EVERYTHING
    branch: str | None = None

    @abstractmethod
    def __iter__(self) -> Iterator[EntityChange]: ...

    @abstractmethod
    def stats(self) -> dict[str, Mapping[str, int]]:
        """Return the number of changes by type and operation. Types without changes are left out."""

    def __repr__(self) -> str:
        return f"Diff({self.before.commit_id} -> {self.after.commit_id})"

    @property
    def commits(self) -> tuple[str, str]:
        """The ids of the two commits."""
        return self.before.commit_id, self.after.commit_id

    def to_json(self) -> dict[str, Any]:
        """Return the changed entities without their values, edges before nodes and types by name.

        The result holds all changes in memory.
        """
        versions = {
            str(table.type_id): state.pin(key).number
            for state in (self.before, self.after)
            for key, table in state.catalog.tables.items()
        }
        counts: dict[str, Counter[str]] = {}
        changes: list[dict[str, Any]] = []
        for change in sorted(self, key=lambda change: (change.kind != "edge", change.type_name)):
            key = f"{change.kind}:{change.type_name}"
            counts.setdefault(key, Counter(insert=0, update=0, delete=0))[change.op] += 1
            changes.append(_outline(change, versions[change.type_id]))
        stats = by_type_name({key: dict(counted) for key, counted in counts.items()})
        return {**self.heading(), "changes": changes, "stats": stats}

    def heading(self) -> dict[str, Any]:
        """Return the members of the JSON form that name the two states."""
        versions: dict[str, Any] = {
            "from_graph_manifest_version": self.before.commit.sequence,
            "to_graph_manifest_version": self.after.commit.sequence,
        }
        return versions if self.branch is None else {**versions, "graph_branch": self.branch}


def check_state(state: State) -> str | datetime | Snapshot:
    """Return the state in the form that `Repository.snapshot` accepts; raise `InvalidInput` if it is None."""
    resolved = state_at(state)
    if resolved is None:
        raise InvalidInput("a diff needs two states", hint="name a branch, such as main, or a commit")
    return resolved


def named_state(state: State) -> str | datetime | Snapshot:
    """Return the state in the form that `find_state` accepts: a string is a branch name or a commit id."""
    return state if isinstance(state, str) else check_state(state)


def _outline(change: EntityChange, version: int) -> dict[str, Any]:
    """Return a change without its values. `version` is the number of the type's version."""
    outline = {
        "kind": change.kind,
        "type_name": change.type_name,
        "id": change.id,
        "op": change.op,
        "published_dataset_version": version,
    }
    image = change.after or change.before or {}
    if "endpoints" not in image:
        return outline
    ends = image["endpoints"]
    return {**outline, "endpoints": {"src": ends["from"], "dst": ends["to"]}}

"""The difference of two states as the API shows it, and the classes of everything that tells changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.api.commits import Commit, by_type_name, state_at
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
    from omnigraph.changes.diff import TypeDiff
    from omnigraph.graph.repository import Repository
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
    "find_diff",
    "named_state",
    "outline",
]

# A branch, a commit or its id, a moment on main, or a snapshot.
State: TypeAlias = "str | datetime | Commit | Snapshot"


@dataclass(frozen=True)
class Diff:
    """What is different in one state against another. Iterating reads the changes, some at a time.

    Nodes come before edges, types by their ids, entities by theirs. A rename is no change, and neither is a row
    that was written again as it was. `branch` is the branch that the later state was named by.
    """

    before: Snapshot
    after: Snapshot
    wanted: ChangeFilter = EVERYTHING
    branch: str | None = None

    def __iter__(self) -> Iterator[EntityChange]:
        from omnigraph.changes.diff import reading_both, stream_changes

        with reading_both(self.before, self.after):
            yield from stream_changes(self._types(), self.wanted)

    def __repr__(self) -> str:
        return f"Diff({self.before.commit_id} -> {self.after.commit_id})"

    @property
    def commits(self) -> tuple[str, str]:
        """The ids of the two commits."""
        return self.before.commit_id, self.after.commit_id

    def stats(self) -> dict[str, Mapping[str, int]]:
        """How many changes of each operation there are, by type; types without any are left out."""
        from omnigraph.changes.diff import reading_both

        with reading_both(self.before, self.after):
            return _by_type({diff.table.key: diff.count(self.wanted.ops) for diff in self._types()})

    def to_json(self) -> dict[str, Any]:
        """Which entities changed, without their values: edges before nodes, by type name. It is held in memory."""
        from omnigraph.changes.diff import reading_both

        changes: list[dict[str, Any]] = []
        counts: dict[str, Counter[str]] = {}
        with reading_both(self.before, self.after):
            for diff in sorted(self._types(), key=lambda diff: (diff.kind != "edge", diff.table.name)):
                counted = counts.setdefault(
                    diff.table.key, Counter(dict.fromkeys(("insert", "update", "delete"), 0))
                )
                for change in diff.changes(self.wanted.ops):
                    counted[change.op] += 1
                    changes.append(outline(change, str(diff.version)))
        return {**self.heading(), "changes": changes, "stats": _by_type(counts)}

    def heading(self) -> dict[str, Any]:
        """Which states these are, in the JSON form."""
        found: dict[str, Any] = {
            "from_graph_manifest_version": self.before.commit.sequence,
            "to_graph_manifest_version": self.after.commit.sequence,
        }
        return found if self.branch is None else {**found, "graph_branch": self.branch}

    def _types(self) -> list[TypeDiff]:
        from omnigraph.changes.diff import compare_states

        return compare_states(self.before, self.after, self.wanted)


def find_diff(repository: Repository, before: State, after: State, wanted: ChangeFilter) -> Diff:
    """The difference of two states that are there; nothing of them is read yet."""
    from omnigraph.changes.states import find_states

    states = find_states(repository, named_state(before), named_state(after), wanted)
    return Diff(states.before, states.after, wanted, states.branch)


def check_state(named: State) -> str | datetime | Snapshot:
    """The state that is meant, as storage knows it; `InvalidInput` for what is none."""
    found = state_at(named)
    if found is None:
        raise InvalidInput("a difference has two states", hint="name a branch, such as main, or a commit")
    return found


def named_state(state: State) -> str | datetime | Snapshot:
    """The state as storage knows it; a name stays a name."""
    return state if isinstance(state, str) else check_state(state)


def _by_type(counts: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
    return by_type_name({key: dict(found) for key, found in counts.items() if any(found.values())})


def outline(change: EntityChange, version: str) -> dict[str, Any]:
    """A change without its values; `version` is that of the type's data."""
    found = {
        "kind": change.kind,
        "type_name": change.type_name,
        "id": change.id,
        "op": change.op,
        "published_dataset_version": version,
    }
    image = change.after or change.before or {}
    if "endpoints" not in image:
        return found
    ends = image["endpoints"]
    return {**found, "endpoints": {"src": ends["from"], "dst": ends["to"]}}

"""What clients get of maintenance, and of what it found."""

from __future__ import annotations

from typing import Any

from omnigraph.protocol.responses import Answer, Commit


class Recovery(Answer):
    """What became of one interrupted bulk write; `created_at` counts microseconds."""

    operation_id: str
    outcome: str
    graph_branch: str
    operation: str
    actor_id: str | None
    graph_commit_id: str | None
    reason: str
    created_at: int


class Recoveries(Answer):
    """What became of interrupted bulk writes, newest first."""

    recoveries: list[Recovery]


class Index(Answer):
    """An index of a type: how many rows there are, and how many of them it covers."""

    type: str
    property: str
    kind: str
    rows: int
    covered: int


class Indexes(Answer):
    """The indexes of a state."""

    indexes: list[Index]


class Optimized(Answer):
    """What optimize did, type by type; without a commit there was nothing to do."""

    commit: Commit | None
    branch: str
    datasets: list[dict[str, Any]]


class Cleaned(Answer):
    """What cleanup removed, or would remove, type by type."""

    confirmed: bool
    datasets: list[dict[str, Any]]


class Repaired(Answer):
    """How many interrupted bulk writes there were, and what became of those that were settled."""

    confirmed: bool
    pending: int
    settled: list[dict[str, Any]]

"""Response bodies of the maintenance routes. Class names are the OpenAPI component names."""

from __future__ import annotations

from typing import Any

from omnigraph.protocol.responses import CommitOutput, ResponseModel
from omnigraph.protocol.wire_types import Int64


class RecoveryOutput(ResponseModel):
    """Recovery outcome of one interrupted bulk write.

    `graph_branch` is null for `main`. `actor_id` is the actor of the write. `created_at` is in microseconds since
    the Unix epoch.
    """

    operation_id: str
    outcome: str
    graph_branch: str | None
    operation: str
    actor_id: str | None
    graph_commit_id: str | None
    reason: str
    created_at: Int64


class RecoveryListOutput(ResponseModel):
    """Recovery outcomes, newest first."""

    recoveries: list[RecoveryOutput]


class RunningQueryOutput(ResponseModel):
    """A running request. `query` is the text of a query, cut after 2,000 characters.

    `state` is `waiting` or `running`. `memory_bytes` is the estimated memory of the largest step so far.
    """

    id: str
    graph_id: str
    actor_id: str | None
    operation: str
    state: str
    query: str | None
    started_at: str
    seconds: float
    memory_bytes: Int64
    visited_edges: Int64
    cancellable: bool
    request_id: str


class RunningQueryListOutput(ResponseModel):
    """Running requests, the oldest first."""

    queries: list[RunningQueryOutput]


class CancelledQueryOutput(RunningQueryOutput):
    """A request that was to be cancelled. `cancelled` is false for a write that has begun."""

    cancelled: bool


class IndexOutput(ResponseModel):
    """An index: number of rows of the type and number of rows that the index covers."""

    type: str
    property: str
    kind: str
    rows: int
    covered: int


class IndexListOutput(ResponseModel):
    """Indexes of a snapshot."""

    indexes: list[IndexOutput]


class OptimizeOutput(ResponseModel):
    """Result of compaction and indexing by type. `commit` is null if nothing changed."""

    commit: CommitOutput | None
    branch: str
    datasets: list[dict[str, Any]]


class CleanupOutput(ResponseModel):
    """Result of garbage collection by type. Without `confirmed` nothing was removed."""

    confirmed: bool
    datasets: list[dict[str, Any]]
    objects_removed: int
    objects_error: str | None


class SettingsOutput(ResponseModel):
    """Settings of a graph. `retention` has `keep`, `older_than` and `thinned`, or `keep` with `forever`."""

    retention: dict[str, Any]


class DamageOutput(ResponseModel):
    """A damaged file, or a violated rule, with the branches, tags and commits that it affects."""

    kind: str
    problem: str
    file: str | None
    type_key: str | None
    property: str | None
    branches: list[str]
    commits: list[str]
    commit_count: int
    rows: int
    blocks_reads: bool
    remedy: str
    tags: list[str]


class BranchStateOutput(ResponseModel):
    """A branch and its newest intact commit. `head` is null if the head cannot be read."""

    branch: str
    head: str | None
    intact: bool
    newest_intact: str | None


class VerifyOutput(ResponseModel):
    """Result of a verification: what was checked, each damage, and the newest intact commit of each branch."""

    ok: bool
    quick: bool
    all_commits: bool
    commits: int
    versions: int
    files: int
    bytes_read: Int64
    rows: Int64
    not_recorded: int
    recorded: int
    reclaimed: int
    damage: list[DamageOutput]
    branches: list[BranchStateOutput]
    notes: list[str]


class RepairOutput(ResponseModel):
    """Number of pending bulk writes, the outcome of each recovered one, and the action for each type.

    `reset` is null unless the request resets a branch.
    """

    confirmed: bool
    pending: int
    settled: list[dict[str, Any]]
    graph_manifest_version: int
    datasets: list[dict[str, Any]]
    reset: dict[str, Any] | None

"""Response bodies of the HTTP API. Class names are the OpenAPI component names.

Routes answer with plain JSON data. These models document it, and tests validate responses against them. A member of
type ``X | None`` without other notes is always present and can be null.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypeAliasType

from omnigraph.protocol.wire_types import (
    BranchMergeOutcome,
    ChangeOpOutput,
    EntityKindOutput,
    Int32,
    Int64,
    LoadMode,
    MergeConflictKindOutput,
    ParamKind,
)


class ResponseModel(BaseModel):
    """Base of response bodies. Members that are not listed never occur."""

    model_config = ConfigDict(extra="forbid")


# --- server -----------------------------------------------------------------------------------------------


class HealthOutput(ResponseModel):
    """Result of the liveness check."""

    status: Literal["ok"]
    version: str
    internal_schema_version: Int32
    source_version: str | None = None


class ReadyOutput(ResponseModel):
    """Result of the readiness check."""

    status: Literal["ready"]


class GraphInfo(ResponseModel):
    """Id and storage location of a graph."""

    graph_id: str
    uri: str


class GraphListResponse(ResponseModel):
    """Graphs of the server, sorted by id."""

    graphs: list[GraphInfo]


class PermissionsOutput(ResponseModel):
    """The actions that the caller may perform. `target` is the target branch of merges and other branch actions."""

    actor_id: str | None
    branch: str
    target: str
    actions: dict[str, bool]


class GraphOutput(ResponseModel):
    """Id of a graph and the actor that the bearer token identifies."""

    graph_id: str
    actor_id: str | None = None


# --- commits and branches ---------------------------------------------------------------------------------


class CommitOutput(ResponseModel):
    """A commit. `graph_branch` is null for `main`. `created_at` is in microseconds since the Unix epoch.

    `message` and `recovered_by` are left out if the commit has none.
    """

    graph_commit_id: str
    graph_branch: str | None = None
    graph_manifest_version: Int64
    parent_commit_id: str | None = None
    merged_parent_commit_id: str | None = None
    actor_id: str | None = None
    created_at: Int64
    message: str | None = None
    recovered_by: str | None = None


class CommitListOutput(ResponseModel):
    """Commits, newest first."""

    commits: list[CommitOutput]


class BranchListOutput(ResponseModel):
    """Branch names, sorted. `next_after` is present if there are more names than `limit`."""

    branches: list[str]
    next_after: str | None = None


class BranchCreateOutput(ResponseModel):
    """Result of a branch creation."""

    uri: str
    from_: str = Field(alias="from")
    name: str
    actor_id: str | None = None


class BranchDeleteOutput(ResponseModel):
    """Result of a branch deletion."""

    uri: str
    name: str
    actor_id: str | None = None


class TagOutput(ResponseModel):
    """A tag. `created_at` is in microseconds since the Unix epoch. `message` is left out if there is none."""

    name: str
    graph_commit_id: str
    actor_id: str | None = None
    created_at: Int64
    message: str | None = None


class TagListOutput(ResponseModel):
    """Tags, sorted by name. `next_after` is present if there are more tags than `limit`."""

    tags: list[TagOutput]
    next_after: str | None = None


class TagDeleteOutput(ResponseModel):
    """Result of a tag deletion."""

    name: str
    actor_id: str | None = None


class MergeConflictOutput(ResponseModel):
    """A merge conflict. A resolution refers to it by `id`."""

    id: str
    entity_kind: EntityKindOutput | Literal["interface"]
    type_name: str
    entity_id: str | None = None
    kind: MergeConflictKindOutput
    property: str | None = None
    message: str
    base: Any
    ours: Any
    theirs: Any


class BranchMergeOutput(ResponseModel):
    """Result of a merge.

    `branch_deleted` and `branch_delete_error` are present only if `delete_branch` was requested, `dry_run` and
    `conflicts` only in a dry run.
    """

    source: str
    target: str
    outcome: BranchMergeOutcome
    actor_id: str | None = None
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None
    dry_run: bool | None = None
    conflicts: list[MergeConflictOutput] | None = None


class CommitRevertOutput(ResponseModel):
    """Result of a revert. `dry_run` and `conflicts` are present only in a dry run."""

    outcome: BranchMergeOutcome
    branch: str
    actor_id: str | None = None
    commit: CommitOutput | None = None
    dry_run: bool | None = None
    conflicts: list[MergeConflictOutput] | None = None


# --- reads ------------------------------------------------------------------------------------------------


class ReadTargetOutput(ResponseModel):
    """Branch or commit that was read; the other member is null."""

    branch: str | None = None
    snapshot: str | None = None


class LegacyReadOutput(ResponseModel):
    """Result of a query on the deprecated `/read` route."""

    query_name: str
    target: ReadTargetOutput
    row_count: int
    columns: list[str] = Field(default_factory=list)
    rows: list[dict[str, Any]]


class ReadOutput(LegacyReadOutput):
    """Result of a query. `graph_commit_id` is the commit that the rows were read at."""

    graph_commit_id: str | None = None


class ExplainOutput(ResponseModel):
    """Query plan."""

    plan: str


class EntityOutput(ResponseModel):
    """A node or an edge with its properties, or null if it does not exist."""

    entity: dict[str, Any] | None


class NeighborEdgeOutput(ResponseModel):
    """An edge of a node. `direction` is `out` if the node is its source."""

    type: str
    id: str
    direction: Literal["out", "in"]
    from_: str = Field(alias="from")
    to: str
    properties: dict[str, Any]


class NeighborNodeOutput(ResponseModel):
    """The node at the other end of an edge."""

    type: str
    id: str
    properties: dict[str, Any]


class NeighborOutput(ResponseModel):
    """An edge and the node at its other end, without Blob and Vector values."""

    edge: NeighborEdgeOutput
    node: NeighborNodeOutput


class NeighborCountOutput(ResponseModel):
    """Number of edges of one type in one direction."""

    edge: str
    direction: Literal["out", "in"]
    count: int


class NeighborsOutput(ResponseModel):
    """The edges of a node. `counts` also counts those that the limit leaves out."""

    type: str
    id: str
    neighbors: list[NeighborOutput]
    counts: list[NeighborCountOutput]


class StateOutput(ResponseModel):
    """The commit that a branch, commit id or timestamp refers to. `branch` is null unless a branch was named."""

    branch: str | None
    graph_commit_id: str


class DiffStatsOutput(ResponseModel):
    """Number of changes between two commits by type and operation."""

    before: str
    after: str
    branch: str | None
    stats: dict[str, dict[ChangeOpOutput, int]]


class SnapshotDatasetOutput(ResponseModel):
    """Data of one type in a snapshot.

    `published_dataset_version` counts the versions of the type that the commits of the branch have published.
    """

    entity_kind: EntityKindOutput
    type_name: str
    dataset_path: str
    published_dataset_version: Int64
    native_dataset_branch: str | None = None
    entity_count: Int64


class SnapshotOutput(ResponseModel):
    """Types of a snapshot with their data versions and entity counts."""

    graph_branch: str
    graph_manifest_version: Int64
    internal_schema_version: Int32
    datasets: list[SnapshotDatasetOutput]


# --- writes -----------------------------------------------------------------------------------------------


class ChangeOutput(ResponseModel):
    """Result of a mutation. `commit` is null if the mutation changed nothing."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None = None
    commit: CommitOutput | None = None


class GraphBatchDeclarationOutput(ResponseModel):
    """Number of loaded records of one type."""

    name: str
    entities_loaded: int


class LoadWarningOutput(ResponseModel):
    """A value that a permissive load stored as null, or a field that it dropped. `record` counts from 1."""

    kind: Literal["nulled", "dropped"]
    message: str
    type: str
    property: str
    record: int
    source: str | None = None


class LoadWarningsOutput(ResponseModel):
    """Values that a permissive load stored as null, and fields that it dropped. `items` lists the first of them."""

    nulled: int
    dropped: int
    items: list[LoadWarningOutput]


class GraphBatchLoadOutput(ResponseModel):
    """Result of a load. `nodes` and `edges` list the types in the input, sorted by name.

    A load with operations has the rows inserted, updated and deleted per type in `affected`, and the input rows
    that were superseded, unchanged or absent in `skipped`. `unindexed` counts the rows per type that the next
    optimize indexes.
    """

    branch: str
    base_branch: str | None = None
    branch_created: bool
    mode: LoadMode
    nodes: list[GraphBatchDeclarationOutput]
    edges: list[GraphBatchDeclarationOutput]
    total_entities: int
    actor_id: str | None = None
    commit: CommitOutput | None = None
    warnings: LoadWarningsOutput | None = None
    affected: dict[str, dict[str, int]] | None = None
    skipped: dict[str, dict[str, int]] | None = None
    unindexed: dict[str, int] | None = None


class IngestOutput(GraphBatchLoadOutput):
    """Result of a load from a JSON body."""

    uri: str


class SchemaOutput(ResponseModel):
    """Text of the accepted schema."""

    schema_source: str


class SchemaPlanOutput(ResponseModel):
    """Steps of a schema migration. `supported` is false if a step is rejected."""

    supported: bool
    steps: list[dict[str, Any]]


class SchemaApplyOutput(ResponseModel):
    """Result of a schema migration."""

    uri: str
    supported: bool
    applied: bool
    step_count: int
    graph_manifest_version: Int64
    steps: list[dict[str, Any]]


# --- stored queries ---------------------------------------------------------------------------------------


class ParamDescriptor(ResponseModel):
    """Parameter of a stored query. `item_kind` is present for lists, `vector_dim` for vectors."""

    name: str
    kind: ParamKind
    item_kind: ParamKind | None = None
    vector_dim: Int32 | SkipJsonSchema[None] = None
    nullable: bool


class QueryCatalogEntry(ResponseModel):
    """A stored query with its parameters."""

    name: str
    tool_name: str
    description: str | None = None
    instruction: str | None = None
    mutation: bool
    params: list[ParamDescriptor]


class QueriesCatalogOutput(ResponseModel):
    """Stored queries of a graph."""

    queries: list[QueryCatalogEntry]


# The result of a read query or of a mutation.
InvokeStoredQueryResponse = TypeAliasType("InvokeStoredQueryResponse", ReadOutput | ChangeOutput)

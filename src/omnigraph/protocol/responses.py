"""What clients get: the members of every response body. Answers are plain data; this is what they promise."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from omnigraph.api.changes import Kind, Op
from omnigraph.protocol.requests import Mode

Outcome: TypeAlias = Literal["already_up_to_date", "fast_forward", "merged"]


class Answer(BaseModel):
    """A body that has these members and no others."""

    model_config = ConfigDict(extra="forbid")


class Health(Answer):
    """That the process is alive, and what it is."""

    status: Literal["ok"]
    version: str
    internal_schema_version: int
    source_version: str | None = None


class Ready(Answer):
    """That graphs are served."""

    status: Literal["ready"]


class GraphEntry(Answer):
    """A graph that is served."""

    graph_id: str
    uri: str


class GraphInfo(Answer):
    """A graph, and whom the server takes the caller for. Where it is stored is for those who may list graphs."""

    graph_id: str
    actor_id: str | None


class Graphs(Answer):
    """The graphs that are served, by id."""

    graphs: list[GraphEntry]


class Commit(Answer):
    """A commit; `graph_branch` is null for main, `created_at` counts microseconds."""

    graph_commit_id: str
    graph_branch: str | None
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int
    message: str | None = None
    recovered_by: str | None = None


class Commits(Answer):
    """A history, newest first."""

    commits: list[Commit]


class Target(Answer):
    """The state that was read: one of the two is null."""

    branch: str | None
    snapshot: str | None


class Read(Answer):
    """The rows of a read, and the commit they were read from."""

    query_name: str
    target: Target
    row_count: int
    columns: list[str] = Field(default_factory=list)
    rows: list[dict[str, Any]]
    graph_commit_id: str | None = None


class Explained(Answer):
    """How a read would be run."""

    plan: str


class Entity(Answer):
    """A node or an edge with its properties, or null."""

    entity: dict[str, Any] | None


class State(Answer):
    """The commit that a state is the one of, and the branch when it was named by one."""

    branch: str | None
    graph_commit_id: str


class DiffStats(Answer):
    """How many changes lie between two commits, by type and operation."""

    before: str
    after: str
    branch: str | None
    stats: dict[str, dict[Op, int]]


class Change(Answer):
    """What a mutation did; without a commit nothing matched."""

    branch: str
    query_name: str | None
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: Commit | None


class Loaded(Answer):
    """How many records of a type were loaded."""

    name: str
    entities_loaded: int


class Load(Answer):
    """What a load did."""

    uri: str | None = None
    branch: str
    base_branch: str | None
    branch_created: bool
    mode: Mode
    nodes: list[Loaded]
    edges: list[Loaded]
    total_entities: int
    actor_id: str | None
    commit: Commit | None


class Branches(Answer):
    """The names of all branches, sorted."""

    branches: list[str]


class BranchCreated(Answer):
    """A branch that was made."""

    uri: str
    from_: str = Field(alias="from")
    name: str
    actor_id: str | None


class BranchDeleted(Answer):
    """A branch that was deleted."""

    uri: str
    name: str
    actor_id: str | None


class MergeConflict(Answer):
    """Something that both sides of a merge changed differently, under the id that a resolution names it by."""

    id: str
    entity_kind: Kind
    type_name: str
    entity_id: str | None
    kind: str
    property: str | None
    message: str
    base: Any
    ours: Any
    theirs: Any


class Merge(Answer):
    """What a merge did; what became of the source only when it was to be deleted, conflicts only of a trial."""

    source: str
    target: str
    outcome: Outcome
    actor_id: str | None
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None
    dry_run: bool | None = None
    conflicts: list[MergeConflict] | None = None


class Reverted(Answer):
    """What a revert did; with a trial, what it would do and what stands in its way."""

    outcome: Outcome
    branch: str
    actor_id: str | None
    commit: Commit | None
    dry_run: bool | None = None
    conflicts: list[MergeConflict] | None = None


class Dataset(Answer):
    """The data of one type in a state; the version is text, because it uses all 64 bits."""

    entity_kind: Kind
    type_name: str
    dataset_path: str
    published_dataset_version: str
    native_dataset_branch: str | None
    entity_count: int


class Snapshot(Answer):
    """What a state consists of."""

    graph_branch: str
    graph_manifest_version: int
    internal_schema_version: int
    datasets: list[Dataset]


class QueryParam(Answer):
    """A parameter of a stored query."""

    name: str
    kind: str
    item_kind: str | None = None
    vector_dim: int | None = None
    nullable: bool


class QueryEntry(Answer):
    """A stored query."""

    name: str
    tool_name: str
    description: str | None = None
    instruction: str | None = None
    mutation: bool
    params: list[QueryParam]


class Queries(Answer):
    """The stored queries of a graph."""

    queries: list[QueryEntry]


class Schema(Answer):
    """The accepted schema."""

    schema_source: str


class Plan(Answer):
    """The steps to another schema, and whether all of them can be taken."""

    supported: bool
    steps: list[dict[str, Any]]


class SchemaApplied(Answer):
    """What a schema change did."""

    uri: str
    supported: bool
    applied: bool
    step_count: int
    graph_manifest_version: int
    steps: list[dict[str, Any]]


class Cause(Answer):
    """The commit that changes belong to."""

    graph_commit_id: str
    parent_commit_id: str | None = None
    merged_parent_commit_id: str | None = None
    authored_branch: str
    actor_id: str | None = None
    authored_at: int


class ChangedType(Answer):
    """The type of a changed entity; its id survives renames."""

    id: str
    name: str


class EntityChange(Answer):
    """One entity as it was before and is after."""

    kind: Kind
    type: ChangedType
    id: str
    op: Op
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class Block(Answer):
    """The changes of one commit."""

    cause: Cause
    changes: list[EntityChange]


class CommitChanges(Block):
    """The changes of one commit, or a page of them."""

    next_page_token: str | None = None


class Feed(Answer):
    """The changes of a branch: a page that ends within a commit has a token, any other a cursor."""

    blocks: list[Block]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool | None = None


class TextProblem(Answer):
    """A place in the text of a query or a schema, counted from 1, and what is wrong there."""

    line: int
    column: int
    message: str
    hint: str | None = None


class Failure(BaseModel):
    """Every refusal: what happened, its kind, and the facts of that kind."""

    model_config = ConfigDict(extra="forbid")

    error: str
    code: (
        Literal[
            "unauthorized",
            "forbidden",
            "bad_request",
            "not_found",
            "method_not_allowed",
            "conflict",
            "too_many_requests",
            "internal",
        ]
        | None
    ) = None
    merge_conflicts: list[MergeConflict] | None = None
    manifest_conflict: dict[str, Any] | None = None
    published_dataset_version_conflict: dict[str, Any] | None = None
    read_set_conflict: dict[str, Any] | None = None
    key_conflict: dict[str, Any] | None = None
    resource_limit: dict[str, Any] | None = None
    blob_range: dict[str, Any] | None = None
    external_blob_source: dict[str, Any] | None = None
    recovery_required: dict[str, Any] | None = None
    precondition_failure: dict[str, Any] | None = None
    change_feed_gap: dict[str, Any] | None = None
    change_diff_refusal: dict[str, Any] | None = None
    outcome_unknown: dict[str, Any] | None = None
    hint: str | None = None
    diagnostics: list[TextProblem] | None = None
    request_id: str | None = None
    exception: dict[str, Any] | None = None

"""Request bodies of the HTTP API. Class names are the OpenAPI component names."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from omnigraph.budget.query_budget import QueryLimits
from omnigraph.protocol.wire_types import ChangeOpOutput, EntityKindOutput, LoadMode
from omnigraph.read.export.export_parts import ExportFormat


def _strip_branch_name(name: str) -> str:
    if not name.strip():
        raise ValueError("branch name cannot be empty")
    return name.strip()


def _strip_tag_name(name: str) -> str:
    if not name.strip():
        raise ValueError("tag name cannot be empty")
    return name.strip()


def _parse_timestamp(text: Any) -> datetime:
    try:
        timestamp = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise ValueError("expected an ISO 8601 timestamp, such as 2026-05-04T12:00:00Z") from error
    if timestamp.tzinfo is None:
        raise ValueError("a timestamp needs a time zone, such as Z or +02:00")
    return timestamp


# Stripped here, so that policy checks and the graph see the same name.
BranchName: TypeAlias = Annotated[str, AfterValidator(_strip_branch_name)]
TagName: TypeAlias = Annotated[str, AfterValidator(_strip_tag_name)]
Timestamp: TypeAlias = Annotated[datetime, BeforeValidator(_parse_timestamp)]

_QUERY = AliasChoices("query", "query_source")
_NAME = AliasChoices("name", "query_name")


def _document_null(schema: dict[str, Any]) -> None:
    """Document that members with a default also accept null."""
    for name, member in schema.get("properties", {}).items():
        if member.get("default") is not None:
            moved = {key: member.pop(key) for key in ("default", "title") if key in member}
            schema["properties"][name] = {"anyOf": [member, {"type": "null"}], **moved}


class RequestModel(BaseModel):
    """Base of request bodies. For an optional member, null means the same as leaving it out."""

    model_config = ConfigDict(strict=True, json_schema_extra=_document_null)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        optional = {item.alias or name for name, item in cls.model_fields.items() if not item.is_required()}
        return {name: value for name, value in body.items() if value is not None or name not in optional}


class LenientRequest(RequestModel):
    """Base of request bodies that ignore unknown members."""

    model_config = ConfigDict(extra="ignore")


class StrictRequest(RequestModel):
    """Base of request bodies that reject unknown members."""

    model_config = ConfigDict(extra="forbid")


class SnapshotSelector(LenientRequest):
    """The snapshot to read: the head of a branch, a commit, or a branch at a point in time."""

    branch: BranchName | None = None
    snapshot: str | None = None
    at: Timestamp | None = None


class LimitedRequest(SnapshotSelector):
    """A read that may lower the limits of the server."""

    timeout_seconds: float | None = Field(default=None, gt=0, description="Time limit.")
    max_rows: int | None = Field(default=None, gt=0, description="Limit of result rows.")
    max_bytes: int | None = Field(default=None, gt=0, description="Limit of memory, estimated.")
    max_edges: int | None = Field(default=None, gt=0, description="Limit of edges that the query follows.")

    @property
    def limits(self) -> QueryLimits:
        """The limits of the request."""
        return QueryLimits(self.timeout_seconds, self.max_rows, self.max_bytes, self.max_edges)


class QueryRequest(LimitedRequest):
    """Query request. `name` selects one query if the text contains several."""

    query: str = Field(validation_alias=_QUERY)
    name: str | None = Field(default=None, validation_alias=_NAME)
    params: dict[str, Any] | None = None


class LintRequest(SnapshotSelector):
    """Request to check a text: queries against the schema of the snapshot, or a schema."""

    query: str | None = None
    schema_source: str | None = None


class ReadRequest(LimitedRequest):
    """Query request of the deprecated `/read` route."""

    query_source: str
    query_name: str | None = None
    params: dict[str, Any] | None = None


class ChangeRequest(LenientRequest):
    """Mutation request. `name` selects one query if the text contains several."""

    query: str = Field(validation_alias=_QUERY)
    name: str | None = Field(default=None, validation_alias=_NAME)
    params: dict[str, Any] | None = None
    branch: BranchName = "main"
    message: str | None = None
    idempotency_key: str | None = None


class InvokeStoredQueryRequest(LimitedRequest):
    """Request to run a stored query with parameters."""

    params: dict[str, Any] | None = None
    expect_mutation: bool | None = None


class IngestRequest(LenientRequest):
    """Load request with the records as one text."""

    data: str
    branch: BranchName = "main"
    from_: BranchName | None = Field(default=None, alias="from")
    mode: LoadMode = "merge"


class ExportRequest(StrictRequest):
    """Export request. Without `type_names`, or with an empty list, all types are exported.

    `table_keys` is an earlier name: each key is a type name with the prefix ``node:`` or ``edge:``.
    """

    branch: BranchName = "main"
    snapshot: str | None = None
    at: Timestamp | None = None
    type_names: list[str] | None = None
    table_keys: list[str] | None = None

    def types(self, *, exact: bool) -> list[str] | None:
        """Return the types to export; None for all. If `exact` is true, an empty list means no types.

        >>> ExportRequest(table_keys=[]).types(exact=False)
        >>> ExportRequest(table_keys=["node:Person"]).types(exact=False)
        ['Person']
        """
        if exact and self.type_names is not None:
            return self.type_names
        keys = [key.rpartition(":")[2] for key in self.table_keys or ()]
        return [*(self.type_names or ()), *keys] or None


class ExportFilesRequest(ExportRequest):
    """Export request with a file format."""

    format: ExportFormat = "ndjson"


class ChangeBaselineRequest(StrictRequest):
    """Change feed baseline request. The filters apply to the records and to the feed that follows."""

    branch: BranchName = "main"
    kind: list[EntityKindOutput] | None = None
    type: list[str] | None = None
    op: list[ChangeOpOutput] | None = None


class BranchCreateRequest(LenientRequest):
    """Branch creation request. The branch starts at the head of `from`, at a commit, or at a point in time."""

    name: BranchName
    from_: BranchName = Field(default="main", alias="from")
    snapshot: str | None = None
    at: Timestamp | None = None


class TagCreateRequest(LenientRequest):
    """Tag creation request. `at` is a branch, a tag, a commit id, or a time on `main` in ISO 8601."""

    name: TagName
    at: str = "main"
    message: str | None = None


class ThreeWayMergeRequest(LenientRequest):
    """Members that merge and revert requests share."""

    resolve: str | dict[str, Any] | None = None
    dry_run: bool = False
    message: str | None = None
    if_commit: str | None = None


class BranchMergeRequest(ThreeWayMergeRequest):
    """Branch merge request."""

    source: BranchName
    target: BranchName = "main"
    delete_branch: bool = False


class CommitRevertRequest(ThreeWayMergeRequest):
    """Revert request."""

    branch: BranchName = "main"


class BackfillValue(StrictRequest):
    """Constant for a new property, which is named as ``Type.property``."""

    property: str
    value: Any


class BackfillExpression(StrictRequest):
    """Expression over the existing row for a new property, which is named as ``Type.property``."""

    property: str
    expr: str


class SchemaPlanRequest(LenientRequest):
    """Schema migration plan request."""

    schema_source: str
    allow_data_loss: bool = False
    branch: BranchName = "main"
    backfill: list[BackfillValue | BackfillExpression] | None = None


class SchemaApplyRequest(SchemaPlanRequest):
    """Schema migration request."""

    message: str | None = None
    if_commit: str | None = None


class OptimizeRequest(LenientRequest):
    """Compaction and indexing request."""

    branch: BranchName = "main"
    message: str | None = None


class CleanupRequest(LenientRequest):
    """Garbage collection request. Dry run unless `confirm` is true."""

    keep: int | None = None
    older_than: str | None = None
    confirm: bool = False
    grace: str | None = None


class SettingsRequest(LenientRequest):
    """Change of the settings. `retention` is a text such as `forever`, or an object with its fields."""

    retention: str | dict[str, Any]


class VerifyRequest(LenientRequest):
    """Verification request. `branch` restricts it to one branch; `record` adds missing digests."""

    quick: bool = False
    all_commits: bool = False
    branch: BranchName | None = None
    record: bool = False


class RepairRequest(LenientRequest):
    """Recovery request. Dry run unless `confirm` is true. `force` also discards unreadable intents.

    `reset_branch` resets a damaged branch to the commit `to`, by default to its newest intact commit.
    """

    confirm: bool = False
    force: bool = False
    reset_branch: BranchName | None = None
    to: str | None = None

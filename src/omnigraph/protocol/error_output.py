"""Error bodies of the HTTP API. Class names are the OpenAPI component names.

Members without a value are left out of the body.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import SkipJsonSchema

from omnigraph.protocol.responses import MergeConflictOutput, ResponseModel
from omnigraph.protocol.wire_types import ChangeDiffRefusalReason, EntityKindOutput, ErrorCode, Int64


class ResourceLimitOutput(ResponseModel):
    """A limit that was exceeded. `actual` is the smallest exceeding value if the exact value is unknown."""

    resource: str
    limit: Int64
    actual: Int64


class RecoveryRequiredOutput(ResponseModel):
    """The interrupted operation that has to be repaired first."""

    operation_id: str


class ChangeFeedGapOutput(ResponseModel):
    """The first commit whose changes can no longer be read."""

    cursor: str | None = None
    first_unreadable_commit_id: str


class ChangeDiffRefusalOutput(ResponseModel):
    """Why the changes of a commit cannot be computed."""

    reason: ChangeDiffRefusalReason
    graph_commit_id: str
    type_name: str | None = None


class BlobRangeOutput(ResponseModel):
    """A byte range that cannot be satisfied and the length of the value.

    The range is half-open: `end` is not included. It equals `length` if the requested range is open-ended.
    """

    start: Int64
    end: Int64
    length: Int64


class ExternalBlobSourceOutput(ResponseModel):
    """An external blob that cannot be read."""

    uri: str
    reason: str


class KeyConflictOutput(ResponseModel):
    """An entity whose id already exists."""

    entity_kind: EntityKindOutput
    type_name: str
    entity_id: str | None = None


class PreconditionFailureOutput(ResponseModel):
    """Expected and actual head commit of a conditional write."""

    expected: str
    actual: str | None = None


class PublishedDatasetVersionConflictOutput(ResponseModel):
    """A type that another commit changed. The versions are numbers of the type's versions on the branch."""

    entity_kind: EntityKindOutput
    type_name: str
    expected_published_dataset_version: Int64
    actual_published_dataset_version: Int64


class ReadSetConflictOutput(ResponseModel):
    """A member of the read set that another commit changed."""

    member: str
    expected: str | None = None
    actual: str | None = None


class ManifestConflictOutput(ResponseModel):
    """A manifest entry that another commit changed."""

    table_key: str
    expected: str | None = None
    actual: str | None = None


class CancelledOutput(ResponseModel):
    """Why a request was cancelled."""

    reason: str | None = None


class OutcomeUnknownOutput(ResponseModel):
    """The commit of a write whose outcome is unknown."""

    graph_commit_id: str | None = None


class StorageFailureOutput(ResponseModel):
    """The cause of a storage error. `reason` is `damaged` for a damaged file and `vanished` for missing storage."""

    kind: str
    reason: str | None = None
    type_name: str | None = None
    property: str | None = None
    file: str | None = None
    graph_commit_id: str | None = None
    graph_branch: str | None = None


class DiagnosticOutput(ResponseModel):
    """An error in a query or schema text. Lines and columns are counted from 1."""

    line: int
    column: int
    message: str
    hint: str | None = None


class ViolationOutput(ResponseModel):
    """An invalid record of a load, or a violation of a constraint. `line`, `row` and `record` count from 1."""

    message: str
    rule: str | None = None
    entity_kind: str | None = None
    type_name: str | None = None
    entity_id: str | None = None
    property: str | None = None
    source: str | None = None
    line: int | None = None
    row: int | None = None
    record: int | None = None
    column: str | int | None = None
    hint: str | None = None


class ChangeErrorOutput(ResponseModel):
    """Error of a change route."""

    error: str
    code: ErrorCode | None = None
    change_diff_refusal: ChangeDiffRefusalOutput | None = None
    change_feed_gap: ChangeFeedGapOutput | None = None
    recovery_required: RecoveryRequiredOutput | None = None
    resource_limit: ResourceLimitOutput | None = None
    cancelled: CancelledOutput | None = None
    hint: str | None = None
    diagnostics: list[DiagnosticOutput] | None = None
    request_id: str | None = None
    exception: dict[str, Any] | None = None


class ErrorOutput(ChangeErrorOutput):
    """Error of any other route. Each kind of error has its own details member."""

    merge_conflicts: list[MergeConflictOutput] | SkipJsonSchema[None] = None
    manifest_conflict: ManifestConflictOutput | None = None
    published_dataset_version_conflict: PublishedDatasetVersionConflictOutput | None = None
    read_set_conflict: ReadSetConflictOutput | None = None
    key_conflict: KeyConflictOutput | None = None
    blob_range: BlobRangeOutput | None = None
    external_blob_source: ExternalBlobSourceOutput | None = None
    precondition_failure: PreconditionFailureOutput | None = None
    outcome_unknown: OutcomeUnknownOutput | None = None
    storage_failure: StorageFailureOutput | None = None
    violations: list[ViolationOutput] | SkipJsonSchema[None] = None
    violation_count: int | None = None
    unready_graphs: dict[str, str] | None = None

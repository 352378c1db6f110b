"""Response bodies of the change routes. Class names are the OpenAPI component names."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from omnigraph.protocol.responses import CommitOutput, ResponseModel
from omnigraph.protocol.wire_types import ChangeOpOutput, EntityKindOutput, Int64


class ChangeCauseOutput(ResponseModel):
    """The commit that made the changes. `authored_at` is in microseconds since the Unix epoch."""

    graph_commit_id: str
    parent_commit_id: str | None = None
    merged_parent_commit_id: str | None = None
    authored_branch: str
    actor_id: str | None = None
    authored_at: Int64


class ChangeTypeOutput(ResponseModel):
    """Type of a changed entity. The id stays the same when the type is renamed."""

    id: str
    name: str


class ChangeEndpointsOutput(ResponseModel):
    """Source and target node ids of an edge."""

    from_: str = Field(alias="from")
    to: str


class ChangeImageOutput(ResponseModel):
    """Properties of an entity and, for an edge, its endpoints."""

    endpoints: ChangeEndpointsOutput | None = None
    properties: dict[str, Any]


class EntityChangeOutput(ResponseModel):
    """Change of one entity. An insert has only `after`, a delete only `before`."""

    kind: EntityKindOutput
    type: ChangeTypeOutput
    id: str
    op: ChangeOpOutput
    before: ChangeImageOutput | None = None
    after: ChangeImageOutput | None = None


class ChangeBlockOutput(ResponseModel):
    """Changes of one commit."""

    cause: ChangeCauseOutput
    changes: list[EntityChangeOutput]


class CommitChangesOutput(ChangeBlockOutput):
    """A page of the changes of one commit. The last page has no token."""

    next_page_token: str | None = None


class ChangeFeedOutput(ResponseModel):
    """A page of the change feed.

    A page that ends within a commit has `next_page_token`; any other page has `cursor` and `caught_up`.
    """

    blocks: list[ChangeBlockOutput]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool | None = None


class EntityVersionOutput(ResponseModel):
    """A commit that changed an entity. An insert has only `after`, a delete only `before`.

    `changed` has the properties that an update changed. `op` is `unknown` if it would be `insert`, but the states
    before were reclaimed or may not be read. With `gap`, states between this version and the one before were
    reclaimed.
    """

    commit: CommitOutput
    operation: str
    op: Literal["insert", "update", "delete", "unknown"]
    before: ChangeImageOutput | None = None
    after: ChangeImageOutput | None = None
    changed: list[str]
    gap: bool


class EntityHistoryOutput(ResponseModel):
    """Versions of an entity, newest first."""

    versions: list[EntityVersionOutput]


class PropertyOriginOutput(ResponseModel):
    """A property, its value, and the commit that set it. `exact` is false if the value may be older."""

    property: str
    value: Any
    commit: CommitOutput
    operation: str
    exact: bool


class EntityBlameOutput(ResponseModel):
    """Properties of an entity with the commits that set them."""

    properties: list[PropertyOriginOutput]


class ChangeBaselineOutput(ResponseModel):
    """Commit of a baseline and the cursor of the change feed that continues it."""

    snapshot_commit_id: str
    resume_cursor: str


class ChangeBaselineRecord(ResponseModel):
    """Last record of a baseline stream. A stream without it is incomplete."""

    baseline: ChangeBaselineOutput

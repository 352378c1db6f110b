"""What clients send: the members of every request body."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from omnigraph.api.changes import Kind, Op


def _trimmed(name: str) -> str:
    if not name.strip():
        raise ValueError("branch name cannot be empty")
    return name.strip()


def _moment(text: Any) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise ValueError("a time is text in ISO 8601, such as 2026-05-04T12:00:00Z") from error
    # What would be meant by any other depends on where one looks at a clock.
    if found.tzinfo is None:
        raise ValueError("a time needs its zone, such as Z or +02:00")
    return found


# Spelled with spaces around it, a branch is still the same one to everybody who is asked about it.
Branch: TypeAlias = Annotated[str, AfterValidator(_trimmed)]
Moment: TypeAlias = Annotated[datetime, BeforeValidator(_moment)]
Mode: TypeAlias = Literal["append", "merge", "overwrite"]

QUERY = AliasChoices("query", "query_source")
NAME = AliasChoices("name", "query_name")


def _allow_null(schema: dict[str, Any]) -> None:
    """Say in the document of a body what `Body` does."""
    for name, found in schema.get("properties", {}).items():
        if found.get("default") is not None:
            about = {key: found.pop(key) for key in ("default", "title") if key in found}
            schema["properties"][name] = {"anyOf": [found, {"type": "null"}], **about}


class Body(BaseModel):
    """Members of a body. For one that may be left out, null is the same as leaving it out."""

    model_config = ConfigDict(strict=True, json_schema_extra=_allow_null)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, found: Any) -> Any:
        if not isinstance(found, dict):
            return found
        absent = {item.alias or name for name, item in cls.model_fields.items() if not item.is_required()}
        return {name: value for name, value in found.items() if value is not None or name not in absent}


class Sent(Body):
    """A body of which unknown members are ignored."""

    model_config = ConfigDict(extra="ignore")


class Exact(Body):
    """A body of which unknown members are refused."""

    model_config = ConfigDict(extra="forbid")


class StateRequest(Sent):
    """A state: the newest of a branch, that of a commit, or that of a branch at a moment."""

    branch: Branch | None = None
    snapshot: str | None = None
    at: Moment | None = None


class QueryRequest(StateRequest):
    """A read: the text, the name of the query if there are several, its parameters, and the state to read."""

    query: str = Field(validation_alias=QUERY)
    name: str | None = Field(default=None, validation_alias=NAME)
    params: dict[str, Any] | None = None


class ReadRequest(StateRequest):
    """The same under the names it used to have."""

    query_source: str
    query_name: str | None = None
    params: dict[str, Any] | None = None


class MutateRequest(Sent):
    """A mutation."""

    query: str = Field(validation_alias=QUERY)
    name: str | None = Field(default=None, validation_alias=NAME)
    params: dict[str, Any] | None = None
    branch: Branch = "main"
    message: str | None = None
    idempotency_key: str | None = None


class StoredRequest(StateRequest):
    """The parameters of a stored query, and where it runs."""

    params: dict[str, Any] | None = None
    expect_mutation: bool | None = None


class LoadRequest(Sent):
    """Records as one text."""

    data: str
    branch: Branch = "main"
    from_: Branch | None = Field(default=None, alias="from")
    mode: Mode = "merge"


class ExportRequest(Exact):
    """What to export."""

    branch: Branch = "main"
    snapshot: str | None = None
    at: Moment | None = None
    type_names: list[str] | None = None


class BaselineRequest(Exact):
    """What to begin to follow."""

    branch: Branch = "main"
    kind: list[Kind] | None = None
    type: list[str] | None = None
    op: list[Op] | None = None


class BranchRequest(Sent):
    """A branch to make."""

    name: Branch
    from_: Branch = Field(default="main", alias="from")
    snapshot: str | None = None
    at: Moment | None = None


class CommitRequest(Sent):
    """What commits by the rules of a merge take: how conflicts are settled, and whether it is only a trial."""

    resolve: str | dict[str, Any] | None = None
    dry_run: bool = False
    message: str | None = None
    if_commit: str | None = None


class MergeRequest(CommitRequest):
    """A branch to bring into another."""

    source: Branch
    target: Branch = "main"
    delete_branch: bool = False


class RevertRequest(CommitRequest):
    """Where a commit is to be undone."""

    branch: Branch = "main"


class BackfillValue(Exact):
    """A value for a property that is new, called ``Type.property``."""

    property: str
    value: Any


class BackfillExpression(Exact):
    """An expression over the row as it was, for a property that is new."""

    property: str
    expr: str


class PlanRequest(Sent):
    """A schema that is wanted."""

    schema_source: str
    allow_data_loss: bool = False
    branch: Branch = "main"
    backfill: list[BackfillValue | BackfillExpression] | None = None


class SchemaRequest(PlanRequest):
    """A schema to make the accepted one."""

    message: str | None = None
    if_commit: str | None = None


class OptimizeRequest(Sent):
    """A branch to make quick to read."""

    branch: Branch = "main"
    message: str | None = None


class CleanupRequest(Sent):
    """How much history keeps its data; without `confirm` nothing is removed."""

    keep: int | None = None
    older_than: str | None = None
    confirm: bool = False


class RepairRequest(Sent):
    """Without `confirm` nothing is settled."""

    confirm: bool = False

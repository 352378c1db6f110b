"""What clients send: the members of every request body."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field

from omnigraph.api.changes import Kind, Op


def _trimmed(name: str) -> str:
    if not name.strip():
        raise ValueError("branch name cannot be empty")
    return name.strip()


# Spelled with spaces around it, a branch is still the same one to everybody who is asked about it.
Branch: TypeAlias = Annotated[str, AfterValidator(_trimmed)]
Mode: TypeAlias = Literal["append", "merge", "overwrite"]

QUERY = AliasChoices("query", "query_source")
NAME = AliasChoices("name", "query_name")


class Sent(BaseModel):
    """A body of which unknown members are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Exact(BaseModel):
    """A body of which unknown members are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class QueryRequest(Sent):
    """A read: the text, the name of the query if there are several, its parameters, and the state to read."""

    query: str = Field(validation_alias=QUERY)
    name: str | None = Field(default=None, validation_alias=NAME)
    params: dict[str, Any] | None = None
    branch: Branch | None = None
    snapshot: str | None = None


class ReadRequest(Sent):
    """The same under the names it used to have."""

    query_source: str
    query_name: str | None = None
    params: dict[str, Any] | None = None
    branch: Branch | None = None
    snapshot: str | None = None


class MutateRequest(Sent):
    """A mutation."""

    query: str = Field(validation_alias=QUERY)
    name: str | None = Field(default=None, validation_alias=NAME)
    params: dict[str, Any] | None = None
    branch: Branch = "main"


class StoredRequest(Sent):
    """The parameters of a stored query, and where it runs."""

    params: dict[str, Any] | None = None
    branch: Branch | None = None
    snapshot: str | None = None
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


class MergeRequest(Sent):
    """A branch to bring into another."""

    source: Branch
    target: Branch = "main"
    delete_branch: bool = False


class SchemaRequest(Sent):
    """A schema to make the accepted one."""

    schema_source: str
    allow_data_loss: bool = False

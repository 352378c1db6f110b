"""Enumerations and integer formats of the HTTP API.

Each alias appears in the OpenAPI document as a component of the same name.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import WithJsonSchema
from typing_extensions import TypeAliasType

from omnigraph.changes.change_records import Kind, Op
from omnigraph.merge.conflicts import ConflictKind
from omnigraph.rules import load_mode

BlobEntityKind = TypeAliasType("BlobEntityKind", Kind)
EntityKindOutput = TypeAliasType("EntityKindOutput", Kind)
ChangeOpOutput = TypeAliasType("ChangeOpOutput", Op)
LoadMode = TypeAliasType("LoadMode", load_mode.LoadMode)
IndexTime = TypeAliasType("IndexTime", load_mode.IndexTime)
MergeConflictKindOutput = TypeAliasType("MergeConflictKindOutput", ConflictKind)
BranchMergeOutcome = TypeAliasType(
    "BranchMergeOutcome", Literal["already_up_to_date", "fast_forward", "merged"]
)
ChangeDiffRefusalReason = TypeAliasType(
    "ChangeDiffRefusalReason", Literal["parentless_commit", "schema_boundary", "unknown"]
)
ParamKind = TypeAliasType(
    "ParamKind",
    Literal["string", "bool", "int", "bigint", "float", "date", "datetime", "blob", "vector", "list"],
)
ErrorCode = TypeAliasType(
    "ErrorCode",
    Literal[
        "unauthorized",
        "forbidden",
        "bad_request",
        "not_found",
        "method_not_allowed",
        "conflict",
        "too_many_requests",
        "internal",
    ],
)

Int32 = Annotated[int, WithJsonSchema({"type": "integer", "format": "int32"})]
Int64 = Annotated[int, WithJsonSchema({"type": "integer", "format": "int64"})]

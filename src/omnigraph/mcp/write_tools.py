"""The tools that write: mutations, loads of a few records, and branches."""

from __future__ import annotations

import io
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from omnigraph.api.graph import Graph
from omnigraph.errors import ResourceLimit
from omnigraph.mcp.read_tools import At, Params, QueryName, read_at
from omnigraph.mcp.tool import Arguments, Json, Tool
from omnigraph.protocol.result_bodies import change_body, load_body, merge_body

MAX_LOAD_BYTES: Final = 1_000_000

# Without a default, so that a write to main is always a decision of the caller.
WriteBranch: TypeAlias = Annotated[
    str,
    Field(
        description="Branch to write on. Prefer a branch of your own that is reviewed before it is merged."
    ),
]
Message: TypeAlias = Annotated[
    str | None, Field(description="Commit message: what changes and why, in one line.")
]


class MutateArguments(Arguments):
    query: Annotated[str, Field(description="Mutation text in the .gq language.")]
    params: Params
    name: QueryName = None
    branch: WriteBranch
    message: Message = None


class LoadArguments(Arguments):
    records: Annotated[
        str,
        Field(
            description="Graph NDJSON, one record a line: "
            '{"type": "Person", "data": {"name": "Ana"}} for a node, '
            '{"edge": "Knows", "from": "Ana", "to": "Bo", "data": {}} for an edge.'
        ),
    ]
    mode: Annotated[
        Literal["append", "merge", "patch"],
        Field(
            description="append refuses ids that exist, merge replaces whole rows, "
            "patch keeps properties that are not given."
        ),
    ] = "append"
    branch: WriteBranch
    message: Message = None


class BranchCreateArguments(Arguments):
    name: Annotated[str, Field(description="Name of the new branch.")]
    source: Annotated[str, Field(description="Branch to start from.")] = "main"
    at: At = None


class MergeArguments(Arguments):
    source: Annotated[str, Field(description="Branch with the changes.")]
    into: Annotated[str, Field(description="Branch that receives the changes.")] = "main"
    dry_run: Annotated[bool, Field(description="Report the outcome and the conflicts; commit nothing.")] = (
        False
    )
    resolve: Annotated[
        Literal["ours", "theirs"] | dict[str, Any] | None,
        Field(
            description='Resolution of conflicts: "ours" takes the values of `into`, "theirs" those of `source`; '
            'or an object from conflict id to "ours", "theirs" or {"value": ...}, with "*" for all others.'
        ),
    ] = None
    delete_source: Annotated[bool, Field(description="Delete the source branch after the merge.")] = False
    message: Message = None


def _mutate(graph: Graph, given: MutateArguments) -> Json:
    receipt = graph.mutate(
        given.query, given.params, name=given.name, branch=given.branch, message=given.message
    )
    return {**change_body(receipt, given.branch, graph.actor), "affected": _counts(receipt.affected)}


def _load(graph: Graph, given: LoadArguments) -> Json:
    data = given.records.encode("utf-8", "surrogatepass")
    if len(data) > MAX_LOAD_BYTES:
        raise ResourceLimit(
            f"the records have {len(data):,} bytes; this tool loads up to {MAX_LOAD_BYTES:,} bytes",
            hint="send fewer records in each call, or load a file with `omnigraph load`",
            details={"resource": "load_bytes", "limit": MAX_LOAD_BYTES, "actual": len(data)},
        )
    receipt = graph.load(
        io.BytesIO(data), given.mode, branch=given.branch, message=given.message, engine="local"
    )
    return {**load_body(receipt, None, None, graph.actor), "affected": _counts(receipt.affected)}


def _counts(affected: Any) -> Json:
    return {name: dict(counts) for name, counts in affected.items()}


def _create_branch(graph: Graph, given: BranchCreateArguments) -> Json:
    branch = graph.branches.create(given.name, given.source, at=read_at(given.at))
    return {"name": branch.name, "source": given.source, "graph_commit_id": branch.commit_id}


def _merge(graph: Graph, given: MergeArguments) -> Json:
    merged = graph.branches.merge(
        given.source,
        given.into,
        dry_run=given.dry_run,
        resolve=given.resolve,
        delete_source=given.delete_source,
        message=given.message,
    )
    body = {
        **merge_body(merged, given.source, given.into, graph.actor),
        "affected": _counts(merged.affected),
        "taken": list(merged.taken),
        "graph_commit_id": None if merged.commit is None else merged.commit.id,
    }
    if given.dry_run:
        body |= {"dry_run": True, "conflicts": [dict(item) for item in merged.conflicts]}
    return body


WRITE_TOOLS: Final[tuple[Tool[Any], ...]] = (
    Tool(
        "mutate",
        "Run a mutation in the .gq language on a branch, as one commit. All constraints are checked; a failed "
        "mutation changes nothing. Examples:\n\n"
        "query add($n: String) { insert Person { name: $n, age: 30 } }\n"
        "query birthday($n: String) { update Person set { age: 31 } where name = $n }\n"
        "query remove($n: String) { delete Person where name = $n }\n"
        "query meet($a: String, $b: String) { insert Knows { from: $a, to: $b } }",
        MutateArguments,
        _mutate,
        writes=True,
        destructive=True,
    ),
    Tool(
        "load_records",
        f"Insert or update nodes and edges from graph NDJSON of up to {MAX_LOAD_BYTES:,} bytes, as one commit.",
        LoadArguments,
        _load,
        writes=True,
        destructive=True,
    ),
    Tool(
        "create_branch",
        "Create a branch. No data is copied.",
        BranchCreateArguments,
        _create_branch,
        writes=True,
    ),
    Tool(
        "merge_branch",
        "Merge a branch into another as one commit. If both sides changed the same data, nothing is committed and "
        "the error lists the conflicts with the values of both sides. Review with diff_branches first.",
        MergeArguments,
        _merge,
        writes=True,
        destructive=True,
    ),
)

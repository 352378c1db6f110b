"""Routes of branches."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.api.interface.branches import Branch
from omnigraph.api.results.merges import Merged
from omnigraph.errors import InvalidInput
from omnigraph.protocol import responses
from omnigraph.protocol.requests import BranchCreateRequest, BranchMergeRequest, CommitRevertRequest
from omnigraph.protocol.result_bodies import commit_body, merge_body
from omnigraph.server.http.request_context import Context, Segment
from omnigraph.server.http.routing import (
    BLOB_WRITE_ERRORS,
    SUCCESS,
    USE_MEMBER,
    WRITE_ERRORS,
    error_responses,
    graph_router,
    reject_if_commit_header,
)

router = graph_router("branches")

# Larger than any number of branches.
_MAX_LIMIT = 2**53


@router.get(
    "/branches",
    operation_id="cluster_listBranches",
    response_model=responses.BranchListOutput,
    response_model_exclude_none=True,
    responses=SUCCESS,
)
async def list_branches(
    context: Context,
    prefix: Annotated[str, Query(description="Only names that begin with this text.")] = "",
    after: Annotated[str | None, Query(description="Only names that come after this one.")] = None,
    limit: Annotated[int | None, Query(ge=0, le=_MAX_LIMIT, description="Maximum number of names.")] = None,
) -> Response:
    """List branches, sorted by name. With `limit`, `next_after` is the value of `after` for the next page."""
    context.authorize("read")

    def work(graph: Graph) -> dict[str, Any]:
        if limit is None:
            return {"branches": graph.branches.list(prefix=prefix, after=after)}
        # One name more shows whether there is another page.
        found = graph.branches.list(prefix=prefix, after=after, limit=limit + 1)
        names = found[:limit]
        return {"branches": names, **({"next_after": names[-1]} if names and len(found) > limit else {})}

    return await context.read(work)


@router.post(
    "/branches",
    operation_id="cluster_createBranch",
    response_model=responses.BranchCreateOutput,
    responses={**SUCCESS, **error_responses(*WRITE_ERRORS)},
)
async def create_branch(context: Context, body: BranchCreateRequest) -> Response:
    """Create a branch. It starts at the head of another branch, at a commit, or at a point in time."""
    reject_if_commit_header(context.request)
    if body.snapshot is not None and body.at is not None:
        raise InvalidInput("`at` and `snapshot` are mutually exclusive")
    context.authorize("branch_create", body.from_, body.name)
    at = body.at if body.snapshot is None else body.snapshot
    if body.snapshot is None:
        # A commit is authorized by the graph handle, which has to look up its branch.
        context.authorize("read", body.from_)

    def to_body(branch: Branch) -> dict[str, Any]:
        return {"uri": context.uri, "from": body.from_, "name": branch.name, "actor_id": context.actor}

    return await context.write(lambda graph: graph.branches.create(body.name, body.from_, at=at), to_body)


@router.delete(
    "/branches/{branch}",
    operation_id="cluster_deleteBranch",
    response_model=responses.BranchDeleteOutput,
    responses={**SUCCESS, **error_responses(409, 429)},
)
async def delete_branch(context: Context, branch: Segment) -> Response:
    """Delete a branch. The name can be used again immediately."""
    reject_if_commit_header(context.request)
    name = branch.strip()
    context.authorize("branch_delete", target=name)

    def work(graph: Graph) -> dict[str, Any]:
        graph.branches.delete(name)
        return {"uri": context.uri, "name": name, "actor_id": context.actor}

    return await context.write(work)


@router.post(
    "/branches/merge",
    operation_id="cluster_mergeBranches",
    response_model=responses.BranchMergeOutput,
    response_model_exclude_none=True,
    responses={**SUCCESS, **error_responses(*BLOB_WRITE_ERRORS, 412)},
)
async def merge_branches(context: Context, body: BranchMergeRequest) -> Response:
    """Merge a branch into another as one commit. Conflicts are reported with 409, and nothing is changed."""
    reject_if_commit_header(context.request, USE_MEMBER)
    context.authorize("branch_merge", body.source, body.target)
    context.authorize("read", body.source)

    def work(graph: Graph) -> Merged:
        return graph.branches.merge(
            body.source,
            body.target,
            delete_source=body.delete_branch,
            resolve=body.resolve,
            dry_run=body.dry_run,
            message=body.message,
            if_commit=body.if_commit,
        )

    def to_body(result: Merged) -> dict[str, Any]:
        return {**merge_body(result, body.source, body.target, context.actor), **_dry_run_members(result)}

    return await context.write(work, to_body)


@router.post(
    "/commits/{commit_id}/revert",
    operation_id="cluster_revertCommit",
    response_model=responses.CommitRevertOutput,
    response_model_exclude_none=True,
    responses={**SUCCESS, **error_responses(*WRITE_ERRORS, 412)},
)
async def revert_commit(
    context: Context, commit_id: Segment, body: CommitRevertRequest | None = None
) -> Response:
    """Revert a commit with a new commit. Later changes are kept; conflicts with them are reported with 409."""
    reject_if_commit_header(context.request, USE_MEMBER)
    request = body or CommitRevertRequest()
    context.authorize("change", request.branch)

    def work(graph: Graph) -> Merged:
        return graph.revert(
            commit_id,
            branch=request.branch,
            resolve=request.resolve,
            dry_run=request.dry_run,
            message=request.message,
            if_commit=request.if_commit,
        )

    def to_body(result: Merged) -> dict[str, Any]:
        return {
            "outcome": result.outcome,
            "branch": request.branch,
            "actor_id": context.actor,
            "commit": None if result.commit is None else commit_body(result.commit),
            **_dry_run_members(result),
        }

    return await context.write(work, to_body)


def _dry_run_members(result: Merged) -> dict[str, Any]:
    """Return the members of a dry run. In a real merge, conflicts are raised."""
    return {"dry_run": True, "conflicts": list(result.conflicts)} if result.dry_run else {}

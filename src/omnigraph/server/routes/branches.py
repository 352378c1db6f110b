"""Routes of branches."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from omnigraph.api.commits import Branch
from omnigraph.api.graph import Graph
from omnigraph.api.merges import Merged
from omnigraph.errors import InvalidInput
from omnigraph.protocol import responses
from omnigraph.protocol.requests import BranchRequest, MergeRequest, RevertRequest
from omnigraph.protocol.result_bodies import commit_body, merge_body
from omnigraph.server.http.request_context import Called, Segment
from omnigraph.server.http.routing import (
    BY_MEMBER,
    EXACTLY,
    WRITTEN,
    graph_router,
    refusals,
    refuse_condition,
)

router = graph_router("branches")


@router.get("/branches", response_model=responses.Branches, responses=EXACTLY)
async def list_branches(call: Called) -> Response:
    """The names of all branches."""
    call.allow("read")
    return await call.read(lambda graph: {"branches": graph.branches.list()})


@router.post("/branches", response_model=responses.BranchCreated, responses={**EXACTLY, **refusals(*WRITTEN)})
async def create_branch(call: Called, body: BranchRequest) -> Response:
    """Make a branch at another's head, or at a commit or moment of it."""
    refuse_condition(call.request)
    if body.snapshot is not None and body.at is not None:
        raise InvalidInput("at and snapshot exclude each other")
    call.allow("branch_create", body.from_, body.name)
    at = body.at if body.snapshot is None else body.snapshot

    def show(made: Branch) -> dict[str, Any]:
        uri = call.hosted.graph.uri
        return {"uri": uri, "from": body.from_, "name": made.name, "actor_id": call.actor}

    return await call.write(lambda graph: graph.branches.create(body.name, body.from_, at=at), show)


@router.delete(
    "/branches/{branch}", response_model=responses.BranchDeleted, responses={**EXACTLY, **refusals(409, 429)}
)
async def delete_branch(call: Called, branch: Segment) -> Response:
    """Delete a branch; its name is free at once."""
    refuse_condition(call.request)
    name = branch.strip()
    call.allow("branch_delete", target=name)

    def work(graph: Graph) -> dict[str, Any]:
        graph.branches.delete(name)
        return {"uri": graph.uri, "name": name, "actor_id": call.actor}

    return await call.write(work)


@router.post(
    "/branches/merge",
    response_model=responses.Merge,
    response_model_exclude_none=True,
    responses={**EXACTLY, **refusals(*WRITTEN, 412)},
)
async def merge_branches(call: Called, body: MergeRequest) -> Response:
    """Bring what a branch did into another, as one commit with two parents."""
    refuse_condition(call.request, BY_MEMBER)
    call.allow("branch_merge", body.source, body.target)

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

    def show(done: Merged) -> dict[str, Any]:
        return {**merge_body(done, body.source, body.target, call.actor), **_trial(done)}

    return await call.write(work, show)


@router.post(
    "/commits/{commit_id}/revert",
    response_model=responses.Reverted,
    response_model_exclude_none=True,
    responses={**EXACTLY, **refusals(*WRITTEN, 412)},
)
async def revert_commit(call: Called, commit_id: Segment, body: RevertRequest | None = None) -> Response:
    """Undo one commit with a new one; everything that came after it stays."""
    refuse_condition(call.request, BY_MEMBER)
    asked = body or RevertRequest()
    call.allow("change", asked.branch)

    def work(graph: Graph) -> Merged:
        return graph.revert(
            commit_id,
            branch=asked.branch,
            resolve=asked.resolve,
            dry_run=asked.dry_run,
            message=asked.message,
            if_commit=asked.if_commit,
        )

    def show(done: Merged) -> dict[str, Any]:
        return {
            "outcome": done.outcome,
            "branch": asked.branch,
            "actor_id": call.actor,
            "commit": None if done.commit is None else commit_body(done.commit),
            **_trial(done),
        }

    return await call.write(work, show)


def _trial(done: Merged) -> dict[str, Any]:
    """What only a trial tells: anything else raises its conflicts."""
    return {"dry_run": True, "conflicts": list(done.conflicts)} if done.dry_run else {}

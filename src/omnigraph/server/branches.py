"""Routes of branches."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from omnigraph.api.bodies import merge_body
from omnigraph.api.graph import Graph
from omnigraph.server import answers
from omnigraph.server.bodies import BranchRequest, MergeRequest
from omnigraph.server.requests import Called, Segment
from omnigraph.server.routing import graph_router

router = graph_router("branches")


@router.get("/branches", response_model=answers.Branches)
async def list_branches(call: Called) -> Response:
    """The names of all branches."""
    call.allow("read")
    return await call.read(lambda graph: {"branches": graph.branches.list()})


@router.post("/branches", response_model=answers.BranchCreated)
async def create_branch(call: Called, body: BranchRequest) -> Response:
    """Make a branch at another's head."""
    call.allow("branch_create", body.from_, body.name)

    def work(graph: Graph) -> dict[str, Any]:
        made = graph.branches.create(body.name, body.from_)
        return {"uri": graph.uri, "from": body.from_, "name": made.name, "actor_id": call.actor}

    return await call.write(work)


@router.delete("/branches/{branch}", response_model=answers.BranchDeleted)
async def delete_branch(call: Called, branch: Segment) -> Response:
    """Delete a branch; its name is free at once."""
    name = branch.strip()
    call.allow("branch_delete", target=name)

    def work(graph: Graph) -> dict[str, Any]:
        graph.branches.delete(name)
        return {"uri": graph.uri, "name": name, "actor_id": call.actor}

    return await call.write(work)


@router.post("/branches/merge", response_model=answers.Merge, response_model_exclude_none=True)
async def merge_branches(call: Called, body: MergeRequest) -> Response:
    """Bring what a branch did into another, as one commit with two parents."""
    call.allow("branch_merge", body.source, body.target)

    def work(graph: Graph) -> dict[str, Any]:
        done = graph.branches.merge(body.source, body.target, delete_source=body.delete_branch)
        return merge_body(done, body.source, body.target, call.actor)

    return await call.write(work)

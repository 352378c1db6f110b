"""Routes of commits."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query
from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.errors import InvalidInput
from omnigraph.graph.snapshot import Snapshot
from omnigraph.protocol import responses
from omnigraph.protocol.codec import encode_snapshot
from omnigraph.protocol.requests import Timestamp
from omnigraph.protocol.result_bodies import commit_body
from omnigraph.server.http.request_context import Context, Segment
from omnigraph.server.http.routing import SUCCESS, graph_router
from omnigraph.server.routes.reads import SnapshotParameters

router = graph_router("commits")

# Larger than any number of commits.
MAX_LIMIT: Final = 2**53


@router.get(
    "/commits",
    operation_id="cluster_listCommits",
    response_model=responses.CommitListOutput,
    responses=SUCCESS,
)
async def list_commits(
    context: Context,
    start: SnapshotParameters,
    limit: Annotated[int | None, Query(ge=0, le=MAX_LIMIT)] = None,
    actor: str | None = None,
    since: Annotated[Timestamp | None, Query(description="Only commits that are not older.")] = None,
    types: Annotated[
        list[str], Query(alias="type", description="Only commits that changed rows of one of these types.")
    ] = [],  # noqa: B006 - a declaration
    merged: Annotated[bool, Query(description="Include the commits of merged branches.")] = False,
) -> Response:
    """List the commits of a branch, newest first. Includes commits from before the branch was created.

    `snapshot` or `at` begins with an older state.
    """
    start.authorize(context)
    return await context.read(
        lambda graph: graph.commits(
            limit=limit, actor=actor, since=since, types=types, merged=merged, **start.arguments
        ),
        lambda commits: {"commits": [commit_body(commit) for commit in commits]},
    )


@router.get(
    "/commits/{commit_id}",
    operation_id="cluster_getCommit",
    response_model=responses.CommitOutput,
    responses=SUCCESS,
)
async def get_commit(context: Context, commit_id: Segment) -> Response:
    """Get a commit."""
    context.authorize("read")
    return await context.read(lambda graph: graph.commit(commit_id), commit_body)


@router.get(
    "/state", operation_id="cluster_resolveState", response_model=responses.StateOutput, responses=SUCCESS
)
async def resolve_state(context: Context, name: str | None = None, at: Timestamp | None = None) -> Response:
    """Resolve a branch, commit or timestamp to a commit.

    `name` is a branch or, if there is no such branch, a commit id. `at` is a timestamp on `main`.
    """
    reference = name if at is None else at
    if reference is None or (name is not None and at is not None):
        raise InvalidInput("expected exactly one of `name` and `at`")

    def work(graph: Graph) -> tuple[Snapshot, str | None]:
        # A diff resolves and authorizes references.
        resolved = graph.diff(reference, reference)
        return resolved.after, resolved.branch

    return await context.read(
        work,
        lambda state: {"branch": state[1], "graph_commit_id": state[0].commit_id},
        lambda state: {"branch": state[1], "snapshot": encode_snapshot(state[0])},
    )

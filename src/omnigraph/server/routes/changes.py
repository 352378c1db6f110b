"""Routes of the change feed and of the changes of a commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Query
from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.changes.change_pages import ChangePage
from omnigraph.changes.feed import DEFAULT_COMMITS, EXCLUSIVE_POSITIONS, FeedPage
from omnigraph.errors import InvalidInput, NotFound, PermissionDenied
from omnigraph.protocol import change_responses
from omnigraph.protocol.error_output import ChangeErrorOutput
from omnigraph.protocol.requests import BranchName, ChangeBaselineRequest
from omnigraph.protocol.wire_types import ChangeOpOutput, EntityKindOutput
from omnigraph.server.http.request_context import Context, Segment
from omnigraph.server.http.routing import (
    REPEATABLE,
    SUCCESS,
    NdjsonResponse,
    check_query_parameters,
    error_responses,
    graph_router,
)
from omnigraph.server.routes.exports import NDJSON_UTF8

router = graph_router("changes", model=ChangeErrorOutput)

_PAGE_PARAMETERS = REPEATABLE | {"page_token", "limit"}
_FEED_PARAMETERS = _PAGE_PARAMETERS | {"branch", "cursor", "start", "max_commits"}
_READ_ERRORS = error_responses(409, 410, model=ChangeErrorOutput)


async def _change_filter(
    kinds: Annotated[list[EntityKindOutput], Query(alias="kind")] = [],  # noqa: B006 - a declaration
    types: Annotated[list[str], Query(alias="type")] = [],  # noqa: B006
    ops: Annotated[list[ChangeOpOutput], Query(alias="op")] = [],  # noqa: B006
) -> dict[str, Any]:
    return {"kinds": kinds or None, "types": types or None, "ops": ops or None}


# The filter as keyword arguments of the library.
ChangeFilterParameters: TypeAlias = Annotated[dict[str, Any], Depends(_change_filter)]


@dataclass(frozen=True, slots=True)
class FeedPageRequest:
    """Where a page of the change feed starts, and how much it contains."""

    branch: str
    cursor: str | None
    start: str | None
    page_token: str | None
    limit: int | None
    max_commits: int

    def __post_init__(self) -> None:
        if sum(item is not None for item in (self.cursor, self.start, self.page_token)) > 1:
            raise InvalidInput(EXCLUSIVE_POSITIONS)


async def _feed_page_request(
    branch: BranchName = "main",
    cursor: str | None = None,
    start: str | None = None,
    page_token: str | None = None,
    limit: int | None = None,
    max_commits: int = DEFAULT_COMMITS,
) -> FeedPageRequest:
    return FeedPageRequest(branch, cursor, start, page_token, limit, max_commits)


FeedPageParameters: TypeAlias = Annotated[FeedPageRequest, Depends(_feed_page_request)]


@router.get(
    "/commits/{commit_id}/changes",
    operation_id="cluster_getCommitChanges",
    response_model=change_responses.CommitChangesOutput,
    responses={**SUCCESS, **_READ_ERRORS},
)
async def get_commit_changes(
    context: Context,
    commit_id: Segment,
    change_filter: ChangeFilterParameters,
    page_token: str | None = None,
    limit: int | None = None,
) -> Response:
    """Get the changes of a commit relative to its first parent."""
    check_query_parameters(context.request, _PAGE_PARAMETERS)

    def work(graph: Graph) -> ChangePage:
        try:
            return graph.changes(commit_id, **change_filter, limit=limit, page_token=page_token)
        except PermissionDenied as error:
            # An actor who may not read a commit must not learn that it exists.
            raise NotFound(f"commit '{commit_id}' not found") from error

    return await context.read(work, ChangePage.to_json)


@router.get(
    "/changes",
    operation_id="cluster_pollChanges",
    response_model=change_responses.ChangeFeedOutput,
    responses={**SUCCESS, **_READ_ERRORS},
)
async def poll_changes(
    context: Context, change_filter: ChangeFilterParameters, page: FeedPageParameters
) -> Response:
    """Poll the change feed of a branch. Changes are grouped by commit, oldest first."""
    check_query_parameters(context.request, _FEED_PARAMETERS)
    context.authorize("read", page.branch)

    def work(graph: Graph) -> FeedPage:
        return graph.feed(
            branch=page.branch,
            start="now" if page.start is None else page.start,
            cursor=page.cursor,
            page_token=page.page_token,
            limit=page.limit,
            max_commits=page.max_commits,
            **change_filter,
        )

    return await context.read(work, FeedPage.to_json)


@router.post(
    "/changes/baseline",
    operation_id="cluster_captureChangeBaseline",
    response_class=NdjsonResponse,
    responses={
        200: {
            "description": "Graph records, one JSON object per line. The last line is the baseline record.",
            "model": change_responses.ChangeBaselineRecord,
        },
        **error_responses(415, model=ChangeErrorOutput),
    },
)
async def capture_change_baseline(context: Context, body: ChangeBaselineRequest | None = None) -> Response:
    """Stream the records of a branch, and then the cursor of the change feed that continues from them.

    A stream without the last line is incomplete.
    """
    request = body or ChangeBaselineRequest()
    context.authorize("export", request.branch)
    return await context.stream(
        lambda graph, file: graph.baseline(
            file, branch=request.branch, kinds=request.kind, types=request.type, ops=request.op
        ),
        NDJSON_UTF8,
    )

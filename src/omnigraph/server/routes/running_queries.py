"""Routes that list and cancel the running requests of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi.responses import JSONResponse
from starlette.responses import Response

from omnigraph.errors import NotFound
from omnigraph.protocol import maintenance_responses as responses
from omnigraph.protocol.codec import EXACT
from omnigraph.server.http.request_context import Context, RequestContext, Segment
from omnigraph.server.http.routing import SUCCESS, error_responses, graph_router
from omnigraph.server.running_queries import RunningQueries

if TYPE_CHECKING:
    from omnigraph.server.workers.peers import Peers

router = graph_router("running queries")


@router.get(
    "/running",
    operation_id="cluster_listRunningQueries",
    response_model=responses.RunningQueryListOutput,
    responses=SUCCESS,
)
async def list_running_queries(context: Context) -> Response:
    """List the running requests of the graph, the oldest first. Requires permission for `admin`."""
    context.authorize("admin")
    queries: RunningQueries = context.request.app.state.queries
    peers: Peers | None = context.request.app.state.peers
    found = queries.list(context.hosted.id)
    if peers is not None:
        found += await peers.list_queries(context.hosted.id)
    return _respond(context, {"queries": sorted(found, key=lambda item: item["started_at"])})


@router.delete(
    "/running/{query_id}",
    operation_id="cluster_cancelQuery",
    response_model=responses.CancelledQueryOutput,
    responses={**SUCCESS, **error_responses(404)},
)
async def cancel_query(context: Context, query_id: Segment) -> Response:
    """Cancel a running request. Requires permission for `admin`.

    `cancelled` is false for a write that has begun, which is completed.
    """
    context.authorize("admin")
    queries: RunningQueries = context.request.app.state.queries
    peers: Peers | None = context.request.app.state.peers
    try:
        found = queries.cancel(context.hosted.id, query_id, context.actor)
    except NotFound:
        other = (
            None if peers is None else await peers.cancel_query(context.hosted.id, query_id, context.actor)
        )
        if other is None:
            raise
        found = other
    return _respond(context, found)


def _respond(context: RequestContext, body: object) -> Response:
    return JSONResponse(body, media_type=EXACT if context.exact else JSONResponse.media_type)

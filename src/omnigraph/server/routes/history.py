"""Routes of the history of one entity."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from omnigraph.protocol import change_responses
from omnigraph.protocol.result_bodies import origin_body, version_body
from omnigraph.server.http.request_context import Context
from omnigraph.server.http.routing import SUCCESS, graph_router
from omnigraph.server.routes.commits import MAX_LIMIT
from omnigraph.server.routes.reads import IdQuery, SnapshotParameters, TypeQuery

router = graph_router("commits")


@router.get(
    "/history",
    operation_id="cluster_getEntityHistory",
    response_model=change_responses.EntityHistoryOutput,
    responses=SUCCESS,
)
async def get_history(
    context: Context,
    type_name: TypeQuery,
    id_: IdQuery,
    start: SnapshotParameters,
    limit: Annotated[int | None, Query(ge=0, le=MAX_LIMIT)] = None,
) -> Response:
    """List the versions of a node or an edge, newest first: each commit that changed it, and what it changed.

    The changes of a merged branch are those of its commits. `op` is `unknown` if it would be `insert`, but the
    states before were reclaimed or may not be read.
    """
    start.authorize(context)
    return await context.read(
        lambda graph: graph.history(type_name, id_, limit=limit, **start.arguments),
        lambda versions: {"versions": [version_body(version) for version in versions]},
    )


@router.get(
    "/blame",
    operation_id="cluster_getEntityBlame",
    response_model=change_responses.EntityBlameOutput,
    responses=SUCCESS,
)
async def get_blame(
    context: Context, type_name: TypeQuery, id_: IdQuery, state: SnapshotParameters
) -> Response:
    """Get for each property of a node or an edge its value and the commit that set it.

    If `exact` is false, older states were reclaimed or may not be read, and the value may be older.
    """
    state.authorize(context)
    return await context.read(
        lambda graph: graph.blame(type_name, id_, **state.arguments),
        lambda origins: {"properties": [origin_body(origin) for origin in origins]},
    )

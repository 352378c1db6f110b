"""Routes of stored queries."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph.api.hosting.stored_queries import StoredQuery
from omnigraph.errors import InvalidInput, NotFound, PermissionDenied
from omnigraph.protocol import responses
from omnigraph.protocol.requests import InvokeStoredQueryRequest
from omnigraph.protocol.result_bodies import change_body
from omnigraph.server.http.request_context import QUERY_NOT_FOUND, Context, RequestContext, Segment
from omnigraph.server.http.routing import (
    BLOB_WRITE_ERRORS,
    IF_COMMIT_HEADER,
    SUCCESS,
    USE_ROUTE,
    error_responses,
    graph_router,
    read_if_commit_header,
    reject_if_commit_header,
)
from omnigraph.server.routes.reads import ROWS, SnapshotReference, run_query

router = graph_router("stored queries")


@router.get(
    "/queries",
    operation_id="cluster_list_queries",
    response_model=responses.QueriesCatalogOutput,
    response_model_exclude_none=True,
    responses=SUCCESS,
)
async def list_queries(context: Context) -> Response:
    """List stored queries with their parameters."""
    context.authorize("read", "main")
    return await context.read(
        lambda _: {"queries": [query.to_json() for query in context.hosted.queries.values()]}
    )


@router.post(
    "/queries/{name}",
    operation_id="cluster_invoke_query",
    response_model=responses.InvokeStoredQueryResponse,
    responses={**ROWS, **error_responses(*BLOB_WRITE_ERRORS)},
)
async def invoke_query(
    context: Context, name: Segment, body: InvokeStoredQueryRequest | None = None
) -> Response:
    """Run a stored query, which is a read query or a mutation."""
    reject_if_commit_header(context.request, USE_ROUTE)
    return await _invoke(context, name, body or InvokeStoredQueryRequest())


@router.post(
    "/queries/{name}/if-graph-commit",
    operation_id="cluster_invoke_query_if_graph_commit",
    response_model=responses.ChangeOutput,
    openapi_extra=IF_COMMIT_HEADER,
    responses={**SUCCESS, **error_responses(*BLOB_WRITE_ERRORS, 412)},
)
async def invoke_query_if_graph_commit(
    context: Context, name: Segment, body: InvokeStoredQueryRequest | None = None
) -> Response:
    """Run a stored mutation if the head of the branch is the commit in `Omnigraph-If-Graph-Commit`."""
    if_commit = read_if_commit_header(context.request)
    return await _invoke(context, name, body or InvokeStoredQueryRequest(), if_commit)


async def _invoke(
    context: RequestContext, name: str, body: InvokeStoredQueryRequest, if_commit: str | None = None
) -> Response:
    query = _find_query(context, name)
    if body.expect_mutation is not None and body.expect_mutation != query.mutates:
        kind, verb = ("mutation", "mutate") if query.mutates else ("read", "query")
        raise InvalidInput(f"'{name}' is a {kind} — use omnigraph {verb} {name}")
    if query.mutates:
        return await _mutate(context, query, body, if_commit)
    if if_commit is not None:
        raise InvalidInput(f"'{name}' is a read query, which cannot be conditional")
    snapshot = SnapshotReference.of(body).authorize(context)
    return await context.read(lambda graph: run_query(context, graph, query.text, name, body, snapshot))


async def _mutate(
    context: RequestContext, query: StoredQuery, body: InvokeStoredQueryRequest, if_commit: str | None
) -> Response:
    if body.snapshot is not None or body.at is not None:
        raise InvalidInput(f"'{query.name}' is a mutation, which does not take `snapshot` or `at`")
    branch = body.branch or "main"
    context.authorize("change", branch)
    return await context.write(
        lambda graph: graph.mutate(
            query.text, body.params, name=query.name, branch=branch, if_commit=if_commit
        ),
        lambda receipt: change_body(receipt, branch, context.actor),
    )


def _find_query(context: RequestContext, name: str) -> StoredQuery:
    """Return a stored query. Without permission the error is that of an unknown name."""
    try:
        context.authorize("invoke_query")
    except PermissionDenied as error:
        raise NotFound(QUERY_NOT_FOUND) from error
    query = context.hosted.queries.get(name)
    if query is None:
        raise NotFound(QUERY_NOT_FOUND)
    return query

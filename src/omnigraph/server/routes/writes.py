"""Routes that run mutations."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.api.results.receipts import Receipt
from omnigraph.protocol import responses
from omnigraph.protocol.requests import ChangeRequest
from omnigraph.protocol.result_bodies import change_body
from omnigraph.server.http.request_context import Context, RequestContext
from omnigraph.server.http.routing import (
    BLOB_WRITE_ERRORS,
    IF_COMMIT_HEADER,
    SUCCESS,
    USE_ROUTE,
    add_deprecation_headers,
    error_responses,
    graph_router,
    read_if_commit_header,
    reject_if_commit_header,
)
from omnigraph.server.routes.query_errors import http_query_errors, only_query_name

router = graph_router("writes")


@router.post(
    "/mutate",
    operation_id="cluster_mutate",
    response_model=responses.ChangeOutput,
    responses={**SUCCESS, **error_responses(*BLOB_WRITE_ERRORS)},
)
async def mutate(context: Context, body: ChangeRequest) -> Response:
    """Run a mutation as one atomic commit."""
    reject_if_commit_header(context.request, USE_ROUTE)
    return await _mutate(context, body)


@router.post(
    "/mutate/if-graph-commit",
    operation_id="cluster_mutate_if_graph_commit",
    response_model=responses.ChangeOutput,
    openapi_extra=IF_COMMIT_HEADER,
    responses={**SUCCESS, **error_responses(*BLOB_WRITE_ERRORS, 412)},
)
async def mutate_if_graph_commit(context: Context, body: ChangeRequest) -> Response:
    """Run a mutation if the head of the branch is the commit in `Omnigraph-If-Graph-Commit`."""
    return await _mutate(context, body, read_if_commit_header(context.request))


@router.post(
    "/change",
    operation_id="cluster_change",
    response_model=responses.ChangeOutput,
    responses={**SUCCESS, **error_responses(*BLOB_WRITE_ERRORS)},
    deprecated=True,
)
async def change(context: Context, body: ChangeRequest) -> Response:
    """Deprecated alias of `/mutate`."""
    reject_if_commit_header(context.request, USE_ROUTE)
    return add_deprecation_headers(context.request, await _mutate(context, body))


async def _mutate(context: RequestContext, body: ChangeRequest, if_commit: str | None = None) -> Response:
    context.authorize("change", body.branch)
    context.check_text("mutation", body.query)
    context.running.text = body.query

    def work(graph: Graph) -> Receipt:
        with http_query_errors(context):
            receipt = graph.mutate(
                body.query,
                body.params,
                name=body.name,
                branch=body.branch,
                message=body.message,
                if_commit=if_commit,
                idempotency_key=body.idempotency_key,
            )
        if receipt.query_name is None and not context.exact:
            # A replayed request is not compiled, but the response has the name.
            return replace(receipt, query_name=only_query_name(body.query))
        return receipt

    return await context.write(work, lambda receipt: change_body(receipt, body.branch, context.actor))

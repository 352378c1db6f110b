"""Routes of stored queries."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph.api.stored_queries import StoredQuery
from omnigraph.errors import InvalidInput, NotFound, PermissionDenied
from omnigraph.protocol import responses
from omnigraph.protocol.requests import StoredRequest
from omnigraph.server.http.request_context import Call, Called, Segment
from omnigraph.server.http.routing import (
    BY_ROUTE,
    CONDITION,
    EXACTLY,
    WRITTEN,
    expected_commit,
    graph_router,
    refusals,
    refuse_condition,
)
from omnigraph.server.routes.reads import ROWS, State, run_read
from omnigraph.server.routes.writes import run_mutation

router = graph_router("stored queries")

UNKNOWN = "stored query not found"


@router.get("/queries", response_model=responses.Queries, response_model_exclude_none=True, responses=EXACTLY)
async def list_queries(call: Called) -> Response:
    """Every stored query of the graph, with its parameters."""
    call.allow("read", "main")
    return await call.read(lambda _: {"queries": [item.to_json() for item in call.hosted.queries.values()]})


@router.post(
    "/queries/{name}",
    response_model=responses.Read | responses.Change,
    responses={**ROWS, **refusals(*WRITTEN)},
)
async def invoke_query(call: Called, name: Segment, body: StoredRequest | None = None) -> Response:
    """Run a stored query."""
    refuse_condition(call.request, BY_ROUTE)
    return await _invoke(call, name, body or StoredRequest())


@router.post(
    "/queries/{name}/if-graph-commit",
    response_model=responses.Change,
    openapi_extra=CONDITION,
    responses={**EXACTLY, **refusals(*WRITTEN, 412)},
)
async def invoke_query_if(call: Called, name: Segment, body: StoredRequest | None = None) -> Response:
    """Run a stored mutation if the branch still stands at the commit of `Omnigraph-If-Graph-Commit`."""
    return await _invoke(call, name, body or StoredRequest(), expected_commit(call.request))


async def _invoke(call: Call, name: str, body: StoredRequest, if_commit: str | None = None) -> Response:
    query = _find(call, name)
    if body.expect_mutation is not None and body.expect_mutation != query.mutates:
        kind, verb = ("mutation", "mutate") if query.mutates else ("read", "query")
        raise InvalidInput(f"'{name}' is a {kind} — use omnigraph {verb} {name}")
    if query.mutates:
        return await _mutate(call, query, body, if_commit)
    if if_commit is not None:
        raise InvalidInput(f"'{name}' is a read: it takes no condition")
    named = State.of(body).check(call)
    return await call.read(lambda graph: run_read(call, graph, query.text, name, body.params, named))


async def _mutate(call: Call, query: StoredQuery, body: StoredRequest, if_commit: str | None) -> Response:
    if body.snapshot is not None or body.at is not None:
        raise InvalidInput(f"'{query.name}' is a mutation: it takes no snapshot")
    branch = body.branch or "main"
    call.allow("change", branch)
    return await run_mutation(call, query.text, query.name, body.params, branch, if_commit)


def _find(call: Call, name: str) -> StoredQuery:
    """The query, for those who may invoke any; to others no name is different from another."""
    try:
        call.allow("invoke_query")
    except PermissionDenied as error:
        raise NotFound(UNKNOWN) from error
    query = call.hosted.queries.get(name)
    if query is None:
        raise NotFound(UNKNOWN)
    return query

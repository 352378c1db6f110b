"""Routes that read a snapshot: queries, entities and the schema."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Query
from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.budget.query_budget import require_bytes
from omnigraph.errors import InvalidInput
from omnigraph.protocol import responses
from omnigraph.protocol.codec import ARROW, EXACT, encode_snapshot, write_result
from omnigraph.protocol.requests import (
    BranchName,
    InvokeStoredQueryRequest,
    QueryRequest,
    ReadRequest,
    SnapshotSelector,
    Timestamp,
)
from omnigraph.protocol.result_bodies import snapshot_body
from omnigraph.read.neighbors import NeighborDirection
from omnigraph.server.http.request_context import Context, RequestContext, accepts
from omnigraph.server.http.routing import (
    BODY_ERRORS,
    SUCCESS,
    Responses,
    add_deprecation_headers,
    error_responses,
    graph_router,
)
from omnigraph.server.routes.query_errors import http_query_errors

router = graph_router("reads")

_MAX_NEIGHBORS = 10_000
# Estimated memory of a value as a Python object and as JSON text.
_BYTES_PER_OBJECT = 120

ROWS: Responses = {
    200: {
        "description": "Success.",
        "content": {ARROW: {"schema": {"type": "string", "format": "binary"}}, EXACT: {}},
    }
}


@dataclass(frozen=True, slots=True)
class SnapshotReference:
    """The snapshot that a request reads: the head of a branch, a commit, or a branch at a point in time."""

    branch: str | None = None
    commit: str | None = None
    at: datetime | None = None

    def __post_init__(self) -> None:
        for name, value in (("branch", self.branch), ("at", self.at)):
            if self.commit is not None and value is not None:
                raise InvalidInput(f"`{name}` and `snapshot` are mutually exclusive")

    @classmethod
    def of(cls, body: SnapshotSelector) -> SnapshotReference:
        """Return the reference of a request body."""
        return cls(body.branch, body.snapshot, body.at)

    @property
    def arguments(self) -> dict[str, Any]:
        """The reference as keyword arguments of the library."""
        return {"branch": self.branch or "main", "at": self.at if self.commit is None else self.commit}

    def authorize(self, context: RequestContext) -> SnapshotReference:
        """Return the reference, or raise `PermissionDenied`.

        A commit is authorized by the graph handle, which has to look up its branch.
        """
        if self.commit is None:
            context.authorize("read", self.branch or "main")
        return self


async def _snapshot_reference(
    branch: BranchName | None = None, snapshot: str | None = None, at: Timestamp | None = None
) -> SnapshotReference:
    return SnapshotReference(branch, snapshot, at)


SnapshotParameters: TypeAlias = Annotated[SnapshotReference, Depends(_snapshot_reference)]
TypeQuery: TypeAlias = Annotated[str, Query(alias="type")]
IdQuery: TypeAlias = Annotated[str, Query(alias="id")]


@router.get(
    "/snapshot",
    operation_id="cluster_getSnapshot",
    response_model=responses.SnapshotOutput,
    responses=SUCCESS,
)
async def get_snapshot(context: Context, snapshot: SnapshotParameters) -> Response:
    """Get the data version and the entity count of each type in a snapshot."""
    snapshot.authorize(context)
    return await context.read(
        lambda graph: graph.snapshot(**snapshot.arguments),
        lambda found: snapshot_body(found, found.branch if snapshot.commit is None else found.commit.branch),
        encode_snapshot,
    )


@router.post(
    "/query",
    operation_id="cluster_query",
    response_model=responses.ReadOutput,
    responses={**ROWS, **error_responses(*BODY_ERRORS)},
)
async def query(context: Context, body: QueryRequest) -> Response:
    """Run a query on one snapshot. Returns an Arrow stream if the client accepts it."""
    return await _query(context, body, body.query, body.name)


@router.post(
    "/read",
    operation_id="cluster_read",
    response_model=responses.LegacyReadOutput,
    responses={**ROWS, **error_responses(*BODY_ERRORS)},
    deprecated=True,
)
async def read(context: Context, body: ReadRequest) -> Response:
    """Deprecated alias of `/query`."""
    response = await _query(context, body, body.query_source, body.query_name, include_commit=False)
    return add_deprecation_headers(context.request, response)


@router.post(
    "/explain",
    operation_id="cluster_explain",
    response_model=responses.ExplainOutput,
    responses={**SUCCESS, **error_responses(*BODY_ERRORS)},
)
async def explain(context: Context, body: QueryRequest) -> Response:
    """Get the plan of a query."""
    snapshot = SnapshotReference.of(body).authorize(context)

    def work(graph: Graph) -> dict[str, Any]:
        def explain() -> str:
            return graph.explain(body.query, body.params, name=body.name, **snapshot.arguments)

        with http_query_errors(context), context.limited(body.query, body.limits, explain):
            plan = explain()
        return {"plan": plan}

    return await context.read(work)


@router.get(
    "/entity", operation_id="cluster_getEntity", response_model=responses.EntityOutput, responses=SUCCESS
)
async def get_entity(
    context: Context, type_name: TypeQuery, id_: IdQuery, snapshot: SnapshotParameters
) -> Response:
    """Get a node or an edge by id. The entity is null if it does not exist."""
    snapshot.authorize(context)
    return await context.read(lambda graph: {"entity": graph.get(type_name, id_, **snapshot.arguments)})


@router.get(
    "/neighbors",
    operation_id="cluster_getNeighbors",
    response_model=responses.NeighborsOutput,
    responses=SUCCESS,
)
async def get_neighbors(
    context: Context,
    type_name: TypeQuery,
    id_: IdQuery,
    snapshot: SnapshotParameters,
    edge: Annotated[list[str] | None, Query(description="Only edges of these types.")] = None,
    direction: Annotated[NeighborDirection, Query()] = "both",
    limit: Annotated[int, Query(ge=1, le=_MAX_NEIGHBORS, description="Limit for each type of edges.")] = 100,
) -> Response:
    """Get the edges of a node and the nodes at their other ends, with the number of edges of each type."""
    snapshot.authorize(context)
    return await context.read(
        lambda graph: graph.neighbors(
            type_name, id_, edges=edge, direction=direction, limit=limit, **snapshot.arguments
        )
    )


@router.get(
    "/schema", operation_id="cluster_getSchema", response_model=responses.SchemaOutput, responses=SUCCESS
)
async def get_schema(context: Context, snapshot: SnapshotParameters) -> Response:
    """Get the accepted schema."""
    context.authorize("read")
    return await context.read(lambda graph: {"schema_source": graph.schema.source(**snapshot.arguments)})


async def _query(
    context: RequestContext,
    body: QueryRequest | ReadRequest,
    text: str,
    name: str | None,
    *,
    include_commit: bool = True,
) -> Response:
    snapshot = SnapshotReference.of(body).authorize(context)

    def work(graph: Graph) -> Response | dict[str, Any]:
        with http_query_errors(context):
            return run_query(context, graph, text, name, body, snapshot, include_commit=include_commit)

    return await context.read(work)


def run_query(
    context: RequestContext,
    graph: Graph,
    text: str,
    name: str | None,
    body: QueryRequest | ReadRequest | InvokeStoredQueryRequest,
    snapshot: SnapshotReference,
    *,
    include_commit: bool = True,
) -> Response | dict[str, Any]:
    """Run a query and return the response body, or an Arrow response if the client accepts Arrow."""

    def explain() -> str:
        return graph.explain(text, body.params, name=name, **snapshot.arguments)

    with context.limited(text, body.limits, explain):
        # The server does not start Spark, which needs a process of its own.
        result = graph.query(text, body.params, name=name, engine="local", **snapshot.arguments)
        size = result.table.nbytes
        if accepts(context.request, ARROW):
            require_bytes(3 * size)
            return Response(write_result(result), media_type=ARROW)
        # Values as Python objects, and their text.
        require_bytes(4 * size + _BYTES_PER_OBJECT * len(result) * len(result.columns))
        answer = result.to_json()
    if not include_commit:
        del answer["graph_commit_id"]
    return answer

"""The route that returns the schema as types instead of text."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.lang.schema_description import describe_schema
from omnigraph.protocol import language_responses as responses
from omnigraph.server.http.request_context import Context
from omnigraph.server.http.routing import SUCCESS, graph_router
from omnigraph.server.routes.reads import SnapshotParameters

router = graph_router("schemas")


@router.get(
    "/schema/types",
    operation_id="cluster_getSchemaTypes",
    response_model=responses.SchemaTypesOutput,
    responses=SUCCESS,
)
async def get_schema_types(context: Context, snapshot: SnapshotParameters) -> Response:
    """Get the types of the schema with their properties, keys, constraints and indexes."""
    snapshot.authorize(context)

    def work(graph: Graph) -> dict[str, Any]:
        return describe_schema(graph.snapshot(**snapshot.arguments).catalog.schema)

    return await context.read(work)

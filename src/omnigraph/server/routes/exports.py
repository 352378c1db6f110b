"""The route that streams an export."""

from __future__ import annotations

from typing import IO, Any

from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.errors import InvalidInput
from omnigraph.protocol.codec import END, NDJSON
from omnigraph.protocol.requests import ExportRequest
from omnigraph.server.http.request_context import Context, RequestContext
from omnigraph.server.http.routing import BODY_ERRORS, Responses, graph_router

router = graph_router("exports", *BODY_ERRORS, 409)

NDJSON_UTF8 = f"{NDJSON}; charset=utf-8"
_STREAM: Responses = {
    200: {"description": "Graph records, one JSON object per line.", "content": {NDJSON: {}}}
}


@router.post("/export", operation_id="cluster_export", response_class=Response, responses=_STREAM)
async def export(context: Context, body: ExportRequest | None = None) -> Response:
    """Stream the records of a snapshot. A stream that breaks off is incomplete."""
    request = body or ExportRequest()
    snapshot = authorize_export(context, request)

    def produce(graph: Graph, file: IO[Any]) -> None:
        graph.export(file, types=request.types(exact=context.exact), engine="local", **snapshot)
        if context.exact:
            file.write(END)

    return await context.stream(produce, NDJSON_UTF8)


def authorize_export(context: RequestContext, request: ExportRequest) -> dict[str, Any]:
    """Return the snapshot to export as keyword arguments of the library; `PermissionDenied` if it is not allowed.

    A commit is authorized by the graph handle, which has to look up its branch.
    """
    if request.snapshot is not None and request.at is not None:
        raise InvalidInput("`at` and `snapshot` are mutually exclusive")
    if request.snapshot is not None:
        return {"at": request.snapshot}
    context.authorize("export", request.branch)
    return {"branch": request.branch, "at": request.at}

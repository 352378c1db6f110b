"""Routes that stream a whole state."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from omnigraph.server.bodies import BaselineRequest, ExportRequest
from omnigraph.server.pipes import Streams
from omnigraph.server.requests import Call, Called
from omnigraph.server.routing import graph_router

router = graph_router("exports")

NDJSON = "application/x-ndjson; charset=utf-8"
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Records, one JSON object a line.", "content": {"application/x-ndjson": {}}}
}


@router.post("/export", response_class=Response, responses=_STREAM)
async def export(call: Called, body: ExportRequest | None = None) -> Response:
    """Every record of a branch. A stream that breaks off is worth nothing."""
    wanted = body or ExportRequest()
    call.allow("export", wanted.branch)
    graph = call.graph
    return await _streams(call).begin(
        lambda file: graph.export(file, branch=wanted.branch, types=wanted.type_names, engine="local"), NDJSON
    )


@router.post("/changes/baseline", response_class=Response, responses=_STREAM)
async def baseline(call: Called, body: BaselineRequest | None = None) -> Response:
    """Every record of a branch, and last the cursor from which its changes go on."""
    wanted = body or BaselineRequest()
    call.allow("export", wanted.branch)
    graph = call.graph
    return await _streams(call).begin(
        lambda file: graph.baseline(
            file, branch=wanted.branch, kinds=wanted.kind, types=wanted.type, ops=wanted.op
        ),
        NDJSON,
    )


def _streams(call: Call) -> Streams:
    found: Streams = call.request.app.state.streams
    return found

"""Routes that stream a whole state."""

from __future__ import annotations

from typing import IO, Any

from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.errors import InvalidInput
from omnigraph.protocol.codec import END, NDJSON
from omnigraph.protocol.requests import BaselineRequest, ExportRequest
from omnigraph.server.http.request_context import Call, Called
from omnigraph.server.http.routing import SENT, graph_router

router = graph_router("exports", *SENT)

TEXT = f"{NDJSON}; charset=utf-8"
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Records, one JSON object a line.", "content": {NDJSON: {}}}
}


@router.post("/export", response_class=Response, responses=_STREAM)
async def export(call: Called, body: ExportRequest | None = None) -> Response:
    """Every record of a state. A stream that breaks off is worth nothing."""
    wanted = body or ExportRequest()
    place = allow_export(call, wanted)

    def produce(graph: Graph, file: IO[Any]) -> None:
        graph.export(file, types=wanted.type_names, engine="local", **place)
        if call.exact:
            file.write(END)

    return await call.stream(produce, TEXT)


@router.post("/changes/baseline", response_class=Response, responses=_STREAM)
async def baseline(call: Called, body: BaselineRequest | None = None) -> Response:
    """Every record of a branch, and last the cursor from which its changes go on."""
    wanted = body or BaselineRequest()
    call.allow("export", wanted.branch)
    return await call.stream(
        lambda graph, file: graph.baseline(
            file, branch=wanted.branch, kinds=wanted.kind, types=wanted.type, ops=wanted.op
        ),
        TEXT,
    )


def allow_export(call: Call, wanted: ExportRequest) -> dict[str, Any]:
    """The state to export, when the caller may; about a commit the handle decides, which has to look it up."""
    if wanted.snapshot is not None and wanted.at is not None:
        raise InvalidInput("at and snapshot exclude each other")
    if wanted.snapshot is not None:
        return {"at": wanted.snapshot}
    call.allow("export", wanted.branch)
    return {"branch": wanted.branch, "at": wanted.at}

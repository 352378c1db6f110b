"""Routes of Blob values: content, conditional requests and byte ranges."""

from __future__ import annotations

from typing import Annotated, TypeAlias
from urllib.parse import quote

from fastapi import Query
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from omnigraph.api.graph import Graph
from omnigraph.api.results.blobs import Blob
from omnigraph.protocol.codec import SNAPSHOT_ID
from omnigraph.protocol.requests import BranchName, Timestamp
from omnigraph.protocol.upload_lines import FILE
from omnigraph.protocol.wire_types import BlobEntityKind
from omnigraph.server.http.byte_ranges import RangeNotSatisfiable, matches_etag, parse_range
from omnigraph.server.http.error_responses import HttpError
from omnigraph.server.http.request_context import Context, RequestContext
from omnigraph.server.http.routing import COMMON_ERRORS, Responses, error_responses, graph_router
from omnigraph.server.routes.reads import SnapshotReference

router = graph_router("blobs", 412)

_URL_SAFE = ":/%#?=@[]!$&'()*+,;~"
# Printable ASCII, which a header can contain. The percent sign is encoded because it starts an encoded character.
_HEADER_SAFE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_REDIRECT: Responses = {
    302: {"description": "Redirect to the blob's URI."},
    304: {"description": "Not modified."},
}
_GET_RESPONSES: Responses = {
    200: {"description": "Success.", "content": {FILE: {}}},
    206: {"description": "Partial content.", "content": {FILE: {}}},
    **_REDIRECT,
    **error_responses(416),
}
_HEAD_RESPONSES: Responses = {
    200: {"description": "Success."},
    **_REDIRECT,
    **error_responses(*COMMON_ERRORS, 412, model=None),
}


class BlobQuery(BaseModel):
    """Query parameters that identify a Blob value."""

    entity: BlobEntityKind
    type: str
    id: str
    property: str
    branch: BranchName | None = None
    snapshot: str | None = None
    at: Timestamp | None = None


BlobParameters: TypeAlias = Annotated[BlobQuery, Query()]


@router.get("/blob", operation_id="cluster_getBlob", response_class=Response, responses=_GET_RESPONSES)
async def get_blob(context: Context, query: BlobParameters) -> Response:
    """Get the bytes of a Blob value, or a range of them. An external value is answered with a redirect."""
    return await _respond(context, query)


@router.head("/blob", operation_id="cluster_headBlob", response_class=Response, responses=_HEAD_RESPONSES)
async def head_blob(context: Context, query: BlobParameters) -> Response:
    """Get the headers of a Blob value."""
    return await _respond(context, query)


async def _respond(context: RequestContext, query: BlobQuery) -> Response:
    state = SnapshotReference(query.branch, query.snapshot, query.at).authorize(context)
    return await context.read(lambda graph: _read_blob(context, graph, query, state))


def _read_blob(context: RequestContext, graph: Graph, query: BlobQuery, state: SnapshotReference) -> Response:
    blob = graph.blob(f"{query.entity}:{query.type}", query.id, query.property, **state.arguments)
    # Branch names can have characters that a header cannot.
    snapshot_id = quote(blob.info.resolved_snapshot, safe=_HEADER_SAFE)
    if blob.uri is not None:
        # The value may be older than the policy, so it is checked again: a server never redirects anywhere else.
        context.hosted.graph.external_blobs.check(blob.uri)
        location = quote(blob.uri, safe=_URL_SAFE)
        redirect = {SNAPSHOT_ID: snapshot_id, "Location": location, "Cache-Control": "no-store"}
        return Response(status_code=302, headers=redirect)
    etag, size = blob.etag or "", blob.size or 0
    headers = {"Accept-Ranges": "bytes", "ETag": etag, SNAPSHOT_ID: snapshot_id}
    complete = {**headers, "Content-Length": str(size)}
    values = context.request.headers.getlist
    if (expected := values("if-match")) and not matches_etag(expected, etag, weak=False):
        raise HttpError(412, "the ETag of the value does not match If-Match", {"code": "conflict"}, headers)
    if matches_etag(values("if-none-match"), etag, weak=True):
        return Response(None, 304, complete)
    if context.request.method == "HEAD":
        return Response(None, 200, complete, FILE)
    if values("if-range") and values("if-range") != [etag]:
        return StreamingResponse(blob.chunks(), 200, complete, FILE)
    return _send_range(blob, size, headers, values("range"))


def _send_range(blob: Blob, size: int, headers: dict[str, str], ranges: list[str]) -> Response:
    try:
        span = parse_range(ranges, size)
    except RangeNotSatisfiable as error:
        details = {"start": error.start, "end": error.end, "length": size}
        raise HttpError(
            416,
            f"byte range not satisfiable: the value has {size:,} bytes",
            {"blob_range": details},
            {**headers, "Content-Range": f"bytes */{size}"},
        ) from error
    if span is None:
        return StreamingResponse(blob.chunks(), 200, {**headers, "Content-Length": str(size)}, FILE)
    partial = {
        "Content-Length": str(span.end - span.start),
        "Content-Range": f"bytes {span.start}-{span.end - 1}/{size}",
    }
    return StreamingResponse(blob.chunks(span.start, span.end), 206, {**headers, **partial}, FILE)

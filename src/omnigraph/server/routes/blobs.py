"""Routes of Blob values: content, conditional requests and byte ranges."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, TypeAlias
from urllib.parse import quote

from fastapi import Depends, Query
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from omnigraph.api.blobs import BlobSelector
from omnigraph.api.graph import Graph
from omnigraph.api.local.local_blobs import locate_blob
from omnigraph.protocol.codec import SNAPSHOT_ID
from omnigraph.protocol.requests import BranchName
from omnigraph.protocol.upload_lines import FILE
from omnigraph.protocol.wire_types import BlobEntityKind
from omnigraph.read.blob_values import BlobsInUse
from omnigraph.server.hosted_graphs import ServerResources
from omnigraph.server.http.byte_ranges import RangeNotSatisfiable, matches_etag, parse_range
from omnigraph.server.http.error_responses import HttpError
from omnigraph.server.http.request_context import Context, RequestContext
from omnigraph.server.http.routing import COMMON_ERRORS, Responses, error_responses, graph_router
from omnigraph.server.routes.reads import SnapshotReference

router = graph_router("blobs", 412)

_CHUNK_BYTES = 256 << 10
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


async def _blob_selector(query: Annotated[BlobQuery, Query()]) -> BlobSelector:
    return BlobSelector(query.entity, query.type, query.id, query.property, query.branch, query.snapshot)


BlobParameters: TypeAlias = Annotated[BlobSelector, Depends(_blob_selector)]


@router.get("/blob", operation_id="cluster_getBlob", response_class=Response, responses=_GET_RESPONSES)
async def get_blob(context: Context, selector: BlobParameters) -> Response:
    """Get the bytes of a Blob value, or a range of them. An external value is answered with a redirect."""
    return await _respond(context, selector)


@router.head("/blob", operation_id="cluster_headBlob", response_class=Response, responses=_HEAD_RESPONSES)
async def head_blob(context: Context, selector: BlobParameters) -> Response:
    """Get the headers of a Blob value."""
    return await _respond(context, selector)


async def _respond(context: RequestContext, selector: BlobSelector) -> Response:
    SnapshotReference(selector.branch, selector.snapshot).authorize(context)
    resources: ServerResources = context.request.app.state.resources
    return await context.read(lambda graph: _read_blob(context, graph, selector, resources.blobs))


def _read_blob(context: RequestContext, graph: Graph, selector: BlobSelector, in_use: BlobsInUse) -> Response:
    blob = locate_blob(graph, context.hosted.reader, selector)
    # Branch names can have characters that a header cannot.
    snapshot_id = quote(blob.resolved_snapshot, safe=_HEADER_SAFE)
    if blob.uri is not None:
        # The value may be older than the policy, so it is checked again: a server never redirects anywhere else.
        context.hosted.graph.external_blobs.check(blob.uri)
        location = quote(blob.uri, safe=_URL_SAFE)
        redirect = {SNAPSHOT_ID: snapshot_id, "Location": location, "Cache-Control": "no-store"}
        return Response(status_code=302, headers=redirect)
    etag = blob.etag
    headers = {"Accept-Ranges": "bytes", "ETag": etag, SNAPSHOT_ID: snapshot_id}
    values = context.request.headers.getlist
    # A client that knows the tag has the value. For `*` the bytes must be read, to know that there is a value.
    is_known = matches_etag(values("if-none-match"), etag, weak=True, allow_any=False)
    data = None if is_known else blob.read(in_use)
    if (expected := values("if-match")) and not matches_etag(expected, etag, weak=False):
        raise HttpError(412, "the ETag of the value does not match If-Match", {"code": "conflict"}, headers)
    if data is None or matches_etag(values("if-none-match"), etag, weak=True):
        return Response(status_code=304, headers=headers)
    if context.request.method == "HEAD":
        return Response(None, 200, {**headers, "Content-Length": str(len(data))}, FILE)
    if values("if-range") and values("if-range") != [etag]:
        return _send_bytes(data, headers)
    return _send_range(data, headers, values("range"))


def _send_range(data: memoryview, headers: dict[str, str], ranges: list[str]) -> Response:
    size = len(data)
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
        return _send_bytes(data, headers)
    content_range = {"Content-Range": f"bytes {span.start}-{span.end}/{size}"}
    return _send_bytes(data[span.start : span.end + 1], {**headers, **content_range}, 206)


def _send_bytes(data: memoryview, headers: dict[str, str], status: int = 200) -> Response:
    return StreamingResponse(_chunks(data), status, {**headers, "Content-Length": str(len(data))}, FILE)


async def _chunks(data: memoryview) -> AsyncIterator[bytes]:
    """Yield chunks as the client receives them, so that the whole value is never copied."""
    for start in range(0, len(data), _CHUNK_BYTES):
        yield bytes(data[start : start + _CHUNK_BYTES])

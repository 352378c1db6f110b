"""Routes of single values of bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

from fastapi import Depends, Query
from starlette.responses import Response, StreamingResponse

from omnigraph.api.blobs import BlobPlace, look_for_blob
from omnigraph.api.changes import Kind
from omnigraph.api.graph import Graph
from omnigraph.protocol.codec import SNAPSHOT_ID
from omnigraph.protocol.requests import Branch
from omnigraph.protocol.upload_lines import FILE
from omnigraph.read.blob_values import BlobsInUse
from omnigraph.server.hosted_graphs import Hosted
from omnigraph.server.http.byte_ranges import Unsatisfiable, matches, parse_range
from omnigraph.server.http.error_responses import Refused
from omnigraph.server.http.request_context import Call, Called
from omnigraph.server.http.routing import graph_router, refusals
from omnigraph.server.routes.reads import IdQuery, TypeQuery, check_state

router = graph_router("blobs", 412)

_PIECE = 256 << 10
_URL = ":/%#?=@[]!$&'()*+,;~"
# A header holds ASCII; only a per cent sign means something else once others are written with it.
_ASCII = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The bytes.", "content": {FILE: {}}},
    206: {"description": "Some of the bytes.", "content": {FILE: {}}},
    302: {"description": "The bytes are elsewhere."},
    304: {"description": "The client has them."},
}


async def _place(
    entity: Kind,
    type_name: TypeQuery,
    id_: IdQuery,
    property_: Annotated[str, Query(alias="property")],
    branch: Branch | None = None,
    snapshot: str | None = None,
) -> BlobPlace:
    return BlobPlace(entity, type_name, id_, property_, branch, snapshot)


Placed: TypeAlias = Annotated[BlobPlace, Depends(_place)]


@router.get("/blob", response_class=Response, responses={**_BYTES, **refusals(416)})
async def get_blob(call: Called, place: Placed) -> Response:
    """The bytes of one value, or a range of them; where they are kept elsewhere, the way there."""
    return await _answer(call, place)


@router.head("/blob", response_class=Response, responses=_BYTES)
async def head_blob(call: Called, place: Placed) -> Response:
    """The headers of the same, without the bytes."""
    return await _answer(call, place)


async def _answer(call: Call, place: BlobPlace) -> Response:
    check_state(call, place.branch, place.snapshot)
    hosted: Hosted = call.request.app.state.hosted
    return await call.read(lambda graph: _respond(call, graph, place, hosted.blobs))


def _respond(call: Call, graph: Graph, place: BlobPlace, in_use: BlobsInUse) -> Response:
    found = look_for_blob(graph, call.hosted.reader, place)
    # A branch may be called anything.
    resolved = quote(found.resolved_snapshot, safe=_ASCII)
    if found.uri is not None:
        location = quote(found.uri, safe=_URL)
        elsewhere = {SNAPSHOT_ID: resolved, "Location": location, "Cache-Control": "no-store"}
        return Response(status_code=302, headers=elsewhere)
    etag = found.etag
    headers = {"Accept-Ranges": "bytes", "ETag": etag, SNAPSHOT_ID: resolved}
    given = call.request.headers.getlist
    # Whoever knows the tag was given the value under it; any value is only known to be there by its bytes.
    data = None if matches(given("if-none-match"), etag, weak=True, any_=False) else found.read(in_use)
    if (wanted := given("if-match")) and not matches(wanted, etag, weak=False):
        raise Refused(412, "the value is not the one of If-Match", {"code": "conflict"}, headers)
    if data is None or matches(given("if-none-match"), etag, weak=True):
        return Response(status_code=304, headers=headers)
    if call.request.method == "HEAD":
        return Response(None, 200, {**headers, "Content-Length": str(len(data))}, FILE)
    if given("if-range") and given("if-range") != [etag]:
        return _bytes(data, headers)
    return _ranged(data, headers, given("range"))


def _ranged(data: memoryview, headers: dict[str, str], asked: list[str]) -> Response:
    size = len(data)
    try:
        span = parse_range(asked, size)
    except Unsatisfiable as error:
        facts = {"start": error.start, "end": error.end, "length": size}
        raise Refused(
            416,
            f"the value has {size} bytes",
            {"blob_range": facts},
            {**headers, "Content-Range": f"bytes */{size}"},
        ) from error
    if span is None:
        return _bytes(data, headers)
    shown = {**headers, "Content-Range": f"bytes {span.start}-{span.end}/{size}"}
    return _bytes(data[span.start : span.end + 1], shown, 206)


def _bytes(data: memoryview, headers: dict[str, str], status: int = 200) -> Response:
    sized = {**headers, "Content-Length": str(len(data))}
    return StreamingResponse(_pieces(data), status, sized, FILE)


async def _pieces(data: memoryview) -> AsyncIterator[bytes]:
    """The bytes in pieces, each when the client has taken the one before: no copy of the whole is ever made."""
    for start in range(0, len(data), _PIECE):
        yield bytes(data[start : start + _PIECE])

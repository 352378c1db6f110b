"""Routes of single values of bytes."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

from fastapi import Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.api.changes import Kind
from omnigraph.api.graph import Graph
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.lang.types import Scalar
from omnigraph.server.bodies import Branch
from omnigraph.server.byte_ranges import Unsatisfiable, matches, parse_range
from omnigraph.server.failures import Refused
from omnigraph.server.reads import check_state
from omnigraph.server.requests import Call, Called
from omnigraph.server.routing import graph_router

router = graph_router("blobs")

SNAPSHOT_ID = "Omnigraph-Snapshot-Id"
MANAGED = "base64:"
_URL = ":/%#?=@[]!$&'()*+,;~"
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The bytes.", "content": {"application/octet-stream": {}}},
    206: {"description": "Some of the bytes."},
    302: {"description": "The bytes are elsewhere."},
    304: {"description": "The client has them."},
}
TypeQuery: TypeAlias = Annotated[str, Query(alias="type")]
IdQuery: TypeAlias = Annotated[str, Query(alias="id")]
PropertyQuery: TypeAlias = Annotated[str, Query(alias="property")]


@dataclass(frozen=True, slots=True)
class Place:
    """Which value is meant."""

    entity: Kind
    type_name: str
    id: str
    property: str
    branch: str | None
    snapshot: str | None


@router.get("/blob", response_class=Response, responses=_BYTES)
async def get_blob(
    call: Called,
    entity: Kind,
    type_name: TypeQuery,
    id_: IdQuery,
    property_: PropertyQuery,
    branch: Branch | None = None,
    snapshot: str | None = None,
) -> Response:
    """The bytes of one value, or a range of them; where they are kept elsewhere, the way there."""
    return await _answer(call, Place(entity, type_name, id_, property_, branch, snapshot))


@router.head("/blob", response_class=Response, responses=_BYTES)
async def head_blob(
    call: Called,
    entity: Kind,
    type_name: TypeQuery,
    id_: IdQuery,
    property_: PropertyQuery,
    branch: Branch | None = None,
    snapshot: str | None = None,
) -> Response:
    """The headers of the same, without the bytes."""
    return await _answer(call, Place(entity, type_name, id_, property_, branch, snapshot))


async def _answer(call: Call, place: Place) -> Response:
    check_state(call, place.branch, place.snapshot)
    graph = call.graph
    return await run_in_threadpool(_respond, graph, place, call.request)


def _respond(graph: Graph, place: Place, request: Request) -> Response:
    text, snapshot_id = _find(graph, place)
    if not text.startswith(MANAGED):
        headers = {SNAPSHOT_ID: snapshot_id, "Location": quote(text, safe=_URL), "Cache-Control": "no-store"}
        return Response(status_code=302, headers=headers)
    data = base64.b64decode(text.removeprefix(MANAGED))
    etag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    headers = {"Accept-Ranges": "bytes", "ETag": etag, SNAPSHOT_ID: snapshot_id}
    given = request.headers.getlist
    if (wanted := given("if-match")) and not matches(wanted, etag, weak=False):
        raise Refused(412, "the value is not the one of If-Match", {"code": "conflict"}, headers)
    if (known := given("if-none-match")) and matches(known, etag, weak=True):
        return Response(status_code=304, headers=headers)
    if request.method == "HEAD" or (given("if-range") and given("if-range") != [etag]):
        return _bytes(data, headers)
    return _ranged(data, headers, given("range"))


def _ranged(data: bytes, headers: dict[str, str], asked: list[str]) -> Response:
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


def _bytes(data: bytes, headers: dict[str, str], status: int = 200) -> Response:
    return Response(data, status, headers, media_type="application/octet-stream")


def _find(graph: Graph, place: Place) -> tuple[str, str]:
    """The text of the value, and the name of the state that it was read from."""
    found = graph.snapshot(place.branch or "main", place.snapshot)
    key = f"{place.entity}:{place.type_name}"
    table = found.catalog.tables.get(key)
    if table is None:
        raise InvalidInput(f"unknown {place.entity} type '{place.type_name}'")
    column = next((item for item in table.columns if item.name == place.property), None)
    if column is None or column.type.scalar is not Scalar.BLOB:
        raise InvalidInput(f"{place.entity} type '{place.type_name}' has no Blob property '{place.property}'")
    entity = graph.get(key, place.id, at=found)
    value = None if entity is None else entity[place.property]
    if value is None:
        raise NotFound(f"{place.entity} type '{place.type_name}' has no blob for id '{place.id}'")
    return value, f"manifest:{found.branch}:v{found.commit.sequence}"

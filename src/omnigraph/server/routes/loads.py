"""Routes that load many records as one commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, Any, TypeAlias, cast

from anyio import to_thread
from fastapi import Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.api.loads import LoadReceipt
from omnigraph.errors import PermissionDenied
from omnigraph.protocol import responses
from omnigraph.protocol.codec import NDJSON
from omnigraph.protocol.requests import Branch, LoadRequest, Mode
from omnigraph.protocol.result_bodies import load_body
from omnigraph.server.http.error_responses import Refused
from omnigraph.server.http.request_context import BATCH_BYTES, BATCH_RESOURCE, Call, Called, bounded
from omnigraph.server.http.routing import EXACTLY, WRITTEN, graph_router, refuse_condition, tell_successor

router = graph_router("loads", *WRITTEN)

_IN_MEMORY = 1 << 20
_WRITTEN_AT_ONCE = 1 << 20
_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {NDJSON: {"schema": {"type": "string", "format": "binary"}}}}
}
FromQuery: TypeAlias = Annotated[Branch | None, Query(alias="from")]


@router.post("/load", response_model=responses.Load, responses=EXACTLY)
async def load(call: Called, body: LoadRequest) -> Response:
    """Load the records of a text, which need not be laid out in lines."""
    return await _load_text(call, body)


@router.post("/ingest", response_model=responses.Load, responses=EXACTLY, deprecated=True)
async def ingest(call: Called, body: LoadRequest) -> Response:
    """What `/load` used to be."""
    return tell_successor(call.request, await _load_text(call, body))


@router.post("/load/ndjson", response_model=responses.Load, responses=EXACTLY, openapi_extra=_BODY)
async def load_ndjson(
    call: Called, branch: Branch = "main", from_: FromQuery = None, mode: Mode = "merge"
) -> Response:
    """Load the lines of the body. Nothing of it is read before it is known that the caller may."""
    refuse_condition(call.request)
    kind = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    await allow_load(call, branch, from_)
    if kind != NDJSON:
        raise Refused(415, f"Content-Type must be {NDJSON}")
    # A body of unknown length counts as the largest one.
    with (
        call.admission.admit(call.actor, call.size or BATCH_BYTES),
        SpooledTemporaryFile(max_size=_IN_MEMORY) as file,
    ):
        await write_aside(call, bounded(call.request, BATCH_BYTES, BATCH_RESOURCE), file.write)
        file.seek(0)
        source = cast(IO[bytes], file)
        return await call.write_admitted(
            lambda graph: _run(graph, source, branch, from_, mode, permissive=False),
            lambda receipt: load_body(receipt, None, from_, call.actor),
        )


async def _load_text(call: Call, body: LoadRequest) -> Response:
    refuse_condition(call.request)
    await allow_load(call, body.branch, body.from_)

    def work(graph: Graph) -> LoadReceipt:
        data = BytesIO(body.data.encode())
        return _run(graph, data, body.branch, body.from_, body.mode, permissive=True)

    uri = call.hosted.graph.uri
    return await call.write(work, lambda receipt: load_body(receipt, uri, body.from_, call.actor))


async def write_aside(call: Call, chunks: AsyncIterator[bytes], write: Callable[[bytes], object]) -> None:
    """Have the chunks of a body written to the disk by threads for writes, so many bytes at a time."""
    gathered = bytearray()
    async for chunk in chunks:
        gathered += chunk
        if len(gathered) >= _WRITTEN_AT_ONCE:
            await to_thread.run_sync(write, bytes(gathered), limiter=call.writers)
            gathered.clear()
    await to_thread.run_sync(write, bytes(gathered), limiter=call.writers)


async def allow_load(call: Call, branch: str, base: str | None) -> None:
    """Return when the caller may load into a branch, and make it where that is needed."""
    call.allow("change", branch)
    if base is None:
        return
    try:
        call.allow("branch_create", base, branch)
    except PermissionDenied:
        # It is needed only when the branch has to be made.
        if await run_in_threadpool(_is_missing, call, branch):
            raise


def _is_missing(call: Call, branch: str) -> bool:
    try:
        return branch not in call.graph.branches.list()
    except PermissionDenied:
        # The caller may write where they may not look: the handle finds out, with the same gate.
        return False


def _run(
    graph: Graph, source: IO[bytes], branch: str, base: str | None, mode: Mode, *, permissive: bool
) -> LoadReceipt:
    return graph.load(source, mode, branch=branch, create_from=base, engine="local", permissive=permissive)

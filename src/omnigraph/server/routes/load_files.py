"""The route that loads files of any size and kind as one commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, Final

from anyio import CancelScope, to_thread
from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.api.loads import LoadReceipt
from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.protocol import responses
from omnigraph.protocol.codec import EXACT, NDJSON, encode, encode_error
from omnigraph.protocol.requests import Branch, Mode
from omnigraph.protocol.result_bodies import load_body
from omnigraph.server.http.error_responses import CODES, failure
from omnigraph.server.http.request_context import BATCH_BYTES, Call, Called, bounded
from omnigraph.server.http.routing import BY_QUERY, WRITTEN, Responses, graph_router, refuse_condition
from omnigraph.server.routes.loads import allow_load, write_aside
from omnigraph.server.uploads.multipart import FORM, Upload, boundary_of
from omnigraph.server.uploads.rejects import RejectLines
from omnigraph.server.uploads.upload_sources import sent_source

router = graph_router("loads", *WRITTEN, 412)

LOAD_RESOURCE: Final = "load_bytes"
_DONE: Responses = {200: {"description": "Done.", "content": {EXACT: {}, NDJSON: {}}}}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            FORM: {
                "schema": {
                    "type": "object",
                    "properties": {
                        "records": {"type": "string", "format": "binary"},
                        "mapping": {"type": "string", "format": "binary"},
                    },
                    "additionalProperties": {"type": "string", "format": "binary"},
                }
            }
        },
    }
}


class Options(BaseModel):
    """How files are to be loaded."""

    branch: Branch = "main"
    from_: Branch | None = Field(None, alias="from")
    mode: Mode = "merge"
    permissive: bool = False
    message: str | None = None
    if_commit: str | None = None
    idempotency_key: str | None = None
    dry_run: bool = False
    rejects: bool = Field(False, description="Leave out what is wrong by itself, and tell it.")


@router.post("/load/files", response_model=responses.Load, responses=_DONE, openapi_extra=_BODY)
async def load_files(call: Called, wanted: Annotated[Options, Query()]) -> Response:
    """Load files: `records` are of graph records, others of the type that they are named by, such as ``Person``.

    The name of a file says what format it has. `mapping` says which columns fill which properties. Nothing of the
    body is read before it is known that the caller may load. With `rejects`, what is wrong by itself is left out;
    the answer then has a line for each such record, and last one with the receipt.
    """
    refuse_condition(call.request, BY_QUERY)
    await allow_load(call, wanted.branch, wanted.from_)
    boundary = boundary_of(call.request.headers.get("content-type", ""))
    # What has arrived is on the disk, not in memory.
    held = min(call.size or BATCH_BYTES, BATCH_BYTES)
    with call.admission.admit(call.actor, held):
        async with _received(call, boundary) as upload:
            return await call.write_admitted(partial(_load, call, wanted, upload))


@asynccontextmanager
async def _received(call: Call, boundary: bytes) -> AsyncIterator[Upload]:
    """The parts of the body, for as long as the context lasts."""
    upload = Upload(boundary)
    try:
        limit = call.request.app.state.hosted.limits.load_bytes
        await write_aside(call, bounded(call.request, limit, LOAD_RESOURCE), upload.write)
        upload.finish()
        yield upload
    finally:
        # Also when the request is given up.
        with CancelScope(shield=True):
            await to_thread.run_sync(upload.close, limiter=call.writers)


def _load(call: Call, wanted: Options, upload: Upload, graph: Graph) -> Any:
    rejected = RejectLines(upload, exact=call.exact) if wanted.rejects else None
    try:
        receipt = _loaded(graph, wanted, upload, rejected)
    except OmnigraphError as error:
        found = upload.renamed_error(error)
        if rejected is not None and rejected.count and call.exact and failure(found)[0] < 500:
            # Whoever loads where the graph is has the rejects also when the load fails in the end.
            return rejected.response({"exception": encode_error(found)})
        if rejected is not None:
            rejected.close()
        if isinstance(found, StorageError) and _is_about(found, upload):
            return _unreadable(found, exact=call.exact)
        raise found from error
    body = encode(receipt) if call.exact else load_body(receipt, None, wanted.from_, call.actor)
    return body if rejected is None else rejected.response({"receipt": body})


def _loaded(graph: Graph, wanted: Options, upload: Upload, rejected: RejectLines | None) -> LoadReceipt:
    with sent_source(upload.parts) as (source, mapping):
        return graph.load(
            source,
            wanted.mode,
            branch=wanted.branch,
            create_from=wanted.from_,
            engine="local",
            rejects=None if rejected is None else rejected.take,
            permissive=wanted.permissive,
            message=wanted.message,
            if_commit=wanted.if_commit,
            idempotency_key=wanted.idempotency_key,
            dry_run=wanted.dry_run,
            mapping=mapping,
        )


def _is_about(error: StorageError, upload: Upload) -> bool:
    return error.details.get("source") in {part.label or part.name for part in upload.parts}


def _unreadable(error: StorageError, *, exact: bool) -> Response:
    """The refusal of a file that breaks off or cannot be unpacked: it is the client's, not the graph's."""
    told = {"exception": encode_error(error)} if exact else {}
    return JSONResponse({"error": error.message, "code": CODES[400], **told}, 400)

"""The route that loads files of any size as one commit."""

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
from omnigraph.api.results.loads import LoadReceipt
from omnigraph.budget.query_budget import QueryLimits, limit_query
from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.protocol import responses
from omnigraph.protocol.codec import EXACT, NDJSON, encode, encode_error
from omnigraph.protocol.requests import BranchName
from omnigraph.protocol.result_bodies import load_body
from omnigraph.protocol.wire_types import IndexTime, LoadMode
from omnigraph.server.http.error_responses import CODES, render_error
from omnigraph.server.http.request_body import BATCH_BYTES, read_limited
from omnigraph.server.http.request_context import Context, RequestContext
from omnigraph.server.http.routing import (
    BLOB_WRITE_ERRORS,
    USE_PARAMETER,
    Responses,
    graph_router,
    reject_if_commit_header,
)
from omnigraph.server.limits import ServerLimits
from omnigraph.server.routes.loads import authorize_load, warning_headers, write_chunks
from omnigraph.server.running_queries import RunningQueries
from omnigraph.server.uploads.multipart import FORM, Upload, parse_boundary
from omnigraph.server.uploads.rejects import RejectBuffer
from omnigraph.server.uploads.upload_sources import open_source

router = graph_router("loads", *BLOB_WRITE_ERRORS, 412)

LOAD_RESOURCE: Final = "load_bytes"
# Up to this size the ratio of decoded to stored bytes does not matter.
_FREE_DECODED_BYTES: Final = 1 << 30
# The decoded bytes of one batch, which may consist of one long value.
_MIN_LOAD_MEMORY: Final = 512 << 20
_SUCCESS: Responses = {200: {"description": "Success.", "content": {EXACT: {}, NDJSON: {}}}}
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


class LoadOptions(BaseModel):
    """Query parameters of a load."""

    branch: BranchName = "main"
    from_: BranchName | None = Field(None, alias="from")
    mode: LoadMode = "merge"
    permissive: bool = False
    message: str | None = None
    if_commit: str | None = None
    idempotency_key: str | None = None
    dry_run: bool = False
    csv_null: str = Field("", description="Text of an unquoted CSV cell that means null.")
    op_column: str | None = Field(None, description="Column or field with the operation of each row.")
    order_by: str | None = Field(None, description="Column or field with the order of the rows of one key.")
    require_existing: bool = Field(False, description="Refuse a delete of a row that does not exist.")
    index: IndexTime = Field(
        "now", description="When the rows are indexed: with the load, or `later` by the next optimize."
    )
    rejects: bool = Field(
        False,
        description="Leave out records that are invalid or break a constraint, and report them, one JSON object per"
        " line.",
    )
    max_rejects: str | None = Field(
        None,
        description="Number of rejected records, or a percentage of the input such as `0.5%`, above which nothing"
        " is committed.",
    )


@router.post(
    "/load/files",
    operation_id="cluster_loadFiles",
    response_model=responses.GraphBatchLoadOutput,
    responses=_SUCCESS,
    openapi_extra=_BODY,
)
async def load_files(context: Context, options: Annotated[LoadOptions, Query()]) -> Response:
    """Load files as one commit.

    The form field `records` contains graph records. Any other field contains rows of the type that it is named
    after, such as ``Person``. The suffix of the file name determines the format. `mapping` maps columns to
    properties. The body is read only after authorization. With `rejects` the response is one line for each
    rejected record and a last line with the receipt.
    """
    reject_if_commit_header(context.request, USE_PARAMETER)
    await authorize_load(context, options.branch, options.from_)
    boundary = parse_boundary(context.request.headers.get("content-type", ""))
    # The body is stored on disk, so it counts at most as a large JSON body.
    size = min(context.body_size or BATCH_BYTES, BATCH_BYTES)
    with context.admission.admit(context.actor, size):
        async with _receive_upload(context, boundary) as upload:
            return await context.write_admitted(partial(_load, context, options, upload))


@asynccontextmanager
async def _receive_upload(context: RequestContext, boundary: bytes) -> AsyncIterator[Upload]:
    """Receive the body. The files exist while the context is open."""
    upload = Upload(boundary)
    try:
        limit = context.request.app.state.resources.limits.load_bytes
        await write_chunks(context, read_limited(context.request, limit, LOAD_RESOURCE), upload.write)
        upload.finish()
        yield upload
    finally:
        # Shielded, because the files must be removed when the client disconnects too.
        with CancelScope(shield=True):
            await to_thread.run_sync(upload.close, limiter=context.write_threads)


def _load(context: RequestContext, options: LoadOptions, upload: Upload, graph: Graph) -> Any:
    rejects = RejectBuffer(upload, exact=context.exact) if options.rejects else None
    try:
        receipt = _load_upload(graph, options, upload, rejects, _limits_of(context, upload))
    except OmnigraphError as error:
        restored = upload.restore_error(error)
        if rejects is not None and rejects.count and context.exact and render_error(restored)[0] < 500:
            # A local load reports rejected records before it fails, so the client needs them too.
            return rejects.to_response({"exception": encode_error(restored)})
        if rejects is not None:
            rejects.close()
        if isinstance(restored, StorageError) and _is_upload_error(restored, upload):
            return _unreadable_file(restored, exact=context.exact)
        raise restored from error
    body = encode(receipt) if context.exact else load_body(receipt, None, options.from_, context.actor)
    if rejects is None and not receipt.warnings.total:
        return body
    response = (
        JSONResponse(body, media_type=EXACT if context.exact else JSONResponse.media_type)
        if rejects is None
        else rejects.to_response({"receipt": body})
    )
    response.headers.update(warning_headers(receipt))
    return response


def _load_upload(
    graph: Graph,
    options: LoadOptions,
    upload: Upload,
    rejects: RejectBuffer | None,
    limits: QueryLimits,
) -> LoadReceipt:
    with open_source(upload.parts) as (source, mapping), limit_query(limits):
        return graph.load(
            source,
            options.mode,
            branch=options.branch,
            create_from=options.from_,
            engine="local",
            rejects=None if rejects is None else rejects.add,
            max_rejects=options.max_rejects,
            permissive=options.permissive,
            message=options.message,
            if_commit=options.if_commit,
            idempotency_key=options.idempotency_key,
            dry_run=options.dry_run,
            mapping=mapping,
            csv_null=options.csv_null,
            op_column=options.op_column,
            order_by=options.order_by,
            require_existing=options.require_existing,
            index=options.index,
        )


def _limits_of(context: RequestContext, upload: Upload) -> QueryLimits:
    """Return the limits of memory and of decoded bytes. A small file may be decoded to many times its size."""
    limits: ServerLimits = context.request.app.state.resources.limits
    queries: RunningQueries = context.request.app.state.queries
    largest = max(_FREE_DECODED_BYTES, limits.load_ratio * upload.size)
    memory = max(queries.query_limits.bytes or 0, _MIN_LOAD_MEMORY)
    return QueryLimits(bytes=memory, decoded=min(limits.load_decoded_bytes, largest))


def _is_upload_error(error: StorageError, upload: Upload) -> bool:
    return error.details.get("source") in {part.display_name for part in upload.parts}


def _unreadable_file(error: StorageError, *, exact: bool) -> Response:
    """Return a 400 for a truncated or corrupt file, which is an error of the client and not of the storage."""
    members = {"exception": encode_error(error)} if exact else {}
    return JSONResponse({"error": error.message, "code": CODES[400], **members}, 400)

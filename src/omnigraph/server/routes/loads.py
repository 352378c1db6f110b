"""Routes that load records from a request body as one commit."""

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
from omnigraph.api.results.loads import LoadReceipt
from omnigraph.errors import PermissionDenied
from omnigraph.protocol import responses
from omnigraph.protocol.codec import LOAD_WARNINGS, NDJSON
from omnigraph.protocol.requests import BranchName, IngestRequest
from omnigraph.protocol.result_bodies import load_body
from omnigraph.protocol.wire_types import IndexTime, LoadMode
from omnigraph.server.http.error_responses import HttpError
from omnigraph.server.http.request_body import BATCH_BYTES, BATCH_RESOURCE, read_limited
from omnigraph.server.http.request_context import Context, RequestContext
from omnigraph.server.http.routing import (
    BLOB_WRITE_ERRORS,
    SUCCESS,
    add_deprecation_headers,
    graph_router,
    reject_if_commit_header,
)

router = graph_router("loads", *BLOB_WRITE_ERRORS)

_SPOOL_BYTES = 1 << 20
_WRITE_BYTES = 1 << 20
_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {NDJSON: {"schema": {"type": "string", "format": "binary"}}}}
}
FromQuery: TypeAlias = Annotated[BranchName | None, Query(alias="from")]


@router.post("/load", operation_id="cluster_load", response_model=responses.IngestOutput, responses=SUCCESS)
async def load(context: Context, body: IngestRequest) -> Response:
    """Load records from a JSON body. The records are JSON objects, on one or several lines each.

    With the modes `patch` and `delete`, each record is on one line.
    """
    return await _load_text(context, body)


@router.post(
    "/ingest",
    operation_id="cluster_ingest",
    response_model=responses.IngestOutput,
    responses=SUCCESS,
    deprecated=True,
)
async def ingest(context: Context, body: IngestRequest) -> Response:
    """Deprecated alias of `/load`."""
    return add_deprecation_headers(context.request, await _load_text(context, body))


@router.post(
    "/load/ndjson",
    operation_id="cluster_loadNdjson",
    response_model=responses.GraphBatchLoadOutput,
    responses=SUCCESS,
    openapi_extra=_BODY,
)
async def load_ndjson(
    context: Context,
    branch: BranchName = "main",
    from_: FromQuery = None,
    mode: LoadMode = "merge",
    op_column: str | None = None,
    order_by: str | None = None,
    *,
    require_existing: bool = False,
    index: IndexTime = "now",
) -> Response:
    """Load records from an NDJSON body. The body is read only after authorization.

    `op_column` and `order_by` name fields of the records with their operation and their order.
    """
    options = {"op_column": op_column, "order_by": order_by, "require_existing": require_existing}
    options |= {"index": index}
    reject_if_commit_header(context.request)
    media_type = context.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    await authorize_load(context, branch, from_)
    if media_type != NDJSON:
        raise HttpError(415, f"Content-Type must be {NDJSON}")
    # A body of undeclared size counts as the largest one.
    with (
        context.admission.admit(context.actor, context.body_size or BATCH_BYTES),
        SpooledTemporaryFile(max_size=_SPOOL_BYTES) as file,
    ):
        await write_chunks(context, read_limited(context.request, BATCH_BYTES, BATCH_RESOURCE), file.write)
        file.seek(0)
        source = cast(IO[bytes], file)
        return await context.write_admitted(
            lambda graph: _load(graph, source, branch, from_, mode, permissive=False, **options),
            lambda receipt: load_body(receipt, None, from_, context.actor),
        )


async def _load_text(context: RequestContext, body: IngestRequest) -> Response:
    reject_if_commit_header(context.request)
    await authorize_load(context, body.branch, body.from_)

    def work(graph: Graph) -> LoadReceipt:
        data = BytesIO(body.data.encode())
        # A change names its row and the columns to keep, so it is read by the strict rules.
        permissive = body.mode not in ("patch", "delete")
        return _load(graph, data, body.branch, body.from_, body.mode, permissive=permissive)

    receipts: list[LoadReceipt] = []

    def noted(graph: Graph) -> LoadReceipt:
        receipts.append(work(graph))
        return receipts[-1]

    response = await context.write(
        noted, lambda receipt: load_body(receipt, context.uri, body.from_, context.actor)
    )
    response.headers.update(warning_headers(receipts[-1]) if receipts else {})
    return response


def warning_headers(receipt: LoadReceipt) -> dict[str, str]:
    """Return the header of a load that stored values as null or dropped fields; none for any other load."""
    warnings = receipt.warnings
    counts = {"nulled": warnings.nulled, "dropped": warnings.dropped}
    text = ", ".join(f"{name}={number}" for name, number in counts.items() if number)
    return {LOAD_WARNINGS: text} if text else {}


async def write_chunks(
    context: RequestContext, chunks: AsyncIterator[bytes], write: Callable[[bytes], object]
) -> None:
    """Call `write` with the chunks of a body, on a thread for writes, because it accesses the disk."""
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        if len(buffer) >= _WRITE_BYTES:
            await to_thread.run_sync(write, bytes(buffer), limiter=context.write_threads)
            buffer.clear()
    await to_thread.run_sync(write, bytes(buffer), limiter=context.write_threads)


async def authorize_load(context: RequestContext, branch: str, base: str | None) -> None:
    """Raise `PermissionDenied` unless the caller may load into a branch and, if necessary, create it."""
    context.authorize("change", branch)
    if base is None:
        return
    try:
        context.authorize("branch_create", base, branch)
        context.authorize("read", base)
    except PermissionDenied:
        # The permission is needed only if the branch does not exist.
        if await run_in_threadpool(_is_missing, context, branch):
            raise


def _is_missing(context: RequestContext, branch: str) -> bool:
    try:
        return branch not in context.graph.branches.list()
    except PermissionDenied:
        # The caller may not list branches. The graph handle checks the permission when it creates the branch.
        return False


def _load(
    graph: Graph,
    source: IO[bytes],
    branch: str,
    base: str | None,
    mode: LoadMode,
    *,
    permissive: bool,
    **operations: Any,
) -> LoadReceipt:
    return graph.load(
        source, mode, branch=branch, create_from=base, engine="local", permissive=permissive, **operations
    )

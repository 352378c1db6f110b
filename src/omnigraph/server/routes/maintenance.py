"""Maintenance routes: settings, indexes, compaction, garbage collection, verification and recovery."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.api.results.maintenance_reports import Optimized
from omnigraph.maintain.optimize import BUSY, EXACT_VECTORS, TypeOptimization
from omnigraph.maintain.settings import GraphSettings
from omnigraph.maintain.verification.report import VerifyReport
from omnigraph.protocol import maintenance_responses as responses
from omnigraph.protocol.requests import (
    CleanupRequest,
    OptimizeRequest,
    RepairRequest,
    SettingsRequest,
    VerifyRequest,
)
from omnigraph.protocol.result_bodies import commit_body, recovery_body
from omnigraph.server.http.error_responses import STORAGE_FAILURE
from omnigraph.server.http.request_context import Context, RequestContext
from omnigraph.server.http.routing import (
    SUCCESS,
    WRITE_ERRORS,
    error_responses,
    graph_router,
    reject_if_commit_header,
)
from omnigraph.server.logs import LOGGER
from omnigraph.server.routes.reads import SnapshotParameters
from omnigraph.store.tables.vector_indexes import FEW_VECTORS

router = graph_router("maintenance")


@router.get(
    "/indexes",
    operation_id="cluster_listIndexes",
    response_model=responses.IndexListOutput,
    responses=SUCCESS,
)
async def list_indexes(context: Context, snapshot: SnapshotParameters) -> Response:
    """List the indexes of a snapshot and the rows that each covers."""
    snapshot.authorize(context)
    return await context.read(
        lambda graph: graph.indexes(**snapshot.arguments),
        lambda indexes: {"indexes": [asdict(index) for index in indexes]},
    )


@router.post(
    "/optimize",
    operation_id="cluster_optimize",
    response_model=responses.OptimizeOutput,
    responses={**SUCCESS, **error_responses(*WRITE_ERRORS)},
)
async def optimize(context: Context, body: OptimizeRequest | None = None) -> Response:
    """Compact tables and build indexes. Makes one commit, or none if there is nothing to do."""
    reject_if_commit_header(context.request)
    request = body or OptimizeRequest()
    context.authorize("change", request.branch)

    def work(graph: Graph) -> Optimized:
        # The server does not start Spark, which needs a process of its own.
        result = graph.optimize(branch=request.branch, engine="local", message=request.message)
        return replace(result, datasets=tuple(_redact_dataset(context, item) for item in result.datasets))

    return await context.write(work, _optimize_body)


@router.get(
    "/settings",
    operation_id="cluster_getSettings",
    response_model=responses.SettingsOutput,
    responses=SUCCESS,
)
async def get_settings(context: Context) -> Response:
    """Settings of the graph."""
    context.authorize("read")
    return await context.read(lambda graph: graph.settings(), GraphSettings.to_json)


@router.patch(
    "/settings",
    operation_id="cluster_setSettings",
    response_model=responses.SettingsOutput,
    responses={**SUCCESS, **error_responses(415, 429)},
)
async def set_settings(context: Context, body: SettingsRequest) -> Response:
    """Change the settings of the graph. Requires permission for `admin`."""
    reject_if_commit_header(context.request)
    context.authorize("admin")
    return await context.write(
        lambda graph: graph.set_settings(retention=body.retention), GraphSettings.to_json
    )


@router.post(
    "/cleanup",
    operation_id="cluster_cleanup",
    response_model=responses.CleanupOutput,
    responses={**SUCCESS, **error_responses(415, 429)},
)
async def cleanup(context: Context, body: CleanupRequest | None = None) -> Response:
    """Garbage collection. Dry run unless `confirm` is true.

    Removes data that only old commits need. Requires permission for `admin`; a dry run requires `change` on `main`.
    """
    reject_if_commit_header(context.request)
    request = body or CleanupRequest()
    if request.confirm:
        context.authorize("admin")
    else:
        context.authorize("change", "main")

    def work(graph: Graph) -> dict[str, Any]:
        report = graph.cleanup(request.keep, request.older_than, request.confirm, grace=request.grace)
        datasets = [
            {**item, "error": _redact(context, item["type_key"], item["error"])}
            for item in report["datasets"]
        ]
        error = _redact(context, "objects", report["objects_error"])
        return {**report, "datasets": datasets, "objects_error": error}

    return await context.write(work)


@router.post(
    "/verify",
    operation_id="cluster_verify",
    response_model=responses.VerifyOutput,
    responses={**SUCCESS, **error_responses(415, 429)},
)
async def verify(context: Context, body: VerifyRequest | None = None) -> Response:
    """Check that the graph in storage is complete and unaltered. Requires permission for `admin`.

    Damage is part of the response, which has status 200.
    """
    reject_if_commit_header(context.request)
    request = body or VerifyRequest()
    context.authorize("admin")

    def work(graph: Graph) -> VerifyReport:
        # The server does not start Spark, which needs a process of its own.
        return graph.verify(
            quick=request.quick,
            all_commits=request.all_commits,
            branch=request.branch,
            record=request.record,
            engine="local",
        )

    return await context.write(work, VerifyReport.to_json)


@router.post(
    "/repair",
    operation_id="cluster_repair",
    response_model=responses.RepairOutput,
    responses={**SUCCESS, **error_responses(415, 429)},
)
async def repair(context: Context, body: RepairRequest | None = None) -> Response:
    """Roll interrupted bulk writes forward or back, rebuild damaged indexes, or reset a damaged branch.

    Dry run unless `confirm` is true.
    Requires permission for `change` on `main`; `force` and a reset require `admin`.
    """
    reject_if_commit_header(context.request)
    request = body or RepairRequest()
    if request.force or request.reset_branch is not None:
        context.authorize("admin")
    else:
        context.authorize("change", "main")
    return await context.write(
        lambda graph: graph.repair(
            request.confirm, force=request.force, reset_branch=request.reset_branch, to=request.to
        ),
        asdict,
    )


@router.get(
    "/recoveries",
    operation_id="cluster_listRecoveries",
    response_model=responses.RecoveryListOutput,
    responses=SUCCESS,
)
async def list_recoveries(context: Context) -> Response:
    """Recovery outcomes of interrupted bulk writes, newest first."""
    context.authorize("read")
    return await context.read(
        lambda graph: graph.recoveries(),
        lambda recoveries: {"recoveries": [recovery_body(item) for item in recoveries]},
    )


def _optimize_body(result: Optimized) -> dict[str, Any]:
    return {
        "commit": None if result.commit is None else commit_body(result.commit),
        "branch": result.branch,
        "datasets": [item.to_json() for item in result.datasets],
    }


def _redact_dataset(context: RequestContext, item: TypeOptimization) -> TypeOptimization:
    """Remove the messages of storage errors. A skip because of a concurrent writer is not one."""
    error = item.error if item.skipped == BUSY else _redact(context, item.type_key, item.error)
    pending = (
        (
            name,
            reason
            if reason in (EXACT_VECTORS, FEW_VECTORS)
            else _redact(context, item.type_key, reason) or "",
        )
        for name, reason in item.pending_indexes
    )
    return replace(item, error=error, pending_indexes=tuple(pending))


def _redact(context: RequestContext, type_key: str, error: str | None) -> str | None:
    """Log a storage error and return the text that clients get."""
    if error is None:
        return None
    fields = {"request_id": context.request.scope.get("request_id"), "type": type_key, "error": error}
    LOGGER.error("storage failure", extra={"fields": fields})
    return STORAGE_FAILURE

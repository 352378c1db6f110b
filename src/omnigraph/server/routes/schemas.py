"""Routes of schema migrations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from starlette.responses import Response

from omnigraph.api.graph import Graph
from omnigraph.api.hosting.stored_queries import broken_queries
from omnigraph.api.interface.schemas import SchemaApplied
from omnigraph.errors import Conflict, InvalidInput, PermissionDenied
from omnigraph.graph.branch_names import MAIN
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.protocol import responses
from omnigraph.protocol.codec import encode
from omnigraph.protocol.requests import (
    BackfillExpression,
    BackfillValue,
    SchemaApplyRequest,
    SchemaPlanRequest,
)
from omnigraph.schema.expression import expr
from omnigraph.server.http.request_context import Context, RequestContext
from omnigraph.server.http.routing import (
    BODY_ERRORS,
    SUCCESS,
    USE_MEMBER,
    WRITE_ERRORS,
    error_responses,
    graph_router,
    reject_if_commit_header,
)

router = graph_router("schemas")

_REPORTED_QUERIES = 3


@router.post(
    "/schema/plan",
    operation_id="cluster_planSchema",
    response_model=responses.SchemaPlanOutput,
    responses={**SUCCESS, **error_responses(*BODY_ERRORS)},
)
async def plan_schema(context: Context, body: SchemaPlanRequest) -> Response:
    """Plan a schema migration. Returns all steps, including rejected ones; nothing is changed."""
    context.authorize("read", body.branch)
    context.check_text("schema", body.schema_source)

    def work(graph: Graph) -> dict[str, Any]:
        plan = graph.schema.plan(
            _schema_text(body),
            allow_data_loss=body.allow_data_loss,
            branch=body.branch,
            backfill=_read_backfill(body.backfill),
        )
        return plan.to_json()

    return await context.read(work)


@router.post(
    "/schema/apply",
    operation_id="cluster_applySchema",
    response_model=responses.SchemaApplyOutput,
    responses={**SUCCESS, **error_responses(*WRITE_ERRORS, 412)},
)
async def apply_schema(context: Context, body: SchemaApplyRequest) -> Response:
    """Migrate the schema of a branch as one commit."""
    reject_if_commit_header(context.request, USE_MEMBER)
    context.authorize("schema_apply", target=body.branch)
    if not context.hosted.can_apply_schema:
        raise Conflict(
            "schema apply is disabled for graphs that a cluster manages",
            hint="change the schema file of the cluster and run `omnigraph cluster apply`",
        )
    context.check_text("schema", body.schema_source)

    def work(graph: Graph) -> SchemaApplied:
        backfill = _read_backfill(body.backfill)
        if body.branch == MAIN:
            _check_stored_queries(context, graph, body, backfill)
        return graph.schema.apply(
            _schema_text(body),
            allow_data_loss=body.allow_data_loss,
            branch=body.branch,
            backfill=backfill,
            message=body.message,
            if_commit=body.if_commit,
        )

    return await context.write(work, lambda result: {"uri": context.uri, **result.to_json()}, _exact_body)


def _check_stored_queries(
    context: RequestContext, graph: Graph, body: SchemaApplyRequest, backfill: Mapping[str, Any] | None
) -> None:
    """Raise `Conflict` if a stored query does not type-check with the new schema of `main`.

    The graph would be quarantined at the next start.
    """
    text = _schema_text(body)
    queries = context.hosted.queries
    broken = broken_queries(queries.values(), load_schema(text)) if queries else {}
    if not broken:
        return
    with suppress(PermissionDenied):
        plan = graph.schema.plan(text, allow_data_loss=body.allow_data_loss, backfill=backfill)
        if not plan.supported or not plan.steps:
            # The migration fails or does nothing, and its own error is more specific.
            return
    raise Conflict(
        f"the schema breaks stored queries of the graph: {', '.join(broken)}",
        details={"queries": list(broken)},
        hint="; ".join(f"{name}: {problem}" for name, problem in islice(broken.items(), _REPORTED_QUERIES)),
    )


def _schema_text(body: SchemaPlanRequest) -> str:
    """Return the schema text, with a newline if it ends in `.pg`: the library would take it for a path."""
    return f"{body.schema_source}\n" if body.schema_source.endswith(".pg") else body.schema_source


def _read_backfill(items: Sequence[BackfillValue | BackfillExpression] | None) -> dict[str, Any] | None:
    if items is None:
        return None
    backfill: dict[str, Any] = {}
    for item in items:
        if item.property in backfill:
            raise InvalidInput(f"the backfill of '{item.property}' is given twice")
        backfill[item.property] = expr(item.expr) if isinstance(item, BackfillExpression) else item.value
    return backfill


def _exact_body(result: SchemaApplied) -> dict[str, Any]:
    """Return the result with the previous schema, from which the client computes the steps itself."""
    return {
        "applied": result.applied,
        "commit": None if result.commit is None else encode(result.commit),
        "graph_manifest_version": result.graph_manifest_version,
        "before": None if result.before is None else result.before.to_json(),
    }

"""Routes that change entities by a query, and the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from starlette.responses import Response

from omnigraph.api.commits import Receipt
from omnigraph.api.graph import Graph
from omnigraph.api.schemas import SchemaApplied
from omnigraph.api.stored_queries import broken_queries
from omnigraph.errors import Conflict, InvalidInput, PermissionDenied
from omnigraph.graph.branch_names import MAIN
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.protocol import responses
from omnigraph.protocol.codec import encode
from omnigraph.protocol.requests import (
    BackfillExpression,
    BackfillValue,
    MutateRequest,
    PlanRequest,
    SchemaRequest,
)
from omnigraph.protocol.result_bodies import change_body
from omnigraph.schema.expression import expr
from omnigraph.server.http.request_context import Call, Called
from omnigraph.server.http.routing import (
    BY_MEMBER,
    BY_ROUTE,
    CONDITION,
    EXACTLY,
    SENT,
    WRITTEN,
    expected_commit,
    graph_router,
    refusals,
    refuse_condition,
    tell_successor,
)
from omnigraph.server.routes.reads import chosen_name

router = graph_router("writes")

_SHOWN_QUERIES = 3


@router.post("/mutate", response_model=responses.Change, responses={**EXACTLY, **refusals(*WRITTEN)})
async def mutate(call: Called, body: MutateRequest) -> Response:
    """Run a mutation as one commit: all of it happens, or nothing."""
    refuse_condition(call.request, BY_ROUTE)
    return await _mutate(call, body)


@router.post(
    "/mutate/if-graph-commit",
    response_model=responses.Change,
    openapi_extra=CONDITION,
    responses={**EXACTLY, **refusals(*WRITTEN, 412)},
)
async def mutate_if(call: Called, body: MutateRequest) -> Response:
    """The same, if the branch still stands at the commit of the header `Omnigraph-If-Graph-Commit`."""
    return await _mutate(call, body, expected_commit(call.request))


@router.post(
    "/change",
    response_model=responses.Change,
    responses={**EXACTLY, **refusals(*WRITTEN)},
    deprecated=True,
)
async def change(call: Called, body: MutateRequest) -> Response:
    """What `/mutate` used to be."""
    refuse_condition(call.request, BY_ROUTE)
    return tell_successor(call.request, await _mutate(call, body))


@router.post("/schema/plan", response_model=responses.Plan, responses={**EXACTLY, **refusals(*SENT)})
async def plan_schema(call: Called, body: PlanRequest) -> Response:
    """The steps from the schema of a branch to another, refused ones included; nothing is changed."""
    call.allow("read", body.branch)

    def work(graph: Graph) -> dict[str, Any]:
        found = graph.schema.plan(
            _text(body),
            allow_data_loss=body.allow_data_loss,
            branch=body.branch,
            backfill=_backfill(body.backfill),
        )
        return found.to_json()

    return await call.read(work)


@router.post(
    "/schema/apply",
    response_model=responses.SchemaApplied,
    responses={**EXACTLY, **refusals(*WRITTEN, 412)},
)
async def apply_schema(call: Called, body: SchemaRequest) -> Response:
    """Make a schema the accepted one of a branch, with the data that it takes, as one commit."""
    refuse_condition(call.request, BY_MEMBER)
    call.allow("schema_apply", target=body.branch)
    if not call.hosted.can_apply_schema:
        raise Conflict("schema apply is disabled for graphs that a cluster serves")

    def work(graph: Graph) -> SchemaApplied:
        backfill = _backfill(body.backfill)
        if body.branch == MAIN:
            _check_stored(call, graph, body, backfill)
        return graph.schema.apply(
            _text(body),
            allow_data_loss=body.allow_data_loss,
            branch=body.branch,
            backfill=backfill,
            message=body.message,
            if_commit=body.if_commit,
        )

    return await call.write(
        work, lambda done: {"uri": call.hosted.graph.uri, **done.to_json()}, _exact_schema
    )


def _check_stored(call: Call, graph: Graph, body: SchemaRequest, backfill: Mapping[str, Any] | None) -> None:
    """Return when the stored queries fit a schema of main, else `Conflict`: the graph would not be served again."""
    text = _text(body)
    broken = broken_queries(call.hosted.queries.values(), load_schema(text)) if call.hosted.queries else {}
    if not broken:
        return
    with suppress(PermissionDenied):
        plan = graph.schema.plan(text, allow_data_loss=body.allow_data_loss, backfill=backfill)
        if not plan.supported or not plan.steps:
            # Nothing will change, and what refuses it says more.
            return
    raise Conflict(
        f"the schema does not fit stored queries of the graph: {', '.join(broken)}",
        details={"queries": list(broken)},
        hint="; ".join(f"{name}: {problem}" for name, problem in islice(broken.items(), _SHOWN_QUERIES)),
    )


def _text(body: PlanRequest) -> str:
    """The text of a client, never a path: a line that looks like the name of a schema file stays what it is."""
    return f"{body.schema_source}\n" if body.schema_source.endswith(".pg") else body.schema_source


def _backfill(items: Sequence[BackfillValue | BackfillExpression] | None) -> dict[str, Any] | None:
    if items is None:
        return None
    found: dict[str, Any] = {}
    for item in items:
        if item.property in found:
            raise InvalidInput(f"the backfill of '{item.property}' is given twice")
        found[item.property] = expr(item.expr) if isinstance(item, BackfillExpression) else item.value
    return found


def _exact_schema(done: SchemaApplied) -> dict[str, Any]:
    """What happened, and the schema it began from: with it and the new one anybody finds the same steps."""
    return {
        "applied": done.applied,
        "commit": None if done.commit is None else encode(done.commit),
        "graph_manifest_version": done.graph_manifest_version,
        "before": None if done.before is None else done.before.to_json(),
    }


async def _mutate(call: Call, body: MutateRequest, if_commit: str | None = None) -> Response:
    call.allow("change", body.branch)

    def work(graph: Graph) -> Receipt:
        name = chosen_name(call, body.query, body.name, mutation=True)
        done = graph.mutate(
            body.query,
            body.params,
            # As it was sent: a request that is sent again is known by that.
            name=body.name,
            branch=body.branch,
            message=body.message,
            if_commit=if_commit,
            idempotency_key=body.idempotency_key,
        )
        return done if done.query_name is not None else replace(done, query_name=name)

    return await call.write(work, lambda done: change_body(done, body.branch, call.actor))


async def run_mutation(
    call: Call,
    text: str,
    name: str,
    params: Mapping[str, Any] | None,
    branch: str,
    if_commit: str | None,
) -> Response:
    """Run a stored mutation and tell what it did."""
    return await call.write(
        lambda graph: graph.mutate(text, params, name=name, branch=branch, if_commit=if_commit),
        lambda done: change_body(done, branch, call.actor),
    )

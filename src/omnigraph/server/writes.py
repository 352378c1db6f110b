"""Routes that change entities by a query, and the schema."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from omnigraph.api.bodies import change_body
from omnigraph.api.graph import Graph
from omnigraph.errors import Conflict
from omnigraph.server import answers
from omnigraph.server.bodies import MutateRequest, SchemaRequest
from omnigraph.server.requests import Call, Called
from omnigraph.server.routing import deprecated, expected_commit, graph_router, refuse_condition
from omnigraph.server.stored_queries import choose_query

router = graph_router("writes")


@router.post("/mutate", response_model=answers.Change)
async def mutate(call: Called, body: MutateRequest) -> Response:
    """Run a mutation as one commit: all of it happens, or nothing."""
    refuse_condition(call.request)
    return await _mutate(call, body)


@router.post("/mutate/if-graph-commit", response_model=answers.Change)
async def mutate_if(call: Called, body: MutateRequest) -> Response:
    """The same, if the branch still stands at the commit of the header `Omnigraph-If-Graph-Commit`."""
    return await _mutate(call, body, expected_commit(call.request))


@router.post("/change", response_model=answers.Change, deprecated=True)
async def change(call: Called, body: MutateRequest) -> Response:
    """What `/mutate` used to be."""
    refuse_condition(call.request)
    return deprecated(await _mutate(call, body), "mutate")


@router.post("/schema/apply", response_model=answers.SchemaApplied)
async def apply_schema(call: Called, body: SchemaRequest) -> Response:
    """Make a schema the accepted one of main, with the data that it takes, as one commit."""
    call.allow("schema_apply", target="main")
    if not call.hosted.can_apply_schema:
        raise Conflict("schema apply is disabled for graphs that a cluster serves")
    # A single line that looks like the path of a schema file must stay what it is: text of a client.
    text = body.schema_source if "\n" in body.schema_source else f"{body.schema_source}\n"

    def work(graph: Graph) -> dict[str, Any]:
        done = graph.schema.apply(text, allow_data_loss=body.allow_data_loss)
        return {"uri": graph.uri, **done.to_json()}

    return await call.write(work)


async def _mutate(call: Call, body: MutateRequest, if_commit: str | None = None) -> Response:
    call.allow("change", body.branch)

    def work(graph: Graph) -> dict[str, Any]:
        name = choose_query(body.query, body.name, mutation=True)
        return run_mutation(call, graph, body.query, name, body.params, body.branch, if_commit)

    return await call.write(work)


def run_mutation(
    call: Call,
    graph: Graph,
    text: str,
    name: str,
    params: dict[str, Any] | None,
    branch: str,
    if_commit: str | None,
) -> dict[str, Any]:
    """Run a mutation and tell what it did."""
    receipt = graph.mutate(text, params, name=name, branch=branch, if_commit=if_commit)
    return change_body(receipt, branch, call.actor)

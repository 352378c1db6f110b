"""Routes that keep a graph quick and small, and tell how it is."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from starlette.responses import Response

from omnigraph.api.commits import Optimized
from omnigraph.api.graph import Graph
from omnigraph.maintain.optimize import BUSY, EXACT_VECTORS, TypeOptimization
from omnigraph.protocol import maintenance_responses as answers
from omnigraph.protocol.requests import CleanupRequest, OptimizeRequest, RepairRequest
from omnigraph.protocol.result_bodies import commit_body
from omnigraph.server.http.error_responses import STORAGE_FAILED
from omnigraph.server.http.request_context import Call, Called
from omnigraph.server.http.routing import EXACTLY, WRITTEN, graph_router, refusals, refuse_condition
from omnigraph.server.logs import LOGGER
from omnigraph.server.routes.reads import NamedState

router = graph_router("maintenance")


@router.get("/indexes", response_model=answers.Indexes, responses=EXACTLY)
async def indexes(call: Called, named: NamedState) -> Response:
    """The indexes of a state, and how many rows each covers."""
    named.check(call)
    return await call.read(
        lambda graph: graph.indexes(**named.place),
        lambda found: {"indexes": [asdict(item) for item in found]},
    )


@router.post("/optimize", response_model=answers.Optimized, responses={**EXACTLY, **refusals(*WRITTEN)})
async def optimize(call: Called, body: OptimizeRequest | None = None) -> Response:
    """Make a branch quick to read again, as one commit, or none when there is nothing to do."""
    refuse_condition(call.request)
    asked = body or OptimizeRequest()
    call.allow("change", asked.branch)

    def work(graph: Graph) -> Optimized:
        # A server does not start Spark: who wants that opens the graph where its storage is.
        done = graph.optimize(branch=asked.branch, engine="local", message=asked.message)
        return replace(done, datasets=tuple(_told_type(call, item) for item in done.datasets))

    return await call.write(work, _show)


@router.post("/cleanup", response_model=answers.Cleaned, responses={**EXACTLY, **refusals(415, 429)})
async def cleanup(call: Called, body: CleanupRequest | None = None) -> Response:
    """Remove data that only old commits need; without `confirm` only tell what would go."""
    refuse_condition(call.request)
    asked = body or CleanupRequest()
    if asked.confirm:
        call.allow("admin")
    else:
        call.allow("change", "main")

    def work(graph: Graph) -> dict[str, Any]:
        done = graph.cleanup(asked.keep, asked.older_than, asked.confirm)
        told = [{**item, "error": _told(call, item["type_key"], item["error"])} for item in done["datasets"]]
        return {**done, "datasets": told}

    return await call.write(work)


@router.post("/repair", response_model=answers.Repaired, responses={**EXACTLY, **refusals(415, 429)})
async def repair(call: Called, body: RepairRequest | None = None) -> Response:
    """Settle what interrupted bulk writes left behind; without `confirm` only tell how many there are."""
    refuse_condition(call.request)
    asked = body or RepairRequest()
    call.allow("change", "main")
    return await call.write(lambda graph: graph.repair(asked.confirm), asdict)


def _show(done: Optimized) -> dict[str, Any]:
    return {
        "commit": None if done.commit is None else commit_body(done.commit),
        "branch": done.branch,
        "datasets": [item.to_json() for item in done.datasets],
    }


def _told_type(call: Call, item: TypeOptimization) -> TypeOptimization:
    """What optimize did for a type, without what storage said. That others were busy with it is no failure."""
    error = item.error if item.skipped == BUSY else _told(call, item.type_key, item.error)
    pending = (
        (name, why if why == EXACT_VECTORS else _told(call, item.type_key, why) or "")
        for name, why in item.pending_indexes
    )
    return replace(item, error=error, pending_indexes=tuple(pending))


def _told(call: Call, type_key: str, error: str | None) -> str | None:
    """That the storage of a type failed. What it said is for the log, as with every other failure of it."""
    if error is None:
        return None
    fields = {"request_id": call.request.scope.get("request_id"), "type": type_key, "error": error}
    LOGGER.error("failure", extra={"fields": fields})
    return STORAGE_FAILED

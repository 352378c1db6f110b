"""Routes of the server itself: is it alive, what does it serve, what has it done."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.responses import Response

from omnigraph import __version__
from omnigraph.errors import PermissionDenied
from omnigraph.policy.gate import Access
from omnigraph.protocol import responses
from omnigraph.protocol.result_bodies import INTERNAL_SCHEMA
from omnigraph.server.hosted_graphs import Hosted
from omnigraph.server.http.request_context import Called, GraphRoute, authenticate
from omnigraph.server.http.routing import EXACTLY, PREFIX, refusals
from omnigraph.server.metrics import MEDIA_TYPE, Metrics

router = APIRouter(tags=["server"], responses=refusals(500, 503))
LIST = Access("graph_list")


@router.get("/healthz", response_model=responses.Health)
async def healthz() -> Response:
    """That the process is alive."""
    return JSONResponse({"status": "ok", "version": __version__, "internal_schema_version": INTERNAL_SCHEMA})


@router.get("/readyz", response_model=responses.Ready)
async def readyz() -> Response:
    """That graphs are open: a server does not begin to listen before they are."""
    return JSONResponse({"status": "ready"})


@router.get("/graphs", response_model=responses.Graphs, responses=refusals(401, 403))
async def graphs(request: Request) -> Response:
    """The graphs that are served. Without a policy for the server nobody may ask, not even of an open one."""
    actor = authenticate(request)
    hosted: Hosted = request.app.state.hosted
    if hosted.server_gate is None:
        shown = "no actor" if actor is None else f"actor '{actor}'"
        raise PermissionDenied(f"policy denied action '{LIST.action}' for {shown}")
    hosted.server_gate.check(actor, LIST)
    found: list[dict[str, Any]] = [
        {"graph_id": id_, "uri": hosted.graphs[id_].graph.uri} for id_ in sorted(hosted.graphs)
    ]
    return JSONResponse({"graphs": found})


async def graph_info(call: Called) -> Response:
    """The graph, and whom the caller is taken for: all that a token alone may ask."""
    return JSONResponse({"graph_id": call.hosted.id, "actor_id": call.actor})


router.add_api_route(
    PREFIX,
    graph_info,
    response_model=responses.GraphInfo,
    responses={**EXACTLY, **refusals(400, 401, 403, 404)},
    route_class_override=GraphRoute,
)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "The counts.", "content": {"text/plain": {}}}, **refusals(401, 403)},
)
async def metrics(request: Request) -> Response:
    """Counts of requests, for Prometheus; with tokens, for those who have one."""
    authenticate(request)
    found: Metrics = request.app.state.metrics
    return Response(found.render(), media_type=MEDIA_TYPE)

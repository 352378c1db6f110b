"""Routes of the server itself: health, metrics and the list of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio import move_on_after, to_thread
from fastapi import APIRouter, FastAPI
from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.responses import Response

from omnigraph import __version__
from omnigraph.errors import OmnigraphError
from omnigraph.graph import format_version
from omnigraph.policy.gate import Access
from omnigraph.protocol import responses
from omnigraph.server.hosted_graphs import ServerResources
from omnigraph.server.http.error_responses import HttpError
from omnigraph.server.http.request_context import Context, GraphRoute, authenticate
from omnigraph.server.http.routing import GRAPH_PREFIX, SUCCESS, error_responses
from omnigraph.server.metrics import MEDIA_TYPE, Metrics

if TYPE_CHECKING:
    from omnigraph.server.workers.peers import Peers

router = APIRouter(tags=["server"], responses=error_responses(500, 503))

# A check that takes longer counts as failed: the storage does not respond.
_READINESS_SECONDS = 5.0
_LIST_GRAPHS = Access("graph_list")
_OK: dict[int | str, dict[str, Any]] = {200: {"description": "Success."}}
_METRICS: dict[int | str, dict[str, Any]] = {200: {"description": "Success.", "content": {"text/plain": {}}}}


@router.get("/healthz", operation_id="health", response_model=responses.HealthOutput, responses=_OK)
async def healthz() -> Response:
    """Liveness check."""
    return JSONResponse(
        {"status": "ok", "version": __version__, "internal_schema_version": format_version.CURRENT}
    )


@router.get(
    "/readyz",
    operation_id="ready",
    response_model=responses.ReadyOutput,
    responses={**_OK, **error_responses(503)},
)
async def readyz(request: Request) -> Response:
    """Readiness check. 503 during shutdown, and while a graph is damaged or its storage is gone.

    The server accepts connections only after all graphs are open. `unready_graphs` has the reason for each graph. A
    caller that the server does not know gets a reason without types and files.
    """
    state = request.app.state
    problems = None
    with move_on_after(_READINESS_SECONDS):
        problems = await to_thread.run_sync(
            state.readiness.find_problems, abandon_on_cancel=True, limiter=state.readiness_threads
        )
        if problems is not None and state.peers is not None:
            problems = await state.peers.find_problems(problems)
    if problems is None:
        raise HttpError(503, f"storage did not respond within {_READINESS_SECONDS:g} s")
    if problems:
        is_known = _is_known(request)
        reasons = {id_: str(item) if is_known else _brief(item) for id_, item in sorted(problems.items())}
        names = ", ".join(f"'{id_}'" for id_ in reasons)
        raise HttpError(503, f"not ready: {names}", {"unready_graphs": reasons})
    return JSONResponse({"status": "ready"})


def _is_known(request: Request) -> bool:
    """Return whether the caller may see the names of types and files."""
    try:
        authenticate(request, is_limited=False)
    except HttpError:
        return False
    return True


def _brief(error: OmnigraphError) -> str:
    reasons = {"damaged": "a file is missing or damaged", "vanished": "the storage is gone"}
    return (
        reasons.get(str(error.details.get("reason")), "the storage cannot be read") + "; see the server log"
    )


@router.get(
    "/graphs",
    operation_id="listGraphs",
    response_model=responses.GraphListResponse,
    responses={**_OK, **error_responses(401, 403, 405, 429)},
)
async def list_graphs(request: Request) -> Response:
    """List graphs. Requires a policy of the server that allows `graph_list`, if the server has tokens."""
    actor = authenticate(request)
    resources: ServerResources = request.app.state.resources
    if resources.server_gate is not None:
        resources.server_gate.check(actor, _LIST_GRAPHS)
    graphs = [{"graph_id": id_, "uri": resources.graphs[id_].graph.uri} for id_ in sorted(resources.graphs)]
    return JSONResponse({"graphs": graphs})


async def get_graph(context: Context) -> Response:
    """Get the id of the graph and the actor that the token identifies. Requires a token and no permission."""
    return JSONResponse({"graph_id": context.hosted.id, "actor_id": context.actor})


router.add_api_route(
    GRAPH_PREFIX,
    get_graph,
    operation_id="cluster_getGraph",
    response_model=responses.GraphOutput,
    responses={**SUCCESS, **error_responses(400, 401, 403, 404, 429)},
    route_class_override=GraphRoute,
)


@router.get(
    "/metrics",
    operation_id="metrics",
    response_class=Response,
    responses={**_METRICS, **error_responses(401, 403, 404)},
)
async def metrics(request: Request) -> Response:
    """Prometheus metrics. Requires a token if the server has tokens, unless the server is configured otherwise."""
    match request.app.state.metrics_access:
        case "off":
            raise HttpError(404, "metrics are not served at this address")
        case "token":
            authenticate(request, is_limited=False)
    return Response(await render_metrics(request.app), media_type=MEDIA_TYPE)


async def render_metrics(app: FastAPI) -> bytes:
    """Return the metrics of all processes of the server."""
    collected: Metrics = app.state.metrics
    peers: Peers | None = app.state.peers
    own = collected.render()
    return own if peers is None else await peers.sum_metrics(own)

"""The FastAPI application: routes, exception handlers and the OpenAPI document."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from omnigraph import __version__
from omnigraph.budget.query_budget import TEMPORARY
from omnigraph.engine.database_limits import DatabaseLimits, set_default_limits
from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.protocol.codec import EXACT, encode_error
from omnigraph.server import mcp_endpoint
from omnigraph.server.graph_metrics import GraphCollector
from omnigraph.server.hosted_graphs import ServerResources
from omnigraph.server.http.admission import Admission
from omnigraph.server.http.capacity import RETRY_SOON_SECONDS, Capacity
from omnigraph.server.http.compression import CompressionMiddleware
from omnigraph.server.http.cors import CorsMiddleware
from omnigraph.server.http.direct_routes import DirectRoutes
from omnigraph.server.http.error_responses import CODES, redact, render_error, render_http_error
from omnigraph.server.http.middleware import RequestMiddleware
from omnigraph.server.http.rate_limits import RateLimiter
from omnigraph.server.http.request_context import accepts
from omnigraph.server.http.routing import GRAPH_PREFIX, add_deprecation_headers
from omnigraph.server.http.streaming import SLOTS, StreamPool
from omnigraph.server.logs import LOGGER
from omnigraph.server.metrics import Metrics
from omnigraph.server.metrics_endpoint import Access, serve_metrics
from omnigraph.server.readiness import Readiness
from omnigraph.server.routes import (
    blobs,
    branches,
    changes,
    commits,
    diffs,
    export_files,
    exports,
    history,
    lint,
    load_files,
    loads,
    maintenance,
    pages,
    permissions,
    reads,
    running_queries,
    schema_types,
    schemas,
    service,
    stored_queries,
    studio,
    tags,
    writes,
)
from omnigraph.server.running_queries import RunningQueries
from omnigraph.server.tracing import TracingMiddleware, tracing

ROUTE_MODULES = (
    pages,
    studio,
    service,
    permissions,
    reads,
    blobs,
    writes,
    schema_types,
    lint,
    schemas,
    loads,
    load_files,
    branches,
    tags,
    commits,
    history,
    changes,
    diffs,
    stored_queries,
    exports,
    export_files,
    maintenance,
    running_queries,
    mcp_endpoint,
)
_UNAUTHENTICATED_PATHS = frozenset({"/healthz", "/readyz"})
_REPORTED_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class AppOptions:
    """Options of an application, the same in all processes of a server.

    If `is_local` is true, only local requests are accepted; see `check_local`. Web pages of `cors_origins` may read
    responses. `metrics` is who may read `/metrics`, and anyone may read them on `metrics_socket`.
    OpenTelemetry spans are sent to `traces_endpoint`. `studio` serves the web interface, and `mcp` each graph to
    agents.
    """

    is_local: bool = False
    cors_origins: frozenset[str] = frozenset()
    metrics: Access = "token"
    rate_limiter: RateLimiter | None = None
    metrics_socket: socket.socket | None = None
    traces_endpoint: str | None = None
    studio: bool = False
    mcp: bool = False


def create_app(resources: ServerResources, options: AppOptions | None = None) -> FastAPI:
    """Return an application that serves open graphs. The caller closes the graphs."""
    options = options or AppOptions()
    counts = {
        "served": lambda: len(resources.graphs),
        "quarantined": lambda: len(resources.quarantined),
    }
    metrics = Metrics(counts, GraphCollector(resources.graphs))
    app = FastAPI(
        title="OmniGraph",
        version=__version__,
        description="Typed property-graph database with branches, merges and time travel.",
        # The documentation pages of FastAPI load scripts from other sites.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.resources = resources
    app.state.is_local = options.is_local
    app.state.metrics = metrics
    app.state.metrics_access = options.metrics
    app.state.metrics_socket = options.metrics_socket
    app.state.rate_limiter = options.rate_limiter
    app.state.traces_endpoint = options.traces_endpoint
    app.state.studio = options.studio
    app.state.mcp = options.mcp
    app.state.cors_origins = options.cors_origins
    # The other processes of the server.
    app.state.peers = None
    app.state.admission = Admission(resources.limits)
    app.state.queries = RunningQueries(resources.limits)
    set_default_limits(DatabaseLimits(memory=f"{app.state.queries.query_limits.bytes}B"))
    app.state.write_threads = CapacityLimiter(resources.limits.write_threads)
    app.state.capacity = Capacity(resources.limits)
    app.state.readiness = Readiness(resources)
    # Slow reads must not delay readiness checks.
    app.state.readiness_threads = CapacityLimiter(4)
    app.state.streams = StreamPool(resources.limits.streams)
    # `include_router` would make a copy of every route, which takes 0.1 s of the first request. Nothing is added to
    # the routes, so all applications of a process share them, and so do the processes of a server.
    routes = [route for module in ROUTE_MODULES for route in module.router.routes]
    app.router.routes.extend(routes)
    graph_routes = [route for route in routes if isinstance(route, APIRoute)]
    app.router.middleware_stack = DirectRoutes(app.router.middleware_stack, graph_routes)
    app.add_exception_handler(OmnigraphError, _handle_error)
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_middleware(CompressionMiddleware)
    app.add_middleware(RequestMiddleware, metrics=metrics, capacity=app.state.capacity)
    if options.traces_endpoint is not None:
        app.add_middleware(TracingMiddleware)
    if options.cors_origins:
        # The outermost, so that scripts can read the errors of the others.
        app.add_middleware(CorsMiddleware, origins=options.cors_origins)
    _set_openapi(app, secured=bool(resources.tokens))
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    to_thread.current_default_thread_limiter().total_tokens = app.state.resources.limits.read_threads
    with tracing(app.state.traces_endpoint, os.environ):
        async with serve_metrics(app.state.metrics_socket, lambda: service.render_metrics(app)):
            yield
    app.state.streams.close()


async def _handle_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, OmnigraphError)
    status, body = render_error(error)
    graph_id = request.scope.get("graph_id")
    if isinstance(error, StorageError) and graph_id in request.app.state.resources.graphs:
        await to_thread.run_sync(request.app.state.readiness.report, graph_id, error)
    if status >= 500:
        fields = {
            "request_id": request.scope.get("request_id"),
            "graph_id": graph_id,
            "error": str(error),
            "details": error.details,
        }
        LOGGER.error("request failed", extra={"fields": fields}, exc_info=error)
    if accepts(request, EXACT):
        body["exception"] = encode_error(redact(error))
    is_temporary = error.details.get("resource") in {SLOTS, *TEMPORARY}
    headers = {"Retry-After": str(RETRY_SOON_SECONDS)} if is_temporary else None
    return add_deprecation_headers(request, JSONResponse(body, status, headers))


async def _handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status, body = render_http_error(error)
    # Starlette lists the methods of one route, but several routes can have the same path.
    headers = {"Allow": ", ".join(_allowed_methods(request))} if status == 405 else error.headers
    if status == 404 and "route" not in request.scope and (moved := _moved_route(request)):
        body["error"] = f"'{request.scope['path'][:200]}' has moved to '{moved}'"
        body["hint"] = "routes of a graph are below /graphs/{graph_id}; GET /graphs lists the graphs"
    # For the access log.
    request.scope["error"] = str(error.detail)
    return add_deprecation_headers(request, JSONResponse(body, status, headers))


def _moved_route(request: Request) -> str | None:
    """Return the route below a graph for a path without the prefix of graphs, as in earlier versions."""
    path = request.scope["path"]
    scope = {**request.scope, "path": f"/graphs/graph{path}", "root_path": ""}
    is_known = any(
        isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE
        for route in chain(request.app.routes, *(module.router.routes for module in ROUTE_MODULES))
    )
    return f"{GRAPH_PREFIX}{path[:200]}" if is_known and path != "/" else None


def _allowed_methods(request: Request) -> list[str]:
    routes = chain(request.app.routes, *(module.router.routes for module in ROUTE_MODULES))
    methods = (
        route.methods or set()
        for route in routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    )
    return sorted(set().union(*methods))


async def _handle_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [_describe_problem(item) for item in error.errors()]
    more = len(problems) - _REPORTED_PROBLEMS
    text = "; ".join(problems[:_REPORTED_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
    return add_deprecation_headers(request, JSONResponse({"error": text, "code": CODES[400]}, 400))


def _describe_problem(item: dict[str, Any]) -> str:
    """Return the location and the reason of a validation error, without the invalid value."""
    location = ".".join(str(part)[:80] for part in item["loc"])
    return f"{location}: {item['msg'].removeprefix('Value error, ')}"


def _set_openapi(app: FastAPI, *, secured: bool) -> None:
    """Make the application generate our OpenAPI document, with bearer authentication if `secured` is true."""

    def generate() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            _clean_up(document)
            if secured:
                _add_security(document)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = generate  # type: ignore[method-assign]


def _clean_up(document: dict[str, Any]) -> None:
    for operations in document["paths"].values():
        for operation in operations.values():
            # FastAPI derives the summary from the function name. The docstring starts with a better one.
            operation["summary"] = operation["description"].partition("\n")[0].partition(". ")[0].rstrip(".")
            # FastAPI documents a 422 for invalid requests. The server answers them with 400.
            operation["responses"] = {
                status: _clean_up_response(status, response)
                for status, response in sorted(operation["responses"].items())
                if status != "422"
            }
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def _clean_up_response(status: str, response: dict[str, Any]) -> dict[str, Any]:
    """Correct the content of a route that streams: FastAPI gives errors the media type of the stream too."""
    content: dict[str, Any] = {
        # FastAPI adds the type of the response class beside the reference.
        media_type: {"schema": {"$ref": item["schema"]["$ref"]}} if "$ref" in item.get("schema", {}) else item
        for media_type, item in response.get("content", {}).items()
    }
    if content and status >= "400":
        content = dict(zip(["application/json"], content.values(), strict=True))
    return {**response, **({"content": content} if content else {})}


def _add_security(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["security"] = [] if path in _UNAUTHENTICATED_PATHS else [{"bearer": []}]

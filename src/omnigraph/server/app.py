"""The application: all routes over the graphs that are hosted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from omnigraph import __version__
from omnigraph.errors import OmnigraphError
from omnigraph.protocol.codec import EXACT, encode_error
from omnigraph.server.hosted_graphs import Hosted
from omnigraph.server.http.admission import Admission
from omnigraph.server.http.capacity import SOON_SECONDS, Capacity
from omnigraph.server.http.error_responses import CODES, failure, http_failure, shown
from omnigraph.server.http.middleware import Observed
from omnigraph.server.http.request_context import accepts
from omnigraph.server.http.routing import tell_successor
from omnigraph.server.http.streaming import SLOTS, Streams
from omnigraph.server.logs import LOGGER
from omnigraph.server.metrics import Metrics
from omnigraph.server.routes import (
    blobs,
    branches,
    diffs,
    export_files,
    exports,
    history,
    load_files,
    loads,
    maintenance,
    reads,
    service,
    stored_queries,
    writes,
)

_MODULES = (
    service,
    reads,
    blobs,
    writes,
    loads,
    load_files,
    branches,
    history,
    diffs,
    stored_queries,
    exports,
    export_files,
    maintenance,
)
_OPEN_PATHS = frozenset({"/healthz", "/readyz"})
_SHOWN_PROBLEMS = 3


def create_app(hosted: Hosted, *, is_local: bool = False) -> FastAPI:
    """An application that serves what is hosted. It opens nothing and, in the end, closes nothing.

    One that is local answers this machine alone; see `check_local`.
    """
    metrics = Metrics({"served": len(hosted.graphs), "quarantined": len(hosted.quarantined)})
    app = FastAPI(
        title="OmniGraph",
        version=__version__,
        description="A typed property-graph database that branches, merges and time-travels.",
        # The pages that would show the document load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Generated clients name their calls by it.
        generate_unique_id_function=lambda route: route.name,
        lifespan=_lifespan,
    )
    app.state.hosted = hosted
    app.state.is_local = is_local
    app.state.metrics = metrics
    app.state.admission = Admission(hosted.limits)
    app.state.writers = CapacityLimiter(hosted.limits.write_threads)
    app.state.capacity = Capacity(hosted.limits)
    app.state.streams = Streams(hosted.limits.exports)
    for module in _MODULES:
        app.include_router(module.router)
    app.add_exception_handler(OmnigraphError, _refuse)
    app.add_exception_handler(HTTPException, _refuse_by_http)
    app.add_exception_handler(RequestValidationError, _refuse_shape)
    app.add_middleware(Observed, metrics=metrics, capacity=app.state.capacity)
    _describe(app, secured=bool(hosted.identities))
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    to_thread.current_default_thread_limiter().total_tokens = app.state.hosted.limits.threads
    yield
    app.state.streams.close()


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, OmnigraphError)
    status, body = failure(error)
    if status >= 500:
        fields = {
            "request_id": request.scope.get("request_id"),
            "graph_id": request.scope.get("graph_id"),
            "error": str(error),
            "details": error.details,
        }
        LOGGER.error("failure", extra={"fields": fields}, exc_info=error)
    if accepts(request, EXACT):
        body["exception"] = encode_error(shown(error))
    soon = {"Retry-After": str(SOON_SECONDS)} if error.details.get("resource") == SLOTS else None
    return tell_successor(request, JSONResponse(body, status, soon))


async def _refuse_by_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status, body = http_failure(error)
    # The library names the methods of one route, and a path may have several.
    headers = {"Allow": ", ".join(_methods(request))} if status == 405 else error.headers
    return tell_successor(request, JSONResponse(body, status, headers))


def _methods(request: Request) -> list[str]:
    """The methods that the path of a request can be asked with."""
    routes = chain(request.app.routes, *(module.router.routes for module in _MODULES))
    found = (
        route.methods or set()
        for route in routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    )
    return sorted(set().union(*found))


async def _refuse_shape(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [_problem(item) for item in error.errors()]
    more = len(problems) - _SHOWN_PROBLEMS
    text = "; ".join(problems[:_SHOWN_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
    return tell_successor(request, JSONResponse({"error": text, "code": CODES[400]}, 400))


def _problem(item: dict[str, Any]) -> str:
    """Where a request is wrong and how, without repeating what was sent."""
    place = ".".join(str(part)[:80] for part in item["loc"])
    return f"{place}: {item['msg'].removeprefix('Value error, ')}"


def _describe(app: FastAPI, *, secured: bool) -> None:
    """Have the OpenAPI document say what is answered, and how callers prove who they are where they have to."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            _tidy(found)
            if secured:
                _secure(found)
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _tidy(document: dict[str, Any]) -> None:
    """Put statuses in order, without that of the framework for a wrong request: here it is a 400 like any other."""
    for operations in document["paths"].values():
        for operation in operations.values():
            answers = operation["responses"]
            operation["responses"] = {
                status: answers[status] for status in sorted(answers) if status != "422"
            }
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def _secure(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["security"] = [] if path in _OPEN_PATHS else [{"bearer": []}]

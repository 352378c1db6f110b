"""Routers of graph routes, their documented responses, and checks of headers and query parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import InvalidInput
from omnigraph.protocol.codec import EXACT, IF_COMMIT, NDJSON
from omnigraph.protocol.error_output import ChangeErrorOutput, ErrorOutput
from omnigraph.server.http.request_context import GraphRoute

GRAPH_PREFIX: Final = "/graphs/{graph_id}"
# Deprecated routes and their successors.
SUCCESSORS: Final = {
    f"{GRAPH_PREFIX}/read": "query",
    f"{GRAPH_PREFIX}/change": "mutate",
    f"{GRAPH_PREFIX}/ingest": "load",
}
# Query parameters of change routes that can be given more than once.
REPEATABLE: Final = frozenset({"kind", "type", "op"})

# Hints for clients that send the header of conditional writes to a route that does not take it.
USE_ROUTE: Final = "use the route that ends in /if-graph-commit"
USE_MEMBER: Final = "use the body member `if_commit`"
USE_PARAMETER: Final = "use the query parameter `if_commit`"

# Error statuses of every graph route, of routes with a JSON body, and of routes that write.
COMMON_ERRORS: Final = (400, 401, 403, 404, 413, 429, 499, 500, 503)
BODY_ERRORS: Final = (415,)
WRITE_ERRORS: Final = (409, 415)
# Writes whose Blob values can be external objects, and merges that copy such values.
BLOB_WRITE_ERRORS: Final = (*WRITE_ERRORS, 424)
_DESCRIPTIONS: Mapping[int, str] = {
    400: "Invalid request.",
    401: "Missing or invalid bearer token.",
    403: "Access denied by policy.",
    404: "Graph or named object not found.",
    405: "Method not allowed.",
    409: "Conflict with the current state.",
    410: "The requested changes were removed by garbage collection.",
    412: "Precondition failed.",
    413: "Request too large, or read time limit exceeded.",
    415: "Unsupported media type.",
    416: "Range not satisfiable.",
    424: "An external object of a Blob value cannot be read.",
    429: "Per-actor limit on requests exceeded.",
    499: "The request was cancelled, by an administrator or because its client disconnected.",
    500: "Storage failure or internal error.",
    503: "Server overloaded or shutting down, or the graph requires recovery.",
}

IF_COMMIT_HEADER: dict[str, Any] = {
    "parameters": [
        {
            "name": IF_COMMIT,
            "in": "header",
            "required": True,
            "description": "Commit id that the head of the branch must have.",
            "schema": {"type": "string", "pattern": "^[0-9A-Za-z]+$"},
        }
    ]
}

Responses = dict[int | str, dict[str, Any]]
# Every JSON response is also available in the exact encoding that the Python client requests.
SUCCESS: Responses = {200: {"description": "Success.", "content": {EXACT: {}}}}


class NdjsonResponse(Response):
    """Documents a stream of JSON lines."""

    media_type = NDJSON


def error_responses(
    *statuses: int, model: type[ErrorOutput | ChangeErrorOutput] | None = ErrorOutput
) -> Responses:
    """Return the documentation of error statuses. Responses to HEAD requests have no body, hence no model."""
    body = {} if model is None else {"model": model}
    return {status: {**body, "description": _DESCRIPTIONS[status]} for status in sorted(statuses)}


def graph_router(
    tag: str, *statuses: int, model: type[ErrorOutput | ChangeErrorOutput] = ErrorOutput
) -> APIRouter:
    """Return a router for graph routes. `statuses` are error statuses besides those of every graph route."""
    responses = error_responses(*COMMON_ERRORS, *statuses, model=model)
    return APIRouter(prefix=GRAPH_PREFIX, route_class=GraphRoute, tags=[tag], responses=responses)


def add_deprecation_headers(request: Request, response: Response) -> Response:
    """Add the `Deprecation` and `Link` headers if the route of the request is deprecated."""
    successor = SUCCESSORS.get(getattr(request.scope.get("route"), "path", ""))
    if successor is not None:
        response.headers["Deprecation"] = "true"
        response.headers["Link"] = f'<{successor}>; rel="successor-version"'
    return response


def read_if_commit_header(request: Request) -> str:
    """Return the commit id of a conditional write; `InvalidInput` unless the header holds exactly one id."""
    values = request.headers.getlist(IF_COMMIT)
    if len(values) != 1:
        raise InvalidInput(f"{IF_COMMIT} must be given exactly once")
    value = values[0].strip()
    # The value is not an entity tag, so the syntax of If-Match does not apply.
    if not value.isascii() or not value.isalnum():
        raise InvalidInput(f"{IF_COMMIT} must be one commit id, not an entity tag, a list or `*`")
    return value


def reject_if_commit_header(request: Request, hint: str | None = None) -> None:
    """Raise `InvalidInput` if a conditional write was sent to a route that would ignore the condition."""
    if request.headers.getlist(IF_COMMIT):
        raise InvalidInput(f"{IF_COMMIT} is not accepted on this route" + (f"; {hint}" if hint else ""))


def check_query_parameters(request: Request, known: frozenset[str]) -> None:
    """Raise `InvalidInput` for an unknown query parameter, or one that is repeated and not in `REPEATABLE`."""
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            raise InvalidInput(
                f"unknown query parameter '{name[:80]}'", hint=f"expected one of {', '.join(sorted(known))}"
            )
        if name in seen and name not in REPEATABLE:
            raise InvalidInput(f"query parameter '{name}' is given more than once")
        seen.add(name)

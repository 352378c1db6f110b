"""How routes below a graph are made, what they may answer, and the headers and checks that some of them share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import InvalidInput
from omnigraph.protocol.codec import EXACT, IF_COMMIT
from omnigraph.protocol.responses import Failure
from omnigraph.server.http.request_context import GraphRoute

PREFIX = "/graphs/{graph_id}"
REPEATABLE = frozenset({"kind", "type", "op"})
# Routes of old, and what they are called by now.
SUCCESSORS: Final = {f"{PREFIX}/read": "query", f"{PREFIX}/change": "mutate", f"{PREFIX}/ingest": "load"}

# Where a condition is said that is not accepted in its header.
BY_ROUTE: Final = "use the route that ends in /if-graph-commit"
BY_MEMBER: Final = "give `if_commit` in the body"
BY_QUERY: Final = "give `if_commit` in the query string"

# What any route below a graph may refuse with.
COMMON: Final = (400, 401, 403, 404, 413, 500, 503)
# What else one with a JSON body may, and one that writes.
SENT: Final = (415,)
WRITTEN: Final = (409, 415, 429)
_REFUSALS: Mapping[int, str] = {
    400: "The request is wrong.",
    401: "The token is missing or unknown.",
    403: "The policy does not allow it.",
    404: "The graph, or what is named in it, does not exist.",
    409: "It is in conflict with what is there.",
    410: "Changes that were asked for are gone.",
    412: "The condition of the request does not hold.",
    413: "The request is too large, or takes more than its limit.",
    415: "The body has another media type.",
    416: "The range is beyond the end.",
    429: "The caller has too much in flight.",
    500: "Storage failed, or something nobody foresaw.",
    503: "The server takes no more work now, or the graph has to be repaired.",
}

CONDITION: dict[str, Any] = {
    "parameters": [
        {
            "name": IF_COMMIT,
            "in": "header",
            "required": True,
            "description": "The commit that the branch has to stand at.",
            "schema": {"type": "string", "pattern": "^[0-9A-Za-z]+$"},
        }
    ]
}

Responses = dict[int | str, dict[str, Any]]
# Beside the plain body there is one for those who ask for it by its media type.
EXACTLY: Responses = {200: {"description": "Done.", "content": {EXACT: {}}}}


def refusals(*statuses: int) -> Responses:
    """How a route documents what it may refuse with: each status has the one shape."""
    return {status: {"model": Failure, "description": _REFUSALS[status]} for status in sorted(statuses)}


def graph_router(tag: str, *also: int) -> APIRouter:
    """A router for routes below a graph; `also` are statuses beside those that any of them may refuse with."""
    return APIRouter(prefix=PREFIX, route_class=GraphRoute, tags=[tag], responses=refusals(*COMMON, *also))


def tell_successor(request: Request, response: Response) -> Response:
    """The response, which tells what its route is called by now if that is another name."""
    successor = SUCCESSORS.get(getattr(request.scope.get("route"), "path", ""))
    if successor is not None:
        response.headers["Deprecation"] = "true"
        response.headers["Link"] = f'<{successor}>; rel="successor-version"'
    return response


def expected_commit(request: Request) -> str:
    """The commit that a conditional write names: one id in one header, else `InvalidInput`."""
    values = request.headers.getlist(IF_COMMIT)
    if len(values) != 1:
        raise InvalidInput(f"{IF_COMMIT} must be given exactly once")
    value = values[0].strip()
    # An id and nothing else: tags of HTTP would promise more than a commit can keep.
    if not value.isascii() or not value.isalnum():
        raise InvalidInput(f"{IF_COMMIT} must be one commit id, not a tag, a list or `*`")
    return value


def refuse_condition(request: Request, instead: str | None = None) -> None:
    """A condition on a route that would not look at it is a mistake of the client, who can say it so `instead`."""
    if request.headers.getlist(IF_COMMIT):
        raise InvalidInput(f"{IF_COMMIT} is not accepted here" + (f"; {instead}" if instead else ""))


def refuse_unknown(request: Request, known: frozenset[str]) -> None:
    """On routes of changes a parameter that nobody reads, or one too many, is a mistake and not ignored."""
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            raise InvalidInput(
                f"unknown query parameter '{name[:80]}'", hint=f"known are {', '.join(sorted(known))}"
            )
        if name in seen and name not in REPEATABLE:
            raise InvalidInput(f"query parameter '{name}' is given more than once")
        seen.add(name)

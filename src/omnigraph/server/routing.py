"""How routes below a graph are made, and the headers that some of them share."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import InvalidInput
from omnigraph.server.answers import Failure
from omnigraph.server.requests import GraphRoute

PREFIX = "/graphs/{graph_id}"
IF_COMMIT = "Omnigraph-If-Graph-Commit"
FAILURES: dict[int | str, dict[str, Any]] = {"default": {"model": Failure, "description": "A refusal."}}


def graph_router(tag: str) -> APIRouter:
    """A router for routes below a graph."""
    return APIRouter(prefix=PREFIX, route_class=GraphRoute, tags=[tag], responses=FAILURES)


def deprecated(response: Response, successor: str) -> Response:
    """A response that tells what its route is called by now."""
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


def refuse_condition(request: Request) -> None:
    """A condition on a route that would not look at it is a mistake of the client."""
    if request.headers.getlist(IF_COMMIT):
        raise InvalidInput(f"{IF_COMMIT} is not accepted here; use the route that ends in /if-graph-commit")

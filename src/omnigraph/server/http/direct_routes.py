"""Short path for routes that take one JSON body: they are matched and called without the machinery of FastAPI.

FastAPI tries all routes in turn and resolves the dependencies of each request, which costs more processor time than
a point query. A request whose body is not valid is passed to FastAPI, which renders the error.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

Handler = Callable[[Request], Awaitable[Response]]
_GRAPH_PATH: Final = re.compile(r"/graphs/([^/]+)/([a-z/-]+)")
_PREFIX: Final = "/graphs/{graph_id}/"


class DirectRoutes:
    """ASGI application in front of a router: it calls some routes itself, by method and path."""

    def __init__(self, router: ASGIApp, routes: Iterable[APIRoute]) -> None:
        self._router = router
        self._routes: Mapping[tuple[str, str], tuple[APIRoute, Handler]] = {
            (method, route.path.removeprefix(_PREFIX)): (route, handler)
            for route in routes
            if (handler := getattr(route, "direct_handler", None)) is not None
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        found = None
        if scope["type"] == "http" and (path := _GRAPH_PATH.fullmatch(scope["path"])):
            found = self._routes.get((scope["method"], path[2]))
        if found is None:
            await self._router(scope, receive, send)
            return
        route, handle = found
        assert path is not None
        scope["route"], scope["endpoint"] = route, route.endpoint
        scope["path_params"] = {"graph_id": path[1]}
        response = await handle(Request(scope, receive, send))
        await response(scope, receive, send)


def call_directly(dependant: Dependant, handle: Handler) -> Handler | None:
    """Return a handler that validates the body and calls the endpoint; None if the route takes other arguments.

    The only dependency of the endpoint must be the context of the request. `handle` is the handler of FastAPI,
    which gets the requests with an invalid body.
    """
    others = (
        dependant.path_params,
        dependant.query_params,
        dependant.header_params,
        dependant.cookie_params,
    )
    if any(others) or len(dependant.body_params) != 1 or len(dependant.dependencies) != 1:
        return None
    field, context_name, endpoint = dependant.body_params[0], dependant.dependencies[0].name, dependant.call
    model = field.field_info.annotation
    if not (isinstance(model, type) and issubclass(model, BaseModel)) or not context_name or endpoint is None:
        return None
    validate, body_name = model.model_validate, field.name

    async def call(request: Request) -> Response:
        try:
            body = validate(await request.json())
        except (ValidationError, ValueError, RecursionError):
            return await _handle_with_fastapi(handle, request)
        arguments: dict[str, Any] = {context_name: request.state.context, body_name: body}
        response: Response = await endpoint(**arguments)
        return response

    return call


async def _handle_with_fastapi(handle: Handler, request: Request) -> Response:
    async with AsyncExitStack() as inner, AsyncExitStack() as function:
        request.scope["fastapi_inner_astack"] = inner
        request.scope["fastapi_function_astack"] = function
        return await handle(request)

"""MCP over streamable HTTP: a route of each graph, whose tools call the other routes with the token of the caller.

The calls do not leave the process. They pass authentication, the policy, the limits and the access log as any other
request does, so an agent can do exactly what its token can do over HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio.from_thread
import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from omnigraph.errors import PermissionDenied
from omnigraph.server.http.error_responses import HttpError
from omnigraph.server.http.origins import is_loopback
from omnigraph.server.http.routing import GRAPH_PREFIX

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_MAX_BYTES: Final = 4 * 1024 * 1024


class LoopAdapter(httpx.BaseTransport):
    """Sends the requests of a worker thread to an application in the event loop that started the thread."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = httpx.ASGITransport(app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response with its whole body."""
        request.read()
        return anyio.from_thread.run(self.send, request)

    async def send(self, request: httpx.Request) -> httpx.Response:
        """Send a request from the event loop. A response that the application breaks off is an error."""
        # The body is complete, so it is not sent in chunks.
        headers = [item for item in request.headers.raw if item[0].lower() != b"transfer-encoding"]
        sent = httpx.Request(request.method, request.url, headers=headers, content=request.content)
        try:
            response = await self._app.handle_async_request(sent)
            assert isinstance(response.stream, httpx.AsyncByteStream)
            body = b"".join([chunk async for chunk in response.stream])
        except Exception as error:
            raise httpx.RemoteProtocolError("the response was broken off", request=request) from error
        response.headers["Content-Length"] = str(len(body))
        return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(body))


class McpEndpoint:
    """The ASGI application of the route. `?read_only=true` leaves out the tools that write."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request with a handle of its caller."""
        request = Request(scope)
        app = scope["app"]
        if not app.state.mcp:
            raise HttpError(404, "the server does not serve MCP; start it with --mcp")
        _check_origin(request, app.state.cors_origins)
        from omnigraph.client.entry import LOCAL, connect_through, graph_url
        from omnigraph.mcp.server import serve_request

        graph_id = scope["path_params"]["graph_id"]
        scope["graph_id"] = graph_id
        adapter = LoopAdapter(app)
        headers = {name: request.headers[name] for name in ("authorization",) if name in request.headers}
        # Asked first, so that a caller without a valid token gets the response of any other route.
        caller = await adapter.send(httpx.Request("GET", graph_url(LOCAL, graph_id), headers=headers))
        body = caller.read()
        if caller.status_code != 200:
            await Response(body, caller.status_code, media_type="application/json")(scope, receive, send)
            return
        token = headers.get("authorization", "").partition(" ")[2].strip() or None
        graph = connect_through(adapter, graph_id, token, caller.json()["actor_id"])
        try:
            await serve_request(
                graph,
                scope,
                receive,
                send,
                read_only=request.query_params.get("read_only", "false").lower() in ("1", "true"),
                max_bytes=_MAX_BYTES,
            )
        finally:
            graph.close()


def _check_origin(request: Request, allowed: frozenset[str]) -> None:
    """Raise `PermissionDenied` for a web page of another origin, as the MCP specification requires.

    Allowed are the pages of this server, those of ``--cors-origin``, and on a loopback address all loopback pages.
    """
    host = urlsplit(f"//{request.headers.get('host', '')}")
    for origin in request.headers.getlist("origin"):
        page = urlsplit(origin)
        is_own = page.netloc == host.netloc
        is_local = is_loopback(page.hostname or "") and is_loopback(host.hostname or "")
        if origin not in allowed and not is_own and not is_local:
            raise PermissionDenied(
                f"request from a page of origin '{origin[:200]}'", hint="allow it with --cors-origin"
            )


class _Router:
    """The routes of this module, as the application collects them."""

    routes = (Route(f"{GRAPH_PREFIX}/mcp", McpEndpoint(), methods=["POST"], name="mcp"),)


router = _Router()

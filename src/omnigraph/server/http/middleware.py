"""ASGI middleware: request id, capacity, read deadline, metrics, access log and internal errors."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from ulid import ULID

from omnigraph.budget.deadline import Deadline, time_limit
from omnigraph.errors import OmnigraphError
from omnigraph.server.http.capacity import Capacity
from omnigraph.server.http.error_responses import INTERNAL_ERROR, HttpError, render_http_error
from omnigraph.server.logs import LOGGER, log_request
from omnigraph.server.logs import REQUEST_ID as CURRENT_REQUEST
from omnigraph.server.metrics import Metrics
from omnigraph.store.request_counts import track_requests

REQUEST_ID = "X-Request-Id"
_CLIENT_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_ABSOLUTE_FORM = re.compile(r"https?://([^/]+)", re.IGNORECASE)
UNROUTED = "unrouted"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Status in the log and the metrics if the client disconnected before the response, as in nginx.
_CLIENT_CLOSED_REQUEST = 499
# A read that checks its deadline ends by itself. After these further seconds the client gets a response regardless.
_GRACE_SECONDS = 1.0


class RequestMiddleware:
    """Wraps every HTTP request.

    The scope of a request gets `request_id`, `slot` (a `RequestSlot`) and `storage_requests`. An unexpected
    exception is logged and answered with a 500 without details.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, capacity: Capacity) -> None:
        self._app = app
        self._metrics = metrics
        self._capacity = capacity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        _use_raw_path(scope)
        client_id = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = client_id if _CLIENT_REQUEST_ID.match(client_id) else str(ULID())
        scope["request_id"] = request_id
        CURRENT_REQUEST.set(request_id)
        response = _ResponseSender(send, request_id)
        self._metrics.begin()
        started = time.perf_counter()
        try:
            await self._handle(scope, receive, response)
        except ClientDisconnect:
            response.status = response.status or _CLIENT_CLOSED_REQUEST
        except Exception as error:
            fields = {
                "request_id": request_id,
                "graph_id": scope.get("graph_id"),
                "error": f"{type(error).__name__}: {error}",
            }
            LOGGER.exception("internal error", extra={"fields": fields})
            if response.status:
                # The response has started. Only a broken connection tells the client that it is incomplete.
                raise
            body = {"error": INTERNAL_ERROR, "code": "internal", "request_id": request_id}
            await JSONResponse(body, 500)(scope, receive, response.send)
        finally:
            self._record(scope, response.status, time.perf_counter() - started)

    async def _handle(self, scope: Scope, receive: Receive, response: _ResponseSender) -> None:
        try:
            with (
                track_requests() as scope["storage_requests"],
                self._capacity.acquire(scope["path"]) as scope["slot"],
                time_limit(self._capacity.limits.read_seconds) as deadline,
                _enforce_deadline(deadline, scope, receive, response),
            ):
                _check_framing(Headers(scope=scope))
                await self._app(scope, receive, response.send)
        except HttpError as error:
            status, body = render_http_error(error)
            scope["error"] = body["error"]
            await JSONResponse(body, status, error.headers)(scope, receive, response.send)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        """Update the metrics and write the access log."""
        route = getattr(scope.get("route"), "path", UNROUTED)
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        storage_requests = scope["storage_requests"].to_json()
        self._metrics.end(method, route, status, seconds, storage_requests, scope.get("graph_id"))
        fields: dict[str, Any] = {
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 2),
            "actor": scope.get("actor"),
            "graph_id": scope.get("graph_id"),
            "storage_requests": storage_requests,
            "request_id": scope["request_id"],
        }
        if status >= 500 and "error" in scope:
            fields["error"] = scope["error"]
        log_request(fields)


def _use_raw_path(scope: Scope) -> None:
    """Route by the raw path, in which an encoded slash stays within its segment. `Segment` decodes it later.

    In the absolute form of a request target, the host of the target replaces the `Host` header (RFC 9112).
    """
    path = scope["raw_path"].decode("latin-1")
    if absolute := _ABSOLUTE_FORM.match(path):
        others = [item for item in scope["headers"] if item[0] != b"host"]
        scope["headers"] = [(b"host", absolute[1].encode("latin-1")), *others]
        path = path[absolute.end() :] or "/"
    scope["path"] = path


def _check_framing(headers: Headers) -> None:
    """Reject a request with two body lengths: a proxy could use the other one (request smuggling)."""
    if "content-length" in headers and "transfer-encoding" in headers:
        raise HttpError(
            400,
            "Content-Length and Transfer-Encoding are mutually exclusive",
            headers={"Connection": "close"},
        )


class _ResponseSender:
    """Sends the response of one request, records its status, and adds the request id."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self._is_replaced = False
        self.status = 0

    async def send(self, message: Message) -> None:
        """Send a message of the application's response, unless the response was replaced."""
        if not self._is_replaced:
            await self._forward(message)

    async def send_replacement(self, message: Message) -> None:
        """Send a message of a response that replaces that of the application."""
        self._is_replaced = True
        await self._forward(message)

    async def _forward(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)[REQUEST_ID] = self._request_id
        await self._send(message)


@contextmanager
def _enforce_deadline(
    deadline: Deadline, scope: Scope, receive: Receive, response: _ResponseSender
) -> Iterator[None]:
    """Send an error response when a read exceeds its deadline without noticing, such as in a storage call.

    The read keeps its thread and its slot until it ends, because it cannot be cancelled.
    """
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []

    async def respond() -> None:
        handle = scope["app"].exception_handlers[OmnigraphError]
        error_response = await handle(Request(scope), deadline.error())
        if not response.status:
            await error_response(scope, receive, response.send_replacement)

    def expire() -> None:
        if not response.status and deadline.left is not None:
            # The event loop keeps only a weak reference to a task.
            tasks.append(loop.create_task(respond()))

    timer = loop.call_later((deadline.left or 0) + _GRACE_SECONDS, expire)
    try:
        yield
    finally:
        timer.cancel()

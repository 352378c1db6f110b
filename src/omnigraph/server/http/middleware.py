"""What surrounds every request: its id, its place and its time, its line in the log, and the last resort."""

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

from omnigraph.engine.deadline import Deadline, ending_after
from omnigraph.errors import OmnigraphError
from omnigraph.server.http.capacity import Capacity
from omnigraph.server.http.error_responses import UNFORESEEN, Refused, http_failure
from omnigraph.server.logs import LOGGER
from omnigraph.server.metrics import Metrics
from omnigraph.store.request_counts import track_requests

REQUEST_ID = "X-Request-Id"
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_ADDRESS = re.compile(r"https?://([^/]+)", re.IGNORECASE)
UNROUTED = "unrouted"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# What the log says of a client that went away before it was answered.
_LEFT = 499
# Work that looks at the clock ends by itself; so much later the client is answered without it.
_SLACK = 1.0


class Observed:
    """An application whose requests are counted and logged, and whose defects become a 500 without details.

    A request has a place of the server's capacity, in its scope as `place`, and so much time to be read in.
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
        _take_target(scope)
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = scope["request_id"] = given if _GIVEN_ID.match(given) else str(ULID())
        answer = _Answer(send, request_id)
        self._metrics.begin()
        began = time.perf_counter()
        try:
            await self._handle(scope, receive, answer)
        except ClientDisconnect:
            answer.status = answer.status or _LEFT
        except Exception:
            LOGGER.exception("unforeseen failure", extra={"fields": {"request_id": request_id}})
            if answer.status:
                # Half an answer cannot be taken back: breaking the connection says that it is incomplete.
                raise
            body = {"error": UNFORESEEN, "code": "internal", "request_id": request_id}
            await JSONResponse(body, 500)(scope, receive, answer.send)
        finally:
            self._tell(scope, answer.status, time.perf_counter() - began)

    async def _handle(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            with (
                track_requests() as scope["storage_requests"],
                self._capacity.take(scope["path"]) as scope["place"],
                ending_after(self._capacity.limits.read_seconds) as deadline,
                _answering_in_time(deadline, scope, receive, answer),
            ):
                _check_framing(Headers(scope=scope))
                await self._app(scope, receive, answer.send)
        except Refused as error:
            status, body = http_failure(error)
            await JSONResponse(body, status, error.headers)(scope, receive, answer.send)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", UNROUTED)
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        storage = scope["storage_requests"].to_json()
        self._metrics.end(method, route, status, seconds, storage)
        fields: dict[str, Any] = {
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 2),
            "actor": scope.get("actor"),
            "graph_id": scope.get("graph_id"),
            "storage_requests": storage,
            "request_id": scope["request_id"],
        }
        LOGGER.info("request", extra={"fields": fields})


def _take_target(scope: Scope) -> None:
    """Match what was sent, which keeps an encoded slash inside its segment; `Segment` decodes it.

    A target may be a whole address. Its host counts then, and not that of the header.
    """
    path = scope["raw_path"].decode("latin-1")
    if whole := _ADDRESS.match(path):
        others = [item for item in scope["headers"] if item[0] != b"host"]
        scope["headers"] = [(b"host", whole[1].encode("latin-1")), *others]
        path = path[whole.end() :] or "/"
    scope["path"] = path


def _check_framing(headers: Headers) -> None:
    """Refuse a request whose end is said in two ways: somebody in between may have gone by the other."""
    if "content-length" in headers and "transfer-encoding" in headers:
        raise Refused(
            400, "Content-Length and Transfer-Encoding exclude each other", headers={"Connection": "close"}
        )


class _Answer:
    """The answer to one request, which is given once."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self._is_given = False
        self.status = 0

    async def send(self, message: Message) -> None:
        """Send a part of it, or nothing when the answer was given without waiting for this one."""
        if not self._is_given:
            await self._pass_on(message)

    async def send_instead(self, message: Message) -> None:
        """Send a part of an answer in the place of the one that nobody waits for any longer."""
        self._is_given = True
        await self._pass_on(message)

    async def _pass_on(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)[REQUEST_ID] = self._request_id
        await self._send(message)


@contextmanager
def _answering_in_time(deadline: Deadline, scope: Scope, receive: Receive, answer: _Answer) -> Iterator[None]:
    """Tell the client that a read takes too long also when the read itself does not notice.

    Its thread and its place stay taken until it ends: what cannot be stopped must not be forgotten.
    """
    loop = asyncio.get_running_loop()
    answering: list[asyncio.Task[None]] = []

    async def give_up() -> None:
        handle = scope["app"].exception_handlers[OmnigraphError]
        response = await handle(Request(scope), deadline.error())
        if not answer.status:
            await response(scope, receive, answer.send_instead)

    def look() -> None:
        if not answer.status and deadline.left is not None:
            answering.append(loop.create_task(give_up()))

    timer = loop.call_later((deadline.left or 0) + _SLACK, look)
    try:
        yield
    finally:
        timer.cancel()

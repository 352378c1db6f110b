"""What surrounds every request: its id, its line in the log, its place in the counts, and the last resort."""

from __future__ import annotations

import re
import time
from typing import Any

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from ulid import ULID

from omnigraph.server.failures import UNFORESEEN
from omnigraph.server.logs import LOGGER
from omnigraph.server.metrics import Metrics

REQUEST_ID = "X-Request-Id"
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
UNROUTED = "unrouted"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Observed:
    """An application whose requests are counted and logged, and whose defects become a 500 without details."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Matching what was sent keeps an encoded slash inside its segment; `Segment` decodes it.
        scope["path"] = scope["raw_path"].decode("latin-1")
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if _GIVEN_ID.match(given) else str(ULID())
        scope["request_id"] = request_id
        status = 0

        async def send_seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        self._metrics.begin()
        began = time.perf_counter()
        try:
            await self._app(scope, receive, send_seen)
        except Exception:
            LOGGER.exception("unforeseen failure", extra={"fields": {"request_id": request_id}})
            if status:
                # Half an answer cannot be taken back: breaking the connection says that it is incomplete.
                raise
            body = {"error": UNFORESEEN, "code": "internal", "request_id": request_id}
            await JSONResponse(body, 500)(scope, receive, send_seen)
        finally:
            self._tell(scope, status, time.perf_counter() - began)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", UNROUTED)
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        self._metrics.end(method, route, status, seconds)
        fields: dict[str, Any] = {
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 2),
            "actor": scope.get("actor"),
            "request_id": scope["request_id"],
        }
        LOGGER.info("request", extra={"fields": fields})

"""Cross-origin resource sharing (CORS): web pages of listed origins may read the responses of the server.

Bearer tokens are sent by scripts and not by the browser, so the server never allows credentials such as cookies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omnigraph.errors import InvalidInput
from omnigraph.protocol.codec import IF_COMMIT, LOAD_WARNINGS, SNAPSHOT_ID
from omnigraph.server.http.error_responses import CODES
from omnigraph.server.http.origins import is_loopback

VARIABLE: Final = "OMNIGRAPH_CORS_ORIGINS"
_METHODS: Final = "GET, HEAD, POST, PATCH, DELETE"
_REQUEST_HEADERS: Final = ", ".join(
    [
        "Accept",
        "Authorization",
        "Content-Type",
        "If-Match",
        "If-None-Match",
        "If-Range",
        IF_COMMIT,
        "Range",
        "traceparent",
        "tracestate",
        "X-Request-Id",
    ]
)
# Scripts can read these headers besides a few that are always visible.
_RESPONSE_HEADERS: Final = ", ".join(
    [
        "Accept-Ranges",
        "Content-Encoding",
        "Content-Range",
        "Deprecation",
        "ETag",
        "Link",
        LOAD_WARNINGS,
        SNAPSHOT_ID,
        "Retry-After",
        "WWW-Authenticate",
        "X-Request-Id",
    ]
)
_MAX_AGE_SECONDS: Final = 600
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def parse_origins(origins: Iterable[str], *, is_local: bool = False) -> frozenset[str]:
    """Return the allowed origins in the form that browsers send. Raises `InvalidInput` for anything else.

    `is_local` is true for an unauthenticated server, which accepts requests of loopback origins only.

    >>> sorted(parse_origins(["https://App.example.org:443", "http://localhost:3000"]))
    ['http://localhost:3000', 'https://app.example.org']
    """
    return frozenset(_parse_origin(text.strip(), is_local) for text in origins if text.strip())


def _parse_origin(text: str, is_local: bool) -> str:
    hint = (
        "an origin is a scheme, a host and a port, such as https://app.example.org or http://localhost:3000"
    )
    if text == "*":
        raise InvalidInput(
            "CORS origin `*` is not supported: list the origins of your applications", hint=hint
        )
    try:
        parts = urlsplit(text)
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:
        raise InvalidInput(f"`{text}` is not an origin", hint=hint) from None
    is_bare = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
    if scheme not in _DEFAULT_PORTS or not host or not is_bare or "*" in host:
        raise InvalidInput(f"`{text}` is not an origin", hint=hint)
    if is_local and not is_loopback(host):
        raise InvalidInput(
            f"CORS origin {text}: an unauthenticated server accepts only local requests",
            hint="configure tokens, or pass --force",
        )
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}" + ("" if port in (None, _DEFAULT_PORTS[scheme]) else f":{port}")


class CorsMiddleware:
    """Answers preflight requests, which browsers send without a token, and adds CORS headers to all responses."""

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if scope["method"] == "OPTIONS" and origin and "access-control-request-method" in headers:
            await self._preflight(origin)(scope, receive, send)
            return
        allowed = origin if origin in self._origins else None

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(MutableHeaders(scope=message), allowed)
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _preflight(self, origin: str) -> Response:
        vary = {"Vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"}
        if origin not in self._origins:
            body = {"error": f"CORS: origin '{origin[:200]}' is not allowed", "code": CODES[403]}
            return JSONResponse(body, 403, vary)
        return Response(
            status_code=204,
            headers={
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Allow-Methods": _METHODS,
                "Access-Control-Allow-Headers": _REQUEST_HEADERS,
                "Access-Control-Max-Age": str(_MAX_AGE_SECONDS),
                **vary,
            },
        )


def _add_headers(headers: MutableHeaders, origin: str | None) -> None:
    # Also without an allowed origin: a cache must not give the response to a page that may read it, or the reverse.
    headers.add_vary_header("Origin")
    if origin is not None:
        headers["Access-Control-Allow-Origin"] = origin
        headers["Access-Control-Expose-Headers"] = _RESPONSE_HEADERS

"""Access to the metrics: at `/metrics` with or without a token, or at an address of their own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from omnigraph.errors import InvalidInput
from omnigraph.server.logs import LOGGER
from omnigraph.server.metrics import MEDIA_TYPE

VARIABLE: Final = "OMNIGRAPH_METRICS"
PATH: Final = "/metrics"
Access: TypeAlias = Literal["token", "open", "off"]
_HEAD_BYTES: Final = 8 << 10
_HEAD_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class MetricsAccess:
    """Who may read the metrics at `/metrics`, and the address at which anyone may read them, if there is one."""

    main: Access = "token"
    bind: str | None = None


def read_metrics_access(option: str | None, environment: Mapping[str, str]) -> MetricsAccess:
    """Return the access that an option or an environment variable configures. Raises `InvalidInput`.

    >>> read_metrics_access("open", {}), read_metrics_access(None, {"OMNIGRAPH_METRICS": "127.0.0.1:9090"})
    (MetricsAccess(main='open', bind=None), MetricsAccess(main='off', bind='127.0.0.1:9090'))
    """
    text = (option or environment.get(VARIABLE) or "token").strip()
    for access in get_args(Access):
        if text == access:
            return MetricsAccess(access)
    if ":" not in text:
        raise InvalidInput(f"--metrics must be token, open, off or HOST:PORT, got `{text}`")
    return MetricsAccess("off", text)


@asynccontextmanager
async def serve_metrics(
    bound: socket.socket | None, render: Callable[[], Awaitable[bytes]]
) -> AsyncIterator[None]:
    """Answer `GET /metrics` on a listening socket while the context is open; do nothing without a socket.

    It is a server of its own, so that no other route can be reached at this address.
    """
    if bound is None:
        yield
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            method, _, rest = head.decode("latin-1").partition(" ")
            path = rest.partition(" ")[0].partition("?")[0]
            if path == PATH and method in ("GET", "HEAD"):
                writer.write(_response("200 OK", MEDIA_TYPE, await render(), method))
            else:
                writer.write(_response("404 Not Found", "text/plain", b"metrics are at /metrics\n", method))
            await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # Not a complete request.
            pass
        finally:
            writer.close()

    host, port = bound.getsockname()[:2]
    LOGGER.info("serving metrics", extra={"fields": {"host": host, "port": port}})
    server = await asyncio.start_server(answer, sock=bound, limit=_HEAD_BYTES)
    async with server:
        yield


def _response(status: str, media_type: str, body: bytes, method: str) -> bytes:
    head = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {media_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "\r\n",
    )
    return "\r\n".join(head).encode() + (b"" if method == "HEAD" else body)

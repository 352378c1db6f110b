"""ASGI application of a worker: it answers reads and passes writes on to the writer of their graph."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from omnigraph.server.hosted_graphs import HostedGraph
from omnigraph.server.http.capacity import Capacity, unavailable
from omnigraph.server.http.error_responses import render_http_error
from omnigraph.server.logs import LOGGER
from omnigraph.server.workers.write_routes import find_written_graph
from omnigraph.server.workers.writer_connections import WriterConnection, WriterLost, WriterPool

# Headers that belong to one connection (RFC 9110, section 7.6.1).
_HOP_BY_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
_LENGTH, _CODING, _EXPECT = b"content-length", b"transfer-encoding", b"expect"


class WriterProxy:
    """Passes requests of write routes to writers, and all others to the application of the worker.

    The writer authenticates, authorizes, counts and logs a request that it gets. The worker copies bytes. A request
    is sent to a writer at most once: if the writer ends before its response is complete, the connection of the
    client is closed without a further byte, because the outcome of the write is unknown.
    """

    def __init__(
        self,
        app: ASGIApp,
        graphs: Mapping[str, HostedGraph],
        writer_of: Callable[[str], WriterPool],
        capacity: Capacity,
    ) -> None:
        self._app = app
        self._graphs = graphs
        self._writer_of = writer_of
        self._capacity = capacity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        writer = self._find_writer(scope)
        if writer is None:
            await self._app(scope, receive, send)
            return
        try:
            connection = await writer.acquire()
        except OSError:
            LOGGER.exception("the writer process does not accept connections")
            error = unavailable("the writer process of the graph is not available")
            status, body = render_http_error(error)
            await JSONResponse(body, status, error.headers)(scope, receive, send)
            return
        try:
            await _exchange(connection, scope, receive, send)
        except WriterLost:
            LOGGER.warning("writer lost: connection closed without a response")
            scope["abort"]()
        finally:
            writer.release(connection)

    def _find_writer(self, scope: Scope) -> WriterPool | None:
        # A worker that shuts down rejects the request like any other.
        if scope["type"] != "http" or self._capacity.is_closed:
            return None
        names = {name for name, _ in scope["headers"]}
        if _LENGTH in names and _CODING in names:
            # The application rejects the request, see `_check_framing`.
            return None
        graph_id = find_written_graph(scope["method"], scope["raw_path"].decode("latin-1"), self._graphs)
        return None if graph_id is None else self._writer_of(graph_id)


async def _exchange(connection: WriterConnection, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a request to a writer and its response to the client."""
    connection.begin(_render_head(scope))
    upload = asyncio.create_task(_upload(connection, scope, receive))
    try:
        status, headers = await connection.read_head()
        kept = [(name, value) for name, value in headers if name not in _HOP_BY_HOP]
        await send({"type": "http.response.start", "status": status, "headers": kept})
        is_open = True
        while is_open:
            body, is_open = await connection.read_body()
            await send({"type": "http.response.body", "body": body, "more_body": is_open})
    except BaseException:
        connection.close()
        raise
    finally:
        upload.cancel()
        if not connection.has_sent_body:
            # The writer answered before it had the whole body.
            connection.close()


async def _upload(connection: WriterConnection, scope: Scope, receive: Receive) -> None:
    """Send the body of a request while it arrives. If the client disconnects, then or later, the writer sees it."""
    headers = dict(scope["headers"])
    is_chunked = _LENGTH not in headers
    if headers.get(_EXPECT, b"").lower() == b"100-continue":
        # The first call of `receive` makes the client send its body, so the writer must have asked for it.
        await connection.continued.wait()
    with suppress(WriterLost):
        is_open = _has_body(scope)
        connection.has_sent_body = not is_open
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                connection.close()
                return
            if not is_open:
                continue
            body, is_open = message.get("body", b""), message.get("more_body", False)
            if is_chunked:
                body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (
                    b"" if is_open else b"0\r\n\r\n"
                )
            if body:
                await connection.write(body)
            connection.has_sent_body = not is_open


def _has_body(scope: Scope) -> bool:
    return any(
        name == _CODING or (name == _LENGTH and value.strip() != b"0") for name, value in scope["headers"]
    )


def _render_head(scope: Scope) -> bytes:
    """Return the request line and the headers for the writer."""
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    lines = [
        f"{scope['method']} ".encode("ascii") + target + f" HTTP/{scope['http_version']}".encode("ascii")
    ]
    is_chunked = False
    for name, value in scope["headers"]:
        if name not in _HOP_BY_HOP:
            lines.append(name + b": " + value)
        is_chunked = is_chunked or name == _CODING
    if is_chunked:
        lines.append(b"transfer-encoding: chunked")
    return b"\r\n".join([*lines, b"", b""])

"""HTTP connections with limits: slow clients are disconnected, and the number of connections is bounded."""

from __future__ import annotations

import asyncio
import fcntl
import json
import socket
import sys
import termios
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import h11
import uvicorn
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from omnigraph.server.http.capacity import unavailable
from omnigraph.server.http.error_responses import CODES, render_http_error
from omnigraph.server.limits import ServerLimits

# So many connections beyond the limit get a 503. Further ones are closed without a response.
_REJECTED_WITH_RESPONSE = 32
# Position of `tcpi_bytes_acked` in Linux's `struct tcp_info`.
_BYTES_ACKED = slice(120, 128)
_MALFORMED = "the request is not valid HTTP"
_TIMEOUT = "timeout while receiving the request"
_HEADERS_TOO_LARGE = "the request headers are too large"
_TOO_LARGE = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


class ConnectionConfig(uvicorn.Config):
    """Configuration of uvicorn with the limits of connections."""

    def __init__(self, app: ASGIApp, limits: ServerLimits, **options: Any) -> None:
        super().__init__(app, http=Connection, ws="none", **options)
        self.limits = limits


class RateMonitor:
    """Measures how many seconds a transfer is behind a minimum rate. A fast period is not credited to later ones.

    >>> monitor = RateMonitor(2.0, 10)
    >>> [monitor.is_stalled(*step) for step in [(1.0, 0), (1.0, 20), (2.0, 0), (0.5, 1)]]
    [False, False, False, True]
    """

    def __init__(self, tolerance: float, rate: int) -> None:
        self._tolerance = tolerance
        self._rate = rate
        self._behind = 0.0

    def is_stalled(self, seconds: float, transferred: int) -> bool:
        """Record the bytes of a period and return whether the transfer is behind by more than the tolerance."""
        self._behind = max(0.0, self._behind + seconds - transferred / self._rate)
        return self._behind > self._tolerance

    def reset(self) -> None:
        """Start a new transfer."""
        self._behind = 0.0


class Disconnection:
    """The end of the connection of one request, for work that has to stop then. It belongs to the event loop."""

    def __init__(self) -> None:
        self.has_happened = False
        self.on_happen: Callable[[], object] | None = None

    def happen(self) -> None:
        """Record that the client is gone, and call `on_happen` if it is set."""
        self.has_happened = True
        if self.on_happen is not None:
            self.on_happen()


class ResponseTransport:
    """The transport of one response. Its head is sent together with the first part of the body.

    Otherwise a small response takes two system calls, and wakes up the client twice. A head without a body is sent
    in the next iteration of the event loop.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes, or hold them if they are the first ones."""
        if self._head is None:
            self._head = data
            self._loop.call_soon(self._flush)
            return
        if self._head:
            data, self._head = self._head + data, b""
        self._transport.write(data)

    def close(self) -> None:
        """Send what is held, and close the connection."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class Connection(H11Protocol):
    """A client connection. The server calls `check` periodically, which disconnects a slow client."""

    def __init__(
        self,
        config: ConnectionConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # uvicorn would log query strings, which can contain secrets.
        self.access_log = False
        limits = config.limits
        self._max_connections = limits.connections
        self._header_seconds = limits.header_seconds
        self._receive_rate = RateMonitor(limits.stall_seconds, limits.byte_rate)
        self._send_rate = RateMonitor(limits.stall_seconds, limits.byte_rate)
        self._has_received = False
        self._received = 0
        self._unsent = 0
        self._acknowledged = 0
        self._disconnection = Disconnection()
        self.idle_since = time.monotonic()
        # When the wait for the headers of a request began; None between requests.
        self._headers_since: float | None = self.idle_since

    @property
    def active_cycle(self) -> RequestResponseCycle | None:
        """The request whose response is not complete."""
        # uvicorn declares `cycle` as never None, but it is None before the first request.
        cycle: RequestResponseCycle | None = self.cycle
        return None if cycle is None or cycle.response_complete else cycle

    def check(self, seconds: float) -> None:
        """Disconnect the client if it is too slow. `seconds` have passed since the last check."""
        if self._is_receiving_too_slowly(seconds):
            self.transport.abort()
        elif not self.transport.is_closing() and self._is_sending_too_slowly(seconds):
            self._reject(_TIMEOUT)

    def _is_receiving_too_slowly(self, seconds: float) -> bool:
        queued, acknowledged = _send_queue(self.transport.get_extra_info("socket"))
        unsent = self.transport.get_write_buffer_size() + queued
        moved = self._unsent - unsent if acknowledged is None else acknowledged - self._acknowledged
        self._unsent, self._acknowledged = unsent, acknowledged or 0
        if not unsent:
            self._send_rate.reset()
        return unsent > 0 and self._send_rate.is_stalled(seconds, max(0, moved))

    def _is_sending_too_slowly(self, seconds: float) -> bool:
        moved, self._received = self._received, 0
        if self._headers_since is not None:
            return time.monotonic() - self._headers_since > self._header_seconds
        # A client is not late while the server does not read.
        cycle = self.active_cycle
        is_paused = self.flow.read_paused or (cycle is not None and cycle.waiting_for_100_continue)
        if is_paused or self.conn.their_state is not h11.SEND_BODY:
            return False
        return self._receive_rate.is_stalled(seconds, moved)

    # --- callbacks of uvicorn ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection. Beyond the limit, close the longest idle one; if none is idle, reject this one."""
        super().connection_made(transport)
        if len(self.connections) <= self._max_connections:
            return
        alive = [item for item in cast(set[Connection], self.connections) if not item.transport.is_closing()]
        excess = len(alive) - self._max_connections
        idle = [item for item in alive if item is not self and item.active_cycle is None]
        if len(idle) >= excess:
            for item in sorted(idle, key=lambda item: item.idle_since)[: max(0, excess)]:
                item.transport.abort()
        elif excess > _REJECTED_WITH_RESPONSE:
            transport.abort()
        else:
            self.app = cast(Any, _reject_connection)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell a request in progress that its client is gone."""
        is_active = self.active_cycle is not None
        super().connection_lost(exc)
        if is_active:
            self._disconnection.happen()

    def data_received(self, data: bytes) -> None:
        """Process received bytes."""
        self._has_received = True
        self._received += len(data)
        super().data_received(data)
        # Any byte between requests starts the next request.
        if self._headers_since is None and self.active_cycle is None and self.conn.their_state is h11.IDLE:
            self._headers_since = time.monotonic()

    def handle_events(self) -> None:
        """Process parsed events. A new cycle means that the headers are complete."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._headers_since = None
            self._receive_rate.reset()
            self.cycle.transport = cast(asyncio.Transport, ResponseTransport(self.transport, self.loop))
            scope = cast(dict[str, Any], self.cycle.scope)
            # The application can end the connection without a response, and can be told that the client is gone.
            scope["abort"] = self.abort
            scope["disconnection"] = self._disconnection = Disconnection()

    def abort(self) -> None:
        """Close the connection at once. A request in progress gets no further response."""
        self._disconnect_cycle()
        self.transport.abort()

    def on_response_complete(self) -> None:
        """Start to wait for the next request."""
        self.idle_since = time.monotonic()
        super().on_response_complete()

    def resume_writing(self) -> None:
        """Continue to send after the client has received the buffered bytes."""
        self._send_rate.reset()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the response has our own text
        """Reject a malformed request."""
        # uvicorn calls this while it handles the parser's exception.
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == _TOO_LARGE:
            self._reject(_HEADERS_TOO_LARGE, _TOO_LARGE)
        else:
            self._reject(_MALFORMED)

    def _reject(self, text: str, status: int = 400) -> None:
        """Send an error response if possible, and close the connection."""
        # A client that has sent nothing would take the response for that of its next request.
        if self._has_received and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": text, "code": CODES[400]}).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode()),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        # The application can no longer send a response.
        self._disconnect_cycle()
        self.transport.close()

    def _disconnect_cycle(self) -> None:
        if (cycle := self.active_cycle) is not None:
            cycle.disconnected = True
            cycle.message_event.set()
            self._disconnection.happen()


def _send_queue(connection: socket.socket) -> tuple[int, int | None]:
    """Return the bytes in the kernel's send queue, and the bytes that the client has acknowledged if known.

    The kernel's buffer can hold megabytes and is refilled in large steps, so the application's own buffer does not
    show the progress of a slow client.
    """
    try:
        queued = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.stop)
    except (OSError, AttributeError, ValueError):
        # Not available on this system, or the connection is closed.
        return 0, None
    acked = int.from_bytes(info[_BYTES_ACKED], sys.byteorder) if len(info) == _BYTES_ACKED.stop else None
    return int.from_bytes(queued, sys.byteorder), acked


async def _reject_connection(scope: Scope, receive: Receive, send: Send) -> None:
    error = unavailable("server overloaded: too many connections")
    status, body = render_http_error(error)
    await JSONResponse(body, status, error.headers)(scope, receive, send)

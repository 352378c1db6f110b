"""Connections that wait for nobody for ever: slow clients are left, and there are never too many at a time."""

from __future__ import annotations

import asyncio
import fcntl
import json
import socket
import sys
import termios
import time
from http import HTTPStatus
from typing import Any, cast

import h11
import uvicorn
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from omnigraph.server.http.capacity import overloaded
from omnigraph.server.http.error_responses import CODES, http_failure
from omnigraph.server.limits import Limits

# So many more are told that there are too many; beyond that even telling costs too much.
_TOLD = 32
# Where Linux tells how many bytes the other side has acknowledged.
_TAKEN = slice(120, 128)
_MALFORMED = "the request is not valid HTTP"
_LATE = "the request did not arrive in time"
_LARGE_HEAD = "the head of the request is too large"
_TOO_LARGE = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


class ConnectionConfig(uvicorn.Config):
    """How a server runs, with the limits of its connections."""

    def __init__(self, app: ASGIApp, limits: Limits, **more: Any) -> None:
        super().__init__(app, http=Connection, ws="none", **more)
        self.limits = limits


class Pace:
    """How far somebody is behind a least rate, in seconds; being quick for a while earns nothing for later.

    >>> pace = Pace(2.0, 10)
    >>> pace.is_lost(1.0, 0), pace.is_lost(1.0, 20), pace.is_lost(2.0, 0), pace.is_lost(0.5, 1)
    (False, False, False, True)
    """

    def __init__(self, patience: float, rate: int) -> None:
        self._patience = patience
        self._rate = rate
        self._behind = 0.0

    def is_lost(self, seconds: float, moved: int) -> bool:
        """Count some time in which so many bytes moved; whether it is longer than anybody waits."""
        self._behind = max(0.0, self._behind + seconds - moved / self._rate)
        return self._behind > self._patience

    def restart(self) -> None:
        """Begin anew."""
        self._behind = 0.0


class Connection(H11Protocol):
    """A connection of a client. `check` is called from time to time and leaves a client that is too slow."""

    def __init__(
        self,
        config: ConnectionConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # The library logs whole addresses wherever the process has a log at all, and clients put secrets there.
        self.access_log = False
        limits = config.limits
        self._most = limits.connections
        self._header_seconds = limits.header_seconds
        self._arriving = Pace(limits.stall_seconds, limits.byte_rate)
        self._leaving = Pace(limits.stall_seconds, limits.byte_rate)
        self._spoken = False
        self._received = 0
        self._unsent = 0
        self._taken = 0
        self.idle_since = time.monotonic()
        # Since when the head of a request is awaited; None between requests, where nobody needs to send anything.
        self._head_since: float | None = self.idle_since

    @property
    def answering(self) -> RequestResponseCycle | None:
        """The request that is being answered."""
        # The library declares that there is always one, and begins with none.
        found: RequestResponseCycle | None = self.cycle
        return None if found is None or found.response_complete else found

    def check(self, seconds: float) -> None:
        """Leave the client when it is too slow, after so many seconds since the last time."""
        if self._is_reading_too_slowly(seconds):
            self.transport.abort()
        elif not self.transport.is_closing() and self._is_sending_too_slowly(seconds):
            self._refuse(_LATE)

    def _is_reading_too_slowly(self, seconds: float) -> bool:
        queued, taken = _queued(self.transport.get_extra_info("socket"))
        unsent = self.transport.get_write_buffer_size() + queued
        moved = self._unsent - unsent if taken is None else taken - self._taken
        self._unsent, self._taken = unsent, taken or 0
        if not unsent:
            self._leaving.restart()
        return unsent > 0 and self._leaving.is_lost(seconds, max(0, moved))

    def _is_sending_too_slowly(self, seconds: float) -> bool:
        moved, self._received = self._received, 0
        if self._head_since is not None:
            return time.monotonic() - self._head_since > self._header_seconds
        # A client is not late while this side does not want to read.
        answering = self.answering
        unwanted = self.flow.read_paused or (answering is not None and answering.waiting_for_100_continue)
        if unwanted or self.conn.their_state is not h11.SEND_BODY:
            return False
        return self._arriving.is_lost(seconds, moved)

    # --- what the library tells ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, in the place of one that is idle when there are too many."""
        super().connection_made(transport)
        if len(self.connections) <= self._most:
            return
        others = [item for item in cast(set[Connection], self.connections) if not item.transport.is_closing()]
        excess = len(others) - self._most
        idle = [item for item in others if item is not self and item.answering is None]
        if len(idle) >= excess:
            for item in sorted(idle, key=lambda item: item.idle_since)[: max(0, excess)]:
                item.transport.abort()
        elif excess > _TOLD:
            transport.abort()
        else:
            self.app = cast(Any, _refuse_connection)

    def data_received(self, data: bytes) -> None:
        """Take what a client has sent."""
        self._spoken = True
        self._received += len(data)
        super().data_received(data)
        # Whatever was sent has ended the wait between requests, so the next request is awaited.
        if self._head_since is None and self.answering is None and self.conn.their_state is h11.IDLE:
            self._head_since = time.monotonic()

    def handle_events(self) -> None:
        """Go on with what has arrived."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._head_since = None
            self._arriving.restart()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.idle_since = time.monotonic()
        super().on_response_complete()

    def resume_writing(self) -> None:
        """Go on to send: the client has taken what was waiting."""
        self._leaving.restart()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the text is ours
        """Refuse what is not HTTP, or too much of it."""
        # The library is in the middle of handling it.
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == _TOO_LARGE:
            self._refuse(_LARGE_HEAD, _TOO_LARGE)
        else:
            self._refuse(_MALFORMED)

    def _refuse(self, text: str, status: int = 400) -> None:
        """End the connection, with an answer where there can be one."""
        # To a client that never said anything an answer would be one to its next request.
        if self._spoken and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
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
        if (answering := self.answering) is not None:
            # The answer of the application, if there will be one, has nowhere to go.
            answering.disconnected = True
            answering.message_event.set()
        self.transport.close()


def _queued(connection: socket.socket) -> tuple[int, int | None]:
    """How many bytes the client has yet to take from the system, and how many it has taken so far if that is told.

    The system's buffer can hold megabytes and takes more only in large steps: by ours alone a client would often
    look as if it took nothing.
    """
    try:
        queued = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TAKEN.stop)
    except (OSError, AttributeError, ValueError):
        # Not every system tells, and none does of a connection that is gone.
        return 0, None
    taken = int.from_bytes(told[_TAKEN], sys.byteorder) if len(told) == _TAKEN.stop else None
    return int.from_bytes(queued, sys.byteorder), taken


async def _refuse_connection(scope: Scope, receive: Receive, send: Send) -> None:
    error = overloaded("the server has too many connections")
    status, body = http_failure(error)
    await JSONResponse(body, status, error.headers)(scope, receive, send)

"""A server that tells where it listens, leaves slow clients, and ends in good order when a signal says so."""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from omnigraph.server.http.capacity import Capacity
from omnigraph.server.http.connections import Connection, ConnectionConfig
from omnigraph.server.logs import LOGGER

LISTENING = "OMNIGRAPH_LISTEN_ADDR"
CUT_OFF = 1
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# The library ticks ten times a second.
_TICKS = 5
# After the last request the process has so long to end, with whatever its threads are at.
_LAST_SECONDS = 5.0


class Server(uvicorn.Server):
    """A server of one application.

    The first signal begins the end: the server says that it is not ready, answers what it has in hand, and ends
    when that is done or has taken too long. A second signal ends it at once. Whatever is cut off leaves what a
    process that died leaves, and its client sees the connection break: it is never told of a failure that may be
    none.
    """

    def __init__(self, app: ASGIApp, capacity: Capacity) -> None:
        limits = capacity.limits
        config = ConnectionConfig(
            app,
            limits,
            access_log=False,
            # The log is ours; and whoever asks learns neither the name of the library nor, by a header that
            # anybody can write, another address of the client.
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=limits.idle_seconds,
            timeout_graceful_shutdown=math.ceil(limits.stop_seconds),
        )
        super().__init__(config)
        self._capacity = capacity
        self._checked_at = time.monotonic()
        self._signalled_at: float | None = None
        self._watchdog: threading.Timer | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        for bound in sockets or ():
            host, port = bound.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            sys.stdout.write(f"{LISTENING}={shown}:{port}\n")
            sys.stdout.flush()

    async def on_tick(self, counter: int) -> bool:
        """Look after the connections, and say whether to stop listening."""
        if counter % _TICKS == 0:
            self._check_connections()
        stops = await super().on_tick(counter)
        return stops or (self._signalled_at is not None and self._is_done(self._signalled_at))

    def _check_connections(self) -> None:
        now = time.monotonic()
        passed, self._checked_at = now - self._checked_at, now
        for connection in [*self.server_state.connections]:
            if isinstance(connection, Connection):
                connection.check(passed)

    def _is_done(self, since: float) -> bool:
        limits = self._capacity.limits
        left = since + limits.drain_seconds + limits.stop_seconds - time.monotonic()
        if self._watchdog is None:
            self._watchdog = threading.Timer(max(0, left) + _LAST_SECONDS, _cut_off)
            self._watchdog.daemon = True
            self._watchdog.start()
        if left > limits.stop_seconds:
            return False
        self._capacity.is_refusing = True
        if not self.server_state.tasks:
            # Answers that were given may still be on their way out.
            self.config.timeout_graceful_shutdown = max(1, math.ceil(left))
            return True
        if left > 0:
            return False
        # The library would answer them with a failure, of which nobody knows whether it is one.
        LOGGER.error("requests are cut off", extra={"fields": {"requests": len(self.server_state.tasks)}})
        os._exit(CUT_OFF)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, and have it done with then."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the library calls it so
        """Begin to end, or end."""
        if self._signalled_at is not None:
            os._exit(128 + sig)
        self._signalled_at = time.monotonic()
        self._capacity.is_stopping = True


def _cut_off() -> None:
    LOGGER.error("threads are cut off")
    os._exit(CUT_OFF)

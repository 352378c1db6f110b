"""The uvicorn server: it prints its address, checks connections, reloads on SIGHUP, and shuts down gracefully."""

from __future__ import annotations

import math
import os
import signal
import socket
import ssl
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
from omnigraph.server.reload import Reloader, ReloadTask, Watcher

LISTENING = "OMNIGRAPH_LISTEN_ADDR"
EXIT_ABORTED = 1
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# uvicorn ticks ten times a second.
_TICKS_PER_CHECK = 5
# Time for the process to exit after the last request, while threads may still be running.
_EXIT_SECONDS = 5.0


class GracefulServer(uvicorn.Server):
    """A uvicorn server with graceful shutdown.

    The first signal starts the shutdown: the readiness check fails, running requests finish, and the server exits
    when all are done or the time limit is reached. A second signal exits immediately. Aborted requests end like
    in a crash: the client sees the connection break and gets no error response, because the outcome is unknown.
    """

    def __init__(
        self,
        app: ASGIApp,
        capacity: Capacity,
        reloader: Reloader | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        prints_address: bool = True,
    ) -> None:
        limits = capacity.limits
        config = ConnectionConfig(
            app,
            limits,
            access_log=False,
            log_config=None,
            # Do not disclose the library.
            server_header=False,
            # Any client could forge the headers of a proxy.
            proxy_headers=False,
            timeout_keep_alive=limits.idle_seconds,
            timeout_graceful_shutdown=math.ceil(limits.shutdown_seconds),
        )
        super().__init__(config)
        self._capacity = capacity
        self._tls = tls
        self._reload = ReloadTask(reloader)
        self._watcher = Watcher(reloader, self._reload, limits.follow_seconds)
        self._prints_address = prints_address
        self._checked_at = time.monotonic()
        self._signalled_at: float | None = None
        self._watchdog: threading.Timer | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections, and print the address to stdout."""
        self.config.ssl = self._tls
        await super().startup(sockets)
        await self._watcher.start()
        if self._prints_address:
            for bound in sockets or ():
                print_address(bound)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all connections."""
        self._watcher.stop()
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Check the connections, and return whether to stop accepting new ones."""
        if counter % _TICKS_PER_CHECK == 0:
            self._check_connections()
        should_stop = await super().on_tick(counter)
        return should_stop or (self._signalled_at is not None and self._is_drained(self._signalled_at))

    def _check_connections(self) -> None:
        now = time.monotonic()
        elapsed, self._checked_at = now - self._checked_at, now
        for connection in [*self.server_state.connections]:
            if isinstance(connection, Connection):
                connection.check(elapsed)

    def _is_drained(self, since: float) -> bool:
        """Return whether all requests are done after a signal. Exits the process when the time is over."""
        limits = self._capacity.limits
        left = since + limits.drain_seconds + limits.shutdown_seconds - time.monotonic()
        if self._watchdog is None:
            self._watchdog = threading.Timer(max(0, left) + _EXIT_SECONDS, _abort_threads)
            self._watchdog.daemon = True
            self._watchdog.start()
        if left > limits.shutdown_seconds:
            return False
        self._capacity.is_closed = True
        if not self.server_state.tasks:
            # Responses may still be in the send buffers.
            self.config.timeout_graceful_shutdown = max(1, math.ceil(left))
            return True
        if left > 0:
            return False
        # uvicorn would answer the remaining requests with an error, although their writes may still succeed.
        LOGGER.error("requests aborted", extra={"fields": {"requests": len(self.server_state.tasks)}})
        os._exit(EXIT_ABORTED)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs. Unlike uvicorn, do not raise them again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._reload.handler())
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signature of uvicorn
        """Start the shutdown at the first signal, and exit at the second."""
        if self._signalled_at is not None:
            os._exit(128 + sig)
        self.begin_shutdown()

    def begin_shutdown(self) -> None:
        """Start the shutdown. Idempotent."""
        if self._signalled_at is None:
            self._signalled_at = time.monotonic()
            self._capacity.is_draining = True


def print_address(bound: socket.socket) -> None:
    """Print the address of a listening socket to stdout."""
    host, port = bound.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    sys.stdout.write(f"{LISTENING}={shown}:{port}\n")
    sys.stdout.flush()


def _abort_threads() -> None:
    LOGGER.error("threads aborted")
    os._exit(EXIT_ABORTED)

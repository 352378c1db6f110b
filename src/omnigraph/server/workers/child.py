"""A worker or writer process: from the fork to its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from omnigraph.server.graceful_shutdown import GracefulServer
from omnigraph.server.workers.peers import ControlServer
from omnigraph.server.workers.process_slots import ProcessSlot
from omnigraph.server.workers.pushed_rows import RowReceiver

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp

READY: Final = b"ready\n"
DRAIN: Final = b"d"
# Exit code of a process whose parent has ended.
EXIT_ORPHANED: Final = 3


class ProcessServer(GracefulServer):
    """The server of a worker or a writer. The parent tells it to drain, and it ends with the parent.

    SIGINT and, in a writer, SIGTERM have no effect: a terminal or a service manager may send them to all processes,
    and the writers must outlive the workers.
    """

    def __init__(self, app: FastAPI, served: ASGIApp, slot: ProcessSlot, channel: socket.socket) -> None:
        tls = app.state.tls
        super().__init__(
            served,
            app.state.capacity,
            app.state.reloader,
            None if tls is None else tls.context,
            prints_address=False,
        )
        self._slot = slot
        self._channel = channel
        self._control = ControlServer(app.state.metrics, app.state.readiness, app.state.queries)
        self._graphs = app.state.resources.graphs

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, and tell the parent."""
        await self._control.start(self._slot.control)
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        if self._slot.rows is not None:
            receiver = RowReceiver(self._slot.rows, self._graphs)
            loop.add_reader(receiver.socket, receiver.receive)
        watch = threading.Thread(target=self._watch_parent, args=(loop,), daemon=True, name="parent")
        watch.start()
        self._channel.sendall(READY)

    def _watch_parent(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                command = self._channel.recv(1)
            except OSError:
                command = b""
            if not command:
                # Requests end like in a crash: their clients see a broken connection.
                os._exit(EXIT_ORPHANED)
            if command == DRAIN:
                loop.call_soon_threadsafe(self.begin_shutdown)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, self._reload.handler())
        if self._slot.kind == "worker":
            signal.signal(signal.SIGTERM, lambda *_: self.begin_shutdown())
        else:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        yield

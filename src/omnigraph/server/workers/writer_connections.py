"""Connections of a worker to a writer process: HTTP/1.1 over a Unix socket, kept open and reused."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, cast

import httptools

# A connection stops reading when so many bytes wait for a slow client.
_BUFFERED_BYTES: Final = 256 << 10
_CONTINUE: Final = 100

Headers = list[tuple[bytes, bytes]]


class WriterLost(Exception):
    """The connection to the writer broke before the response was complete."""


class WriterConnection(asyncio.Protocol):
    """A connection to a writer. It carries one request at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._headers: Headers = []
        self._head: tuple[int, Headers] | None = None
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._is_complete = True
        self._is_lost = False
        self._keeps_alive = True
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.continued = asyncio.Event()
        self.has_sent_body = False

    # --- one request ---------------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        """Whether a further request can be sent."""
        is_open = self._transport is not None and not self._transport.is_closing()
        return is_open and self._is_complete and self._keeps_alive and not self._is_lost

    def begin(self, head: bytes) -> None:
        """Send the head of a request."""
        assert self._transport is not None
        self._head = None
        self._is_complete = False
        self.has_sent_body = False
        self._changed.clear()
        self.continued.clear()
        self._transport.write(head)

    async def write(self, data: bytes) -> None:
        """Send a part of the body. Waits while the writer does not read."""
        if self._is_lost or self._transport is None:
            raise WriterLost
        self._transport.write(data)
        if not self._writable.is_set():
            await self._writable.wait()

    async def read_head(self) -> tuple[int, Headers]:
        """Return the status and the headers of the response."""
        while self._head is None:
            await self._wait()
        return self._head

    async def read_body(self) -> tuple[bytes, bool]:
        """Return the next bytes of the response body, and whether more may follow."""
        while not self._chunks and not self._is_complete:
            await self._wait()
        body = b"".join(self._chunks) if len(self._chunks) != 1 else self._chunks[0]
        self._chunks.clear()
        if self._buffered > _BUFFERED_BYTES and self._transport is not None and not self._is_lost:
            self._transport.resume_reading()
        self._buffered = 0
        return body, not self._is_complete

    async def _wait(self) -> None:
        if self._is_lost:
            raise WriterLost
        self._changed.clear()
        await self._changed.wait()

    def close(self) -> None:
        """Close the connection. The writer sees that the client is gone."""
        self._keeps_alive = False
        if self._transport is not None:
            self._transport.abort()

    # --- callbacks of asyncio ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # The transports of uvloop are no subclasses of those of asyncio.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - signature of asyncio
        """Wake up the request that uses the connection."""
        self._is_lost = True
        self._changed.set()
        self._writable.set()
        self.continued.set()

    def pause_writing(self) -> None:
        """Stop sending while the writer does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Continue to send."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Parse bytes of the response."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()
        self._changed.set()

    # --- callbacks of the parser ---------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Start a response."""
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Publish the head of the response. `100 Continue` is not a response."""
        status = self._parser.get_status_code()
        if status == _CONTINUE:
            self.continued.set()
            return
        self._keeps_alive = self._parser.should_keep_alive()
        self._head = (status, self._headers)

    def on_body(self, body: bytes) -> None:
        """Add bytes of the body, and stop reading while too many wait."""
        self._chunks.append(body)
        self._buffered += len(body)
        if self._buffered > _BUFFERED_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """End the response."""
        if self._head is not None:
            self._is_complete = True


class WriterPool:
    """Open connections to one writer, the most recently used first."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: list[WriterConnection] = []

    async def acquire(self) -> WriterConnection:
        """Return a connection. Raises `OSError` if the writer does not listen."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_unix_connection(WriterConnection, self._path)
        return connection

    def release(self, connection: WriterConnection) -> None:
        """Keep a connection for the next request if its last response is complete, else close it."""
        if connection.is_usable:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

"""A small HTTP/1.1 client for the load test, whose own processor time counts little beside that of the server.

General clients need about as much processor time for a request as the server, and the clients of the load test
share the processors with it. This one sends a request with one write and parses the response with `httptools`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httptools


class NotSent(Exception):
    """The connection could not be established."""


class NotAnswered(Exception):
    """The connection broke before the response was complete."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the parsed body."""
        return json.loads(self.body)


class _Connection(asyncio.Protocol):
    """A connection with one request at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: Any = None
        self._chunks: list[bytes] = []
        self._waiter: asyncio.Future[Answer] | None = None
        self.is_open = True

    async def exchange(self, data: bytes, patience: float) -> Answer:
        """Send a request and return its response."""
        self._chunks = []
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        async with asyncio.timeout(patience):
            return await self._waiter

    def close(self) -> None:
        self.is_open = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(NotAnswered(repr(exc)))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive():
            self.is_open = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(Answer(self._parser.get_status_code(), b"".join(self._chunks)))


class HttpClient:
    """A client of one server with a connection of its own."""

    def __init__(self, url: str, headers: Mapping[str, str], patience: float) -> None:
        place = urlsplit(url)
        self._host, self._port, self._prefix = place.hostname or "", place.port or 80, place.path
        self._headers = f"Host: {place.netloc}\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        self._patience = patience
        self._connection: _Connection | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        content: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request and return the response; `NotSent` or `NotAnswered` if there is none."""
        body = _dump(json) if content is None else content.encode()
        more = "".join(f"{key}: {value}\r\n" for key, value in (headers or {}).items())
        if json is not None:
            more += "Content-Type: application/json\r\n"
        if method != "GET":
            more += f"Content-Length: {len(body)}\r\n"
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._headers}{more}\r\n"
        connection = await self._connect()
        try:
            return await connection.exchange(head.encode() + body, self._patience)
        except (TimeoutError, httptools.HttpParserError) as error:
            connection.close()
            raise NotAnswered(repr(error)) from error

    async def _connect(self) -> _Connection:
        if self._connection is None or not self._connection.is_open:
            loop = asyncio.get_running_loop()
            try:
                _, self._connection = await loop.create_connection(_Connection, self._host, self._port)
            except OSError as error:
                raise NotSent(repr(error)) from error
        return self._connection

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def _dump(value: Any) -> bytes:
    return b"" if value is None else json.dumps(value).encode()

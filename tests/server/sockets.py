"""Raw connections to a server, for requests that an HTTP library would not send."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from omnigraph.protocol.error_output import ErrorOutput
from tests.support.waiting import HANG


@dataclass(frozen=True)
class Raw:
    """A raw response. `status` is None if the connection was closed without a response."""

    status: int | None
    headers: list[tuple[str, str]]
    body: bytes

    def error_body(self, status: int) -> dict[str, Any]:
        """Return the body of an error response, checked against the status and the error model."""
        assert self.status == status, self
        assert ("content-type", "application/json") in self.headers
        found: dict[str, Any] = json.loads(self.body)
        ErrorOutput.model_validate(found)
        return found


@contextmanager
def connected(url: str, receive_buffer: int | None = None) -> Iterator[socket.socket]:
    """Open a connection. A small buffer makes the kernel accept little data that is not read."""
    place = urlsplit(url)
    with socket.socket() as found:
        if receive_buffer is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        found.settimeout(HANG)
        found.connect((place.hostname, place.port))
        yield found


def head(method: str, path: str, *headers: str, length: int | None = None) -> bytes:
    """Return the request line and the headers of a request."""
    sized = [] if length is None else [f"Content-Length: {length}", "Content-Type: application/json"]
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *sized, *headers, "", ""]).encode()


def exchange(url: str, *parts: bytes) -> Raw:
    """Send bytes, and return the response when the server has closed the connection."""
    with connected(url) as found:
        for part in parts:
            found.sendall(part)
        return rest(found)


def rest(connection: socket.socket) -> Raw:
    """Read until the server closes the connection, and return the response."""
    data = everything(connection)
    first, _, body = data.partition(b"\r\n\r\n")
    if not first:
        return Raw(None, [], b"")
    status, *lines = first.decode("latin-1").split("\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    return Raw(int(status.split()[1]), headers, body)


def everything(connection: socket.socket) -> bytes:
    """Read all bytes until the server closes the connection."""
    found = []
    try:
        while more := connection.recv(1 << 20):
            found.append(more)
    except ConnectionError:
        # Data that arrives after the close makes the kernel reset the connection.
        pass
    return b"".join(found)


def is_open(connection: socket.socket) -> bool:
    """Return whether a connection without a response is still open."""
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    finally:
        connection.settimeout(HANG)

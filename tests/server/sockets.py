"""Connections to a server as bytes: what no well-behaved client would send, and answers as they come."""

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
    """An answer as it was sent; without a status the connection ended with nothing said."""

    status: int | None
    headers: list[tuple[str, str]]
    body: bytes

    def refusal(self, status: int) -> dict[str, Any]:
        """The body of a refusal, which has the one shape."""
        assert self.status == status, self
        assert ("content-type", "application/json") in self.headers
        found: dict[str, Any] = json.loads(self.body)
        ErrorOutput.model_validate(found)
        return found


@contextmanager
def connected(url: str, receive_buffer: int | None = None) -> Iterator[socket.socket]:
    """A connection; a small buffer makes the system take little of what nobody reads."""
    place = urlsplit(url)
    with socket.socket() as found:
        if receive_buffer is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        found.settimeout(HANG)
        found.connect((place.hostname, place.port))
        yield found


def head(method: str, path: str, *headers: str, length: int | None = None) -> bytes:
    """The head of a request with these header lines."""
    sized = [] if length is None else [f"Content-Length: {length}", "Content-Type: application/json"]
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *sized, *headers, "", ""]).encode()


def exchange(url: str, *parts: bytes) -> Raw:
    """Send bytes and read what comes until the server ends the connection, which it is asked to."""
    with connected(url) as found:
        for part in parts:
            found.sendall(part)
        return rest(found)


def rest(connection: socket.socket) -> Raw:
    """Everything that still comes, as one answer. Nothing, when the connection ends without one."""
    data = everything(connection)
    first, _, body = data.partition(b"\r\n\r\n")
    if not first:
        return Raw(None, [], b"")
    status, *lines = first.decode("latin-1").split("\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    return Raw(int(status.split()[1]), headers, body)


def everything(connection: socket.socket) -> bytes:
    """All bytes that still come until the server ends the connection."""
    found = []
    try:
        while more := connection.recv(1 << 20):
            found.append(more)
    except ConnectionError:
        # What was sent too late makes the system reset a connection that was ended in good order.
        pass
    return b"".join(found)


def is_open(connection: socket.socket) -> bool:
    """Whether the server has not ended a connection, of which nothing was answered yet."""
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    finally:
        connection.settimeout(HANG)

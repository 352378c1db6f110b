"""Servers that say what a test has them say, over real sockets, and remember what they were asked."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.support.waiting import HANG

# What is done instead of answering: hang up after the request, after its head, or never say anything.
HANG_UP, HANG_UP_EARLY, SAY_NOTHING = b"hang up", b"hang up early", b"say nothing"


def reply(status: int = 200, body: object = None, *headers: str, text: bytes | None = None) -> bytes:
    """A response with a JSON body, or with any text."""
    data = json.dumps(body).encode() if text is None else text
    head = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(data)}", "Content-Type: application/json"]
    return "\r\n".join([*head, *headers, "", ""]).encode() + data


@dataclass
class Scripted:
    """For each connection, in order, what is answered to each of its requests; then it is closed."""

    script: Sequence[Sequence[bytes]]
    url: str = ""
    asked: list[bytes] = field(default_factory=list)

    def serve(self, listener: socket.socket, kept: ExitStack) -> None:
        """Follow the script; connections on which nothing is said are open for as long as they are kept."""
        for answers in self.script:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if SAY_NOTHING in answers:
                kept.enter_context(connection)
                self._note(connection)
                continue
            with connection:
                self._answer(connection, answers)

    def _answer(self, connection: socket.socket, answers: Sequence[bytes]) -> None:
        for answer in answers:
            there = self._note(connection, head_only=answer == HANG_UP_EARLY)
            if not there or answer in (HANG_UP, HANG_UP_EARLY):
                return
            connection.sendall(answer)

    def _note(self, connection: socket.socket, *, head_only: bool = False) -> bool:
        """Read a request; false when there is none."""
        data = b""
        while b"\r\n\r\n" not in data:
            chunk = connection.recv(65_536)
            if not chunk:
                return False
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        sizes = [int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")]
        while sizes and not head_only and len(body) < sizes[0]:
            body += connection.recv(65_536)
        chunked = b"transfer-encoding: chunked" in lines and not head_only
        while chunked and not body.endswith(b"0\r\n\r\n") and (chunk := connection.recv(65_536)):
            body += chunk
        self.asked.append(head + b"\r\n\r\n" + body)
        return True


@contextmanager
def scripted(*script: Sequence[bytes]) -> Iterator[Scripted]:
    """A server on a port of its own for as long as the context lasts."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as kept:
        found = Scripted(script, f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread = threading.Thread(target=found.serve, args=(listener, kept), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            # Wakes up a thread that waits for a connection which nobody makes any more.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(HANG)
            assert not thread.is_alive()

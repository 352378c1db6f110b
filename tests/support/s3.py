"""A small S3-compatible server on loopback, for clients in this and other processes.

Real HTTP, strictly consistent, with conditional writes, and fast: about half a millisecond a request. Requests
are counted and spoiled through its `seam`. It checks the access key but not the signature.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import uuid4

from tests.support.s3_objects import Objects, Reply, Request, error_reply
from tests.support.s3_seam import CODES, Fault, Seam
from tests.support.waiting import HANG

ACCESS_KEY = "test-key"


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    # Headers and body leave in one packet; without this, Nagle's algorithm adds 40 ms to every reply.
    disable_nagle_algorithm = True
    wbufsize = -1
    objects: ClassVar[Objects]
    seam: ClassVar[Seam]

    def _serve(self) -> None:
        started = time.monotonic()
        request = self._request()
        fault = self.seam.fault_for(request)
        if self.seam.latency:
            time.sleep(self.seam.latency)
        reply = self._carry_out(request, fault)
        if fault:
            fault.ended += 1
        self.seam.record(request, reply.status if reply else 0, started, len(reply.body) if reply else 0)
        if reply is None:
            self.close_connection = True
        else:
            self._send(reply)

    # http.server calls these names.
    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def _carry_out(self, request: Request, fault: Fault | None) -> Reply | None:
        """The reply to send, or None to say nothing and hang up."""
        how = fault.how if fault else None
        if fault and how == "refuse":
            return error_reply(fault.status, CODES.get(fault.status, "Error"))
        if how == "reset":
            self._reset()
            return None
        if how in ("hang", "late"):
            self._wait_for_the_client_to_leave()
        if fault and fault.callback and how == "cut_before":
            fault.callback()
        if how in ("hang", "cut_before"):
            return None
        reply = self._answer(request)
        if fault and fault.callback and how == "cut_after":
            fault.callback()
        if how in ("late", "drop", "cut_after"):
            return None
        if how == "applied_500":
            return error_reply(500, "InternalError")
        if fault and how == "delay":
            time.sleep(fault.seconds)
        if fault and how == "hold":
            fault.released.wait(HANG)
        return reply

    def _answer(self, request: Request) -> Reply:
        if f"Credential={ACCESS_KEY}/" not in request.headers.get("authorization", ""):
            return error_reply(403, "InvalidAccessKeyId")
        return self.objects.answer(request)

    def _request(self) -> Request:
        url = urlsplit(self.path)
        bucket, _, key = url.path.lstrip("/").partition("/")
        length = int(self.headers.get("Content-Length", 0))
        return Request(
            method=self.command,
            bucket=unquote(bucket),
            key=unquote(key),
            query=dict(parse_qsl(url.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(length) if length else b"",
        )

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body) if reply.size is None else reply.size))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def _reset(self) -> None:
        # Lingering for zero seconds turns the close into a reset.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _wait_for_the_client_to_leave(self) -> None:
        deadline = time.monotonic() + HANG
        while time.monotonic() < deadline:
            readable, _, _ = select.select([self.connection], [], [], 0.05)
            try:
                if readable and not self.connection.recv(1, socket.MSG_PEEK):
                    return
            except ConnectionError:
                return

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing; the seam records requests."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that vanish are the purpose of many tests, not an error of the server."""


class S3Server:
    """The server: where it listens, what it holds, and the seam to watch and disturb it."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.seam = Seam()
        handler = type("BoundHandler", (Handler,), {"objects": self.objects, "seam": self.seam})
        self._http = Server(("127.0.0.1", 0), handler)
        self.endpoint = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @contextmanager
    def bucket(self) -> Iterator[Bucket]:
        """A bucket of its own, gone afterwards."""
        name = f"bucket-{uuid4().hex[:12]}"
        self.objects.make_bucket(name)
        try:
            yield Bucket(self, name)
        finally:
            self.objects.drop_bucket(name)


@dataclass(frozen=True)
class Bucket:
    """One bucket: its address, the options to reach it, and the server's seam."""

    server: S3Server
    name: str

    @property
    def uri(self) -> str:
        return f"s3://{self.name}"

    @property
    def options(self) -> dict[str, str]:
        """Storage options with few retries, so that failures show quickly.

        The timeouts are those of a hang. On a busy machine a request can take as long as the machine wants.
        """
        return {
            "endpoint": self.server.endpoint,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": "test-secret",
            "region": "us-east-1",
            "allow_http": "true",
            "timeout": f"{HANG:.0f}s",
            "max_retries": "2",
            "retry_timeout": f"{HANG:.0f}s",
            "retry_backoff": "1ms",
        }

    @property
    def keys(self) -> list[str]:
        """All keys, in order, without a request."""
        return self.server.objects.keys(self.name)

    @property
    def seam(self) -> Seam:
        return self.server.seam


@contextmanager
def running_server() -> Iterator[S3Server]:
    server = S3Server()
    server.start()
    try:
        yield server
    finally:
        server.stop()

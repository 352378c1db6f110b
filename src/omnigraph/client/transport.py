"""HTTP requests to one server, with its connection pool, and their errors as the library raises them.

A request whose body was not sent completely has no effect. A read, and a write with an idempotency key, is
retried once if the connection breaks, because the server may have closed an idle connection. A write that was
sent and whose response is lost or unreadable raises `OutcomeUnknown`.
"""

from __future__ import annotations

import os
import socket
import ssl
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import httpx

from omnigraph.client.request_errors import (
    connection_lost,
    response_error,
    server_unreachable,
    unexpected_response,
)
from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.protocol.codec import ARROW, EXACT, read_result

if TYPE_CHECKING:
    from omnigraph.api.results.result import Result

T = TypeVar("T")

# Rows are requested as Arrow. Error responses and the receipts of mutations are JSON.
ROWS: Final = {"Accept": f"{ARROW}, {EXACT}"}
_CONNECT_SECONDS = 10.0
# Servers and proxies close a connection after some idle seconds. The client closes it earlier, so that it never
# sends a request on a connection that is being closed.
_IDLE_SECONDS = 4.0
_IDLE_CONNECTIONS = 20
# TCP keep-alive: a peer that does not answer for 90 seconds is gone.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))


@dataclass(frozen=True, slots=True)
class _Attempt:
    """How a request is sent. `retry` allows a second attempt; `stream` leaves the body of a success unread."""

    writes: bool
    key: str | None
    retry: bool
    stream: bool


class Transport:
    """Requests below one URL. Thread-safe. A `path` begins with ``/``.

    Parameters and body members that are None are omitted. `timeout` is the number of seconds that a read waits
    for the next bytes, None for no limit. A write has no timeout, because its outcome would be unknown. An
    `adapter` replaces the network.
    """

    # Whether the server implements only the public contract; see `PublicTransport`.
    is_public = False

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float | None = None,
        ca_file: str | None = None,
        adapter: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url
        self._adapter = adapter
        self._verify = _certificate_check(url, ca_file)
        self._headers = httpx.Headers({"Accept": EXACT})
        if is_loopback_url(url):
            # Compression takes longer than the transfer of the bytes that it saves.
            self._headers["Accept-Encoding"] = "identity"
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._is_closed = False
        self._open()
        # By whether the request writes.
        self._timeouts = {
            False: httpx.Timeout(timeout, connect=_CONNECT_SECONDS, pool=None),
            True: httpx.Timeout(None, connect=_CONNECT_SECONDS),
        }

    def __repr__(self) -> str:
        return f"Transport({self.url!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("connections to a server cannot be pickled: pickle the graph instead")

    def close(self) -> None:
        """Close all connections. Later calls raise `InvalidInput`."""
        self._is_closed = True
        if self._process == os.getpid():
            self._client.close()

    def call(
        self,
        method: str,
        path: str,
        read: Callable[[Any], T],
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        writes: bool = False,
    ) -> T:
        """Send a request and return what `read` makes of the JSON of a success.

        A write with an ``idempotency_key`` may be sent twice.
        """
        return self.request(
            method,
            path,
            lambda response: read(response.json()),
            params=params,
            body=body,
            headers=headers,
            writes=writes,
        )

    def request(
        self,
        method: str,
        path: str,
        read: Callable[[httpx.Response], T],
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        writes: bool = False,
    ) -> T:
        """Send a request and return what `read` makes of a success. The body may have several formats."""
        key = _idempotency_key(body)
        build = self._json_request(method, path, params, body, headers)
        response = self._send_json(build, _Attempt(writes, key, not writes or key is not None, stream=False))
        with decoding(response, writes=writes, key=key):
            return read(response)

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Iterator[Iterator[bytes]]:
        """Send a read and return the chunks of a success as they arrive. Leaving early closes the connection."""
        build = self._json_request(method, path, params, body, None)
        response = self._send_json(build, _Attempt(False, _idempotency_key(body), retry=True, stream=True))
        try:
            if not {"transfer-encoding", "content-length"} & response.headers.keys():
                # A truncated body would look complete.
                raise unexpected_response(response)
            yield self._chunks(response)
        finally:
            response.close()

    @contextmanager
    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Iterable[bytes] | bytes | None = None,
        writes: bool = True,
    ) -> Iterator[httpx.Response]:
        """Send a body of bytes once and return the response with its body unread.

        Raises the error of an error status, and for a write the error of any status that is not a success.
        """
        key = _idempotency_key(params)

        def build() -> httpx.Request:
            return self._client.build_request(
                method, self.url + path, params=_without_none(params), headers=headers, content=content
            )

        response = self._send(build, _Attempt(writes, key, retry=False, stream=True))
        try:
            yield response
        except httpx.RequestError as error:
            raise connection_lost(error, self.url, may_have_applied=writes, key=key) from error
        finally:
            response.close()

    def _json_request(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
    ) -> Callable[[], httpx.Request]:
        return lambda: self._client.build_request(
            method, self.url + path, params=_without_none(params), json=_without_none(body), headers=headers
        )

    def _send_json(self, build: Callable[[], httpx.Request], attempt: _Attempt) -> httpx.Response:
        """Return a success. Raise the error of any other status."""
        response = self._send(build, attempt)
        if response.is_success:
            return response
        raise response_error(response)

    def _send(self, build: Callable[[], httpx.Request], attempt: _Attempt) -> httpx.Response:
        """Return the response to a request; its body is read unless it is a success to be streamed.

        Raises the error of an error status, and for a write the error of any status that is not a success.
        """
        self._check_open()
        retry, writes, key = attempt.retry, attempt.writes, attempt.key
        # Whether the server may have applied an attempt whose connection broke.
        may_have_applied = False
        while True:
            try:
                request = build()
            except UnicodeEncodeError as error:
                # A lone surrogate cannot be encoded.
                raise InvalidInput("the request cannot be sent: it is not valid Unicode text") from error
            request.extensions["timeout"] = self._timeouts[writes].as_dict()
            body = request.stream = _TrackedBody(request.stream)
            try:
                response = self._client.send(request, stream=True)
                if not (attempt.stream and response.is_success):
                    response.read()
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                raise server_unreachable(
                    error, self.url, may_have_applied=may_have_applied, key=key
                ) from error
            except httpx.LocalProtocolError as error:
                raise InvalidInput(f"the request cannot be sent: {error}") from error
            except httpx.RequestError as error:
                may_have_applied = writes and (may_have_applied or body.was_sent)
                if not retry or isinstance(error, httpx.TimeoutException):
                    raise connection_lost(
                        error, self.url, may_have_applied=may_have_applied, key=key
                    ) from error
                retry = False
                continue
            if response.is_error or (writes and not response.is_success):
                raise response_error(response, writes=writes, may_have_applied=may_have_applied, key=key)
            return response

    def _open(self) -> None:
        """Create an empty connection pool."""
        pool = self._adapter or httpx.HTTPTransport(
            verify=self._verify,
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=_IDLE_CONNECTIONS,
                keepalive_expiry=_IDLE_SECONDS,
            ),
            socket_options=_socket_options(),
        )
        self._client = httpx.Client(headers=self._headers, transport=pool)
        # A graph need not be closed, so its connections are closed when it is garbage-collected.
        self._finalizer = weakref.finalize(self, self._client.close)
        self._process = os.getpid()

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidInput("the graph is closed", hint="connect again")
        if self._process != os.getpid():
            # After a fork the parent still uses the connections. Requests of both processes on one connection would
            # get each other's responses, so the child leaves the pool and its locks alone and creates its own.
            self._finalizer.detach()
            self._open()

    def _chunks(self, response: httpx.Response) -> Iterator[bytes]:
        try:
            yield from response.iter_bytes()
        except httpx.RequestError as error:
            raise connection_lost(error, self.url) from error


@contextmanager
def decoding(response: httpx.Response, *, writes: bool, key: str | None) -> Iterator[None]:
    """Convert an error while a success is decoded into `StorageError`, or `OutcomeUnknown` for a write."""
    try:
        yield
    except (OmnigraphError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise unexpected_response(response, writes=writes, key=key) from error


def decode_rows(response: httpx.Response) -> Result:
    """Return the result of a read query."""
    if not is_arrow(response):
        raise unexpected_response(response)
    return read_result(response.content)


def is_arrow(response: httpx.Response) -> bool:
    """Return whether the body of a response is an Arrow stream."""
    return bool(response.headers.get("content-type", "").partition(";")[0].strip() == ARROW)


class _TrackedBody(httpx.SyncByteStream):
    """A request body that records whether it was sent completely. A server processes only complete requests."""

    def __init__(self, stream: Any) -> None:
        self.was_sent = False
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream
        self.was_sent = True

    def close(self) -> None:
        """Close the underlying stream."""
        self._stream.close()


def _without_none(members: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if members is None:
        return None
    return {name: value for name, value in members.items() if value is not None}


def _idempotency_key(members: Mapping[str, Any] | None) -> str | None:
    return None if members is None else members.get("idempotency_key")


def _certificate_check(url: str, ca_file: str | None) -> ssl.SSLContext | bool:
    """Return how the certificate of the server is checked. Raises `InvalidInput` for an invalid `ca_file`."""
    if not url.startswith("https:"):
        # Loading certificates is slow and not needed without TLS.
        return False
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        # An `ssl.SSLError` is an `OSError` too.
        reason = "it has no PEM certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise InvalidInput(f"the CA file {ca_file} cannot be read: {reason}") from error


def is_loopback_url(url: str) -> bool:
    """Return whether the host of a URL is this machine.

    >>> is_loopback_url("http://127.0.0.1:8080/graphs/g"), is_loopback_url("https://graph.example.org")
    (True, False)
    """
    host = httpx.URL(url).host
    return host in ("localhost", "::1") or host.startswith("127.")


def _socket_options() -> list[tuple[int, int, int]]:
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    # Not every operating system has these options.
    options += [
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in _KEEP_ALIVE
        if hasattr(socket, name)
    ]
    return options

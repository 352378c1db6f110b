"""One pool of connections to one address: requests with a token, and errors as the library raises them.

A request whose body was not handed over whole has done nothing. A read, and a write with an idempotency key, is
tried once more when its connection breaks, because one that was kept open may have been closed at the other end
meanwhile. Any other write whose answer does not come is `OutcomeUnknown`.
"""

from __future__ import annotations

import socket
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx

from omnigraph.api.wire import ARROW, EXACT
from omnigraph.client.failures import broken, garbled, refusal, unreachable
from omnigraph.errors import InvalidInput

# Rows come as Arrow; a refusal does not, and neither does what a mutation did.
ROWS: Final = {"Accept": f"{ARROW}, {EXACT}"}
_CONNECT_SECONDS = 10.0
# Servers close what was idle for five seconds; who closes first never sends into a closed connection.
_KEPT_SECONDS = 4.0
_KEPT = 20
# A machine that is gone says nothing: after a minute and a half without a sign of it, it is taken for gone.
_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6))


class Transport:
    """Requests to what is below one address. Safe to share between threads; a `path` begins with ``/``.

    Of parameters, and of members of a body, those that are None are left out. `timeout` is how many seconds a read
    waits for the next bytes; None is forever. A write always waits: giving up would leave it in doubt.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float | None = None) -> None:
        self.url = url
        headers = {"Accept": EXACT}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        pool = httpx.HTTPTransport(
            # Certificates take a while to read, and nobody shows one without TLS.
            verify=url.startswith("https:"),
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=_KEPT, keepalive_expiry=_KEPT_SECONDS
            ),
            socket_options=_socket_options(),
        )
        self._client = httpx.Client(headers=headers, transport=pool)
        # Nobody has to close a graph, and none leaves connections behind.
        weakref.finalize(self, self._client.close)
        self._patience = {
            False: httpx.Timeout(timeout, connect=_CONNECT_SECONDS, pool=None),
            True: httpx.Timeout(None, connect=_CONNECT_SECONDS),
        }

    def __repr__(self) -> str:
        return f"Transport({self.url!r})"

    def close(self) -> None:
        """Let go of all connections. Calls after this are refused."""
        self._client.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        writes: bool = False,
    ) -> Any:
        """The decoded JSON of a success. A write with an ``idempotency_key`` in its body may be sent twice."""
        return json_of(self.request(method, path, params=params, body=body, headers=headers, writes=writes))

    def arrow(self, path: str, body: Mapping[str, Any]) -> bytes:
        """The Arrow stream that a read is answered with."""
        response = self.request("POST", path, body=body, headers=ROWS)
        if not is_arrow(response):
            raise garbled(response)
        return response.content

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        writes: bool = False,
    ) -> httpx.Response:
        """A success with its whole body, where it may have one of several forms."""
        return self._ask(method, path, params, body, headers, writes, stream=False)

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Iterator[Iterator[bytes]]:
        """The chunks of a success as they come. Whoever leaves early hangs up."""
        response = self._ask(method, path, params, body, None, writes=False, stream=True)
        try:
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
        files: Any = None,
        content: Iterable[bytes] | bytes | None = None,
        writes: bool = True,
    ) -> Iterator[httpx.Response]:
        """Send files or chunks, once, and give the response, of which the body is still to be read.

        The status of an error is raised; others are for the caller.
        """
        key = _key_of(params)

        def build() -> httpx.Request:
            return self._client.build_request(
                method,
                self.url + path,
                params=_given(params),
                headers=headers,
                files=files,
                content=content,
            )

        response = self._answer(build, writes, key, again=False, stream=True)
        try:
            if response.is_error:
                raise refusal(response, writes=writes, key=key)
            yield response
        except httpx.RequestError as error:
            raise broken(error, self.url, writes=writes, key=key) from error
        finally:
            response.close()

    def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        writes: bool,
        *,
        stream: bool,
    ) -> httpx.Response:
        """A success; its body is there unless it is to be streamed."""
        key = _key_of(body)

        def build() -> httpx.Request:
            return self._client.build_request(
                method, self.url + path, params=_given(params), json=_given(body), headers=headers
            )

        response = self._answer(build, writes, key, again=not writes or key is not None, stream=stream)
        if response.is_success:
            return response
        raise refusal(response, writes=writes, key=key)

    def _answer(
        self,
        build: Callable[[], httpx.Request],
        writes: bool,
        key: str | None,
        *,
        again: bool,
        stream: bool,
    ) -> httpx.Response:
        """The response to a request, whole unless it is a success to be streamed. `again` allows a second try."""
        while True:
            request = build()
            request.extensions["timeout"] = self._patience[writes].as_dict()
            sent = request.stream = _Watched(request.stream)
            if self._client.is_closed:
                raise InvalidInput("the connection is closed", hint="connect again")
            try:
                response = self._client.send(request, stream=True)
                if not (stream and response.is_success):
                    response.read()
                return response
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                raise unreachable(error, self.url) from error
            except httpx.LocalProtocolError as error:
                raise InvalidInput(f"the request cannot be sent: {error}") from error
            except httpx.RequestError as error:
                if not again or isinstance(error, httpx.TimeoutException):
                    raise broken(error, self.url, writes=writes and sent.whole, key=key) from error
                again = False

    def _chunks(self, response: httpx.Response) -> Iterator[bytes]:
        try:
            yield from response.iter_bytes()
        except httpx.RequestError as error:
            raise broken(error, self.url) from error


def json_of(response: httpx.Response) -> Any:
    """The JSON of a success."""
    try:
        return response.json()
    except ValueError as error:
        raise garbled(response) from error


def is_arrow(response: httpx.Response) -> bool:
    """Whether a response holds rows."""
    return bool(response.headers.get("content-type", "").partition(";")[0].strip() == ARROW)


class _Watched(httpx.SyncByteStream):
    """A body that knows whether all of it was handed over, without which no server begins."""

    def __init__(self, stream: Any) -> None:
        self.whole = False
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream
        self.whole = True

    def close(self) -> None:
        """Close what is sent."""
        self._stream.close()


def _given(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if found is None else {key: value for key, value in found.items() if value is not None}


def _key_of(found: Mapping[str, Any] | None) -> str | None:
    return None if found is None else found.get("idempotency_key")


def _socket_options() -> list[tuple[int, int, int]]:
    found = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    # Not every system lets one say how often.
    found += [
        (socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in _ALIVE if hasattr(socket, name)
    ]
    return found

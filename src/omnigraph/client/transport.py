"""One pool of connections to one address: requests with a token, and errors as the library raises them.

A request whose body was not handed over whole has done nothing. A read, and a write with an idempotency key, is
tried once more when its connection breaks, because one that was kept open may have been closed at the other end
meanwhile. A write that was sent and whose answer does not come, or cannot be read, is `OutcomeUnknown`.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import httpx

from omnigraph.client.request_errors import broken, garbled, refusal, unreachable
from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.protocol.codec import ARROW, EXACT, read_result

if TYPE_CHECKING:
    from omnigraph.api.result import Result

T = TypeVar("T")

# Rows come as Arrow; a refusal does not, and neither does what a mutation did.
ROWS: Final = {"Accept": f"{ARROW}, {EXACT}"}
_CONNECT_SECONDS = 10.0
# Servers and proxies close what is idle for some seconds; who closes first never sends into a closed connection.
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
        self._headers = httpx.Headers({"Accept": EXACT})
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._is_closed = False
        self._open()
        self._patience = {
            False: httpx.Timeout(timeout, connect=_CONNECT_SECONDS, pool=None),
            True: httpx.Timeout(None, connect=_CONNECT_SECONDS),
        }

    def __repr__(self) -> str:
        return f"Transport({self.url!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("connections to a server cannot be pickled: pickle the graph instead")

    def close(self) -> None:
        """Let go of all connections. Calls after this are refused."""
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
        """What is read from the JSON of a success. A write with an ``idempotency_key`` may be sent twice."""
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
        """What is read from a success, where it may have one of several forms."""
        response = self._ask(method, path, params, body, headers, writes, stream=False)
        with understanding(response, writes=writes, key=_key_of(body)):
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
        """The chunks of a success as they come. Whoever leaves early hangs up."""
        response = self._ask(method, path, params, body, None, writes=False, stream=True)
        try:
            if not {"transfer-encoding", "content-length"} & response.headers.keys():
                # Its end could not be told from a break.
                raise garbled(response)
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

        The status of an error is raised, and of a write any that is no success; others are for the caller.
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
            yield response
        except httpx.RequestError as error:
            raise broken(error, self.url, heard=writes, key=key) from error
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
        again = not writes or key is not None

        def build() -> httpx.Request:
            return self._client.build_request(
                method, self.url + path, params=_given(params), json=_given(body), headers=headers
            )

        response = self._answer(build, writes, key, again=again, stream=stream)
        if response.is_success:
            return response
        raise refusal(response)

    def _answer(
        self,
        build: Callable[[], httpx.Request],
        writes: bool,
        key: str | None,
        *,
        again: bool,
        stream: bool,
    ) -> httpx.Response:
        """The response to a request, whole unless it is a success to be streamed. `again` allows a second try.

        The status of an error is raised, and of a write any that is no success.
        """
        self._check_open()
        # Whether a try that broke was sent whole: whatever becomes of the next one, it may have been heard.
        heard = False
        while True:
            try:
                request = build()
            except UnicodeEncodeError as error:
                # Half a surrogate pair, which JSON can escape and no request can carry.
                raise InvalidInput("the request cannot be sent: it is not valid Unicode text") from error
            request.extensions["timeout"] = self._patience[writes].as_dict()
            sent = request.stream = _Watched(request.stream)
            try:
                response = self._client.send(request, stream=True)
                if not (stream and response.is_success):
                    response.read()
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                raise unreachable(error, self.url, heard=heard, key=key) from error
            except httpx.LocalProtocolError as error:
                raise InvalidInput(f"the request cannot be sent: {error}") from error
            except httpx.RequestError as error:
                heard = writes and (heard or sent.whole)
                if not again or isinstance(error, httpx.TimeoutException):
                    raise broken(error, self.url, heard=heard, key=key) from error
                again = False
                continue
            if response.is_error or (writes and not response.is_success):
                raise refusal(response, writes=writes, heard=heard, key=key)
            return response

    def _open(self) -> None:
        """Begin without connections."""
        pool = httpx.HTTPTransport(
            # Certificates take a while to read, and nobody shows one without TLS.
            verify=self.url.startswith("https:"),
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=_KEPT, keepalive_expiry=_KEPT_SECONDS
            ),
            socket_options=_socket_options(),
        )
        self._client = httpx.Client(headers=self._headers, transport=pool)
        # Nobody has to close a graph, and none leaves connections behind.
        self._closing = weakref.finalize(self, self._client.close)
        self._process = os.getpid()

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidInput("the graph is closed", hint="connect again")
        if self._process != os.getpid():
            # Those of the process that this one was forked from are still in use there: sent from both, requests
            # would get each other's answers. They are left to it, and so are their locks.
            self._closing.detach()
            self._open()

    def _chunks(self, response: httpx.Response) -> Iterator[bytes]:
        try:
            yield from response.iter_bytes()
        except httpx.RequestError as error:
            raise broken(error, self.url) from error


@contextmanager
def understanding(response: httpx.Response, *, writes: bool, key: str | None) -> Iterator[None]:
    """Reads of a success: what cannot be read as what it should be is no answer, and leaves a write in doubt."""
    try:
        yield
    except (OmnigraphError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise garbled(response, writes=writes, key=key) from error


def rows_of(response: httpx.Response) -> Result:
    """The rows that a query is answered with."""
    if not is_arrow(response):
        raise garbled(response)
    return read_result(response.content)


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

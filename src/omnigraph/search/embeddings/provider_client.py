"""The HTTP client of an embedding provider: one connection pool for all requests."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

# A search interface embeds a text every few seconds. A new connection costs several round trips.
_IDLE_SECONDS = 60.0


class ProviderClient:
    """A client that the first request opens. Thread-safe. It is pickled without its connections.

    `close` waits for no request: the last request in flight closes the connections. A later request opens the
    client again, because several graphs may share a provider.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._requests = 0
        self._is_closing = False
        self._process = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return ProviderClient, ()

    @contextmanager
    def request(self) -> Iterator[httpx.Client]:
        """Give the client for one request."""
        if self._process != os.getpid():
            # After a fork the parent still uses the connections and the lock.
            if self._client is not None:
                self._finalizer.detach()
            self._reset()
        with self._lock:
            client = self._client or self._open()
            self._client = client
            self._requests += 1
        try:
            yield client
        finally:
            with self._lock:
                self._requests -= 1
                self._close_if_unused()

    def close(self) -> None:
        """Close the connections after the requests in flight. Idempotent."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._is_closing = True
            self._close_if_unused()

    def _open(self) -> httpx.Client:
        import httpx

        self._is_closing = False
        client = httpx.Client(limits=httpx.Limits(keepalive_expiry=_IDLE_SECONDS))
        # A provider need not be closed, so its connections are closed when it is garbage-collected.
        self._finalizer = weakref.finalize(self, client.close)
        return client

    def _close_if_unused(self) -> None:
        if self._is_closing and not self._requests and self._client is not None:
            self._finalizer()
            self._client = None

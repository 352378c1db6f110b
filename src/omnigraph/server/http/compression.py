"""Compression of responses with zstd or gzip, negotiated by `Accept-Encoding` (RFC 9110)."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omnigraph.protocol.codec import ARROW, EXACT, NDJSON

# A shorter body would hardly become smaller.
MIN_BYTES: Final = 1024
# Everything else, such as Parquet files, archives and Blob values, is compressed already or sent in byte ranges.
_MEDIA_TYPES: Final = frozenset({"application/json", EXACT, NDJSON, ARROW})
# Compressing so many bytes takes less than a millisecond, which does not delay the event loop.
_INLINE_BYTES: Final = 32 << 10
_GZIP_LEVEL: Final = 4
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_QUALITY = re.compile(r"q\s*=\s*(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\Z", re.IGNORECASE | re.ASCII)


class Encoder(Protocol):
    """An encoder of one body. `encode` returns all bytes that a client needs to decode what it was given so far."""

    def encode(self, data: bytes) -> bytes:
        """Return the next bytes of the encoded body."""

    def finish(self) -> bytes:
        """Return the last bytes."""


class GzipEncoder:
    """Gzip."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)

    def encode(self, data: bytes) -> bytes:
        return self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        return self._stream.flush()


class ZstdEncoder:
    """Zstandard, by pyarrow."""

    def __init__(self) -> None:
        import pyarrow as pa

        self._sink = _Sink()
        self._stream = pa.CompressedOutputStream(pa.PythonFile(self._sink, mode="w"), "zstd")

    def encode(self, data: bytes) -> bytes:
        self._stream.write(data)
        self._stream.flush()
        return self._sink.take()

    def finish(self) -> bytes:
        self._stream.close()
        return self._sink.take()


class _Sink(io.RawIOBase):
    """A file that keeps what is written to it until it is taken, also after it is closed."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        return len(piece)

    def take(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data


# In the order of preference among encodings that the client accepts equally.
ENCODERS: Final[Mapping[str, Callable[[], Encoder]]] = {"zstd": ZstdEncoder, "gzip": GzipEncoder}


def choose_encoding(accepted: str) -> str | None:
    """Return the encoding for an `Accept-Encoding` header, or None if the body is sent as it is.

    >>> choose_encoding("gzip, deflate, zstd"), choose_encoding("gzip;q=1, zstd;q=0.5"), choose_encoding("br")
    ('zstd', 'gzip', None)
    >>> choose_encoding("*"), choose_encoding("zstd;q=0, *;q=0.1"), choose_encoding("identity, gzip;q=0.5")
    ('zstd', 'gzip', None)
    """
    weights: dict[str, float] = {}
    for item in accepted.lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        matches = [match for match in map(_QUALITY.match, parameters) if match is not None]
        # A malformed weight counts as a refusal.
        weights[name] = float(matches[0][1]) if matches else 0.0 if parameters else 1.0
    others = weights.get("*", 0.0)
    best = max(ENCODERS, key=lambda name: weights.get(name, others))
    weight = weights.get(best, others)
    return best if weight > 0 and weight >= weights.get("identity", 0.0) else None


class CompressionMiddleware:
    """Compresses responses whose media type and size make it worthwhile. Streams are compressed chunk by chunk."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._threads: CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._threads is None:
            # Bound to the event loop, so it cannot be created earlier.
            self._threads = CapacityLimiter(2)
        accepted = ",".join(Headers(scope=scope).getlist("accept-encoding"))
        encoding = choose_encoding(accepted) if accepted and scope["method"] != "HEAD" else None
        await self._app(scope, receive, _ResponseEncoder(send, encoding, self._threads).send)


class _ResponseEncoder:
    """Sends one response, with its body encoded if it qualifies."""

    def __init__(self, send: Send, encoding: str | None, threads: CapacityLimiter) -> None:
        self._send = send
        self._encoding = encoding
        self._threads = threads
        # The start of the response, until the first part of the body shows whether it is worth compressing.
        self._start: Message | None = None
        self._encoder: Encoder | None = None

    async def send(self, message: Message) -> None:
        """Send a message of the response."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if _is_compressible(message["status"], headers):
                headers.add_vary_header("Accept-Encoding")
                if self._encoding is not None:
                    self._start = message
                    return
        elif self._start is not None:
            message = await self._begin(self._start, message)
        elif self._encoder is not None:
            message = await self._encode(message)
        await self._send(message)

    async def _begin(self, start: Message, first: Message) -> Message:
        """Send the start of the response, and return its first part, encoded if it is large enough."""
        self._start = None
        is_complete = not first.get("more_body", False)
        if not (is_complete and len(first.get("body", b"")) < MIN_BYTES):
            assert self._encoding is not None
            self._encoder = ENCODERS[self._encoding]()
            headers = MutableHeaders(scope=start)
            headers["Content-Encoding"] = self._encoding
            del headers["Content-Length"]
            first = await self._encode(first)
            if is_complete:
                headers["Content-Length"] = str(len(first["body"]))
        await self._send(start)
        return first

    async def _encode(self, message: Message) -> Message:
        encoder = self._encoder
        assert encoder is not None
        data, is_last = bytes(message.get("body", b"")), not message.get("more_body", False)

        def work() -> bytes:
            encoded = encoder.encode(data) if data else b""
            return encoded + encoder.finish() if is_last else encoded

        encoded = (
            work() if len(data) <= _INLINE_BYTES else await to_thread.run_sync(work, limiter=self._threads)
        )
        return {**message, "body": encoded}


def _is_compressible(status: int, headers: Headers) -> bool:
    """Return whether a response may be compressed.

    A strong entity tag and a byte range belong to one sequence of bytes, so such responses stay as they are.
    """
    if status in (204, 206, 304) or {"content-encoding", "content-range", "etag"} & set(headers):
        return False
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type in _MEDIA_TYPES or media_type.startswith("text/")

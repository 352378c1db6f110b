"""Request bodies of limited size: reading, media type checks and JSON parsing."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final

from anyio import move_on_after
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import Receive, Scope

from omnigraph.server.http.error_responses import HttpError, body_too_large

BODY_BYTES: Final = 1 << 20
BATCH_BYTES: Final = 32 << 20
BODY_RESOURCE, BATCH_RESOURCE = "request_body_bytes", "graph_batch_request_bytes"
# Parsing a document of this size takes about a millisecond, which does not delay the event loop.
_INLINE_PARSE_BYTES = 64 << 10
# Parsing holds the interpreter lock. This many values take about a tenth of a second.
_MAX_VALUES = 1_000_000
# Memory of an empty list or object, which is many times the size of its text.
_VALUE_BYTES = 64
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_DRAIN_SECONDS = 5.0
# A body of this size fits in the first packets of a request.
_SMALL_BODY_BYTES = 16 << 10
_SMALL_BODY_SECONDS = 2.0
_IDENTITY = "identity"


class LimitedBodyRequest(Request):
    """A request whose JSON body has a size limit. The body counts towards the memory limit of the server."""

    def __init__(self, scope: Scope, receive: Receive, limit: int, resource: str) -> None:
        super().__init__(scope, receive)
        self._limit = limit
        self._resource = resource
        self._data: bytes | None = None

    async def body(self) -> bytes:
        """Return the whole body; `HttpError` with 413 if it is too large, with 415 if it is not JSON."""
        if self._data is None:
            chunks = []
            async for chunk in read_limited(self, self._limit, self._resource):
                self.scope["slot"].reserve(len(chunk))
                chunks.append(chunk)
            self._data = b"".join(chunks)
            media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
            if self._data and media_type != "application/json" and not media_type.endswith("+json"):
                raise HttpError(415, "Content-Type must be application/json")
        return self._data

    async def arrives_at_once(self) -> bool:
        """Read a small body that was probably sent with the headers; return whether it is complete."""
        declared = self.headers.get("content-length", "")
        if not declared.isdigit() or int(declared) > _SMALL_BODY_BYTES:
            return False
        try:
            with move_on_after(_SMALL_BODY_SECONDS):
                await self.body()
                return True
        except HttpError:
            return False
        return False

    async def json(self) -> Any:
        """Return the parsed body. Large documents are parsed on a worker thread."""
        data = await self.body()
        if len(data) < _INLINE_PARSE_BYTES:
            return parse_json(data)
        count = _bound_values(data)
        if count > _MAX_VALUES:
            count = await run_in_threadpool(_count_values, data)
        if count > _MAX_VALUES:
            raise too_many_values(count)
        self.scope["slot"].reserve(_VALUE_BYTES * count)
        return await run_in_threadpool(parse_json, data)


async def read_limited(request: Request, limit: int, resource: str) -> AsyncIterator[bytes]:
    """Yield the chunks of a body; `HttpError` with 413 as soon as it is known to be larger than the limit."""
    encoding = request.headers.get("content-encoding", _IDENTITY).strip().lower()
    if encoding != _IDENTITY:
        # The limit is for the decompressed size, which is unknown until the body is decompressed.
        raise HttpError(415, f"Content-Encoding must be {_IDENTITY}", headers={"Accept-Encoding": _IDENTITY})
    stream = request.stream()
    declared = request.headers.get("content-length", "")
    actual = int(declared) if declared.isdigit() else 0
    size = 0
    while actual <= limit:
        chunk = await anext(stream, None)
        if chunk is None:
            return
        size += len(chunk)
        actual = max(actual, size)
        if size <= limit:
            yield chunk
    await _drain(stream, limit)
    raise body_too_large(resource, limit, actual)


async def _drain(stream: AsyncIterator[bytes], limit: int) -> None:
    """Read and discard part of a body. Many clients read the response only after sending the whole body."""
    with move_on_after(_DRAIN_SECONDS):
        async for chunk in stream:
            limit -= len(chunk)
            if limit < 0:
                return


def _bound_values(data: bytes) -> int:
    """Return an upper bound of the number of values in a document. Punctuation in strings counts too."""
    return 1 + sum(data.count(mark) for mark in (b"[", b"{", b","))


def _count_values(data: bytes) -> int:
    """Return the number of values in a document, outside of strings; more than `_MAX_VALUES` if there are too many.

    The time is linear for any input.
    """
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    strings = plain.count(b'"') // 2
    if strings > 2 * _MAX_VALUES:
        # Every second string may be the name of a member.
        return strings // 2
    return 1 + sum(_bound_values(part) - 1 for part in plain.split(b'"')[::2])


def too_many_values(count: int) -> HttpError:
    """Return the 413 of a document with too many values, whose parsing would stop all other requests."""
    details = {"resource": "request_body_values", "limit": _MAX_VALUES, "actual": count}
    text = f"the request body has more than {_MAX_VALUES:,} values; load rows as files or as NDJSON"
    return HttpError(413, text, {"resource_limit": details})


def parse_json(data: bytes) -> Any:
    """Parse a UTF-8 JSON document; `HttpError` with 400 if an escape sequence is an unpaired surrogate."""
    # json.loads would also accept UTF-16 bytes, in which the search below finds no escapes.
    document = json.loads(data.decode())
    if _SURROGATE.search(data) is not None:
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise HttpError(400, "the body has a string that is not valid Unicode") from error
    return document

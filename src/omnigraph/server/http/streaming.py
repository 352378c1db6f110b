"""Streaming responses with back-pressure: a thread writes, and the event loop sends to the client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Final, cast

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from omnigraph.errors import ResourceLimit
from omnigraph.store.request_counts import propagate_context

# The resource name of a limit that is temporary: the error has a Retry-After header.
SLOTS: Final = "stream_export_slots"
_CHUNK_BYTES = 64 << 10
_QUEUED_CHUNKS = 4


class Pipe:
    """A bounded queue of chunks from one thread to one coroutine. The writer blocks when the queue is full."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue(_QUEUED_CHUNKS)
        self._buffer: list[bytes] = []
        self._size = 0
        self._closed = False

    def write(self, piece: str | bytes) -> int:
        """Append text or bytes, on the writer's thread. Raises `BrokenPipeError` after `close`."""
        data = piece.encode() if isinstance(piece, str) else bytes(piece)
        self._buffer.append(data)
        self._size += len(data)
        if self._size >= _CHUNK_BYTES:
            self._flush()
        return len(piece)

    def fill(self, produce: Callable[[IO[Any]], object]) -> None:
        """Run `produce` on the writer's thread. An error is raised in the reader."""
        try:
            produce(cast(IO[Any], self))
            self._flush()
            self._send(None)
        except BrokenPipeError:
            # The client has disconnected.
            return
        except Exception as error:  # noqa: BLE001 - raised in the reader
            if not self._closed:
                self._put(error)

    async def read(self) -> bytes | None:
        """Return the next chunk, or None at the end. Raises the error of the writer."""
        item = await self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """Discard queued chunks, and make the next write raise `BrokenPipeError`."""
        self._closed = True
        while not self._queue.empty():
            self._queue.get_nowait()

    def _flush(self) -> None:
        if self._buffer:
            data = b"".join(self._buffer)
            self._buffer, self._size = [], 0
            self._send(data)

    def _send(self, item: bytes | None) -> None:
        if self._closed:
            raise BrokenPipeError
        self._put(item)

    def _put(self, item: bytes | BaseException | None) -> None:
        asyncio.run_coroutine_threadsafe(self._queue.put(item), self._loop).result()


class StreamPool:
    """Threads that write streams. There is a limit on concurrent streams."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pool = ThreadPoolExecutor(limit, thread_name_prefix="omnigraph-stream")
        self._lock = threading.Lock()
        self._running = 0

    async def start(self, produce: Callable[[IO[Any]], object], media_type: str) -> PipeResponse:
        """Start to write, and return the response when the first chunk is available.

        An error before the first chunk is raised here, so that the client gets an error status. Raises
        `ResourceLimit` if too many streams are running.
        """
        with self._lock:
            if self._running >= self._limit:
                raise ResourceLimit(
                    f"limit of {self._limit:,} concurrent streams",
                    details={"resource": SLOTS, "limit": self._limit, "actual": self._running + 1},
                )
            self._running += 1
        pipe = Pipe()
        self._pool.submit(propagate_context(self._fill), pipe, produce)
        try:
            first = await pipe.read()
        except BaseException:
            pipe.close()
            raise
        return PipeResponse(pipe, first, media_type)

    def close(self) -> None:
        """Cancel streams that have not started, without waiting for the others."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _fill(self, pipe: Pipe, produce: Callable[[IO[Any]], object]) -> None:
        try:
            pipe.fill(produce)
        finally:
            with self._lock:
                self._running -= 1


class PipeResponse(StreamingResponse):
    """A response that sends the chunks of a pipe. The pipe is closed when the client disconnects."""

    def __init__(self, pipe: Pipe, first: bytes | None, media_type: str) -> None:
        super().__init__(_chunks(pipe, first), media_type=media_type)
        self._pipe = pipe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all chunks."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pipe.close()


async def _chunks(pipe: Pipe, first: bytes | None) -> AsyncIterator[bytes]:
    chunk = first
    while chunk is not None:
        yield chunk
        chunk = await pipe.read()

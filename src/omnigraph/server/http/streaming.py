"""Streams from a thread that writes to a client that reads: as fast as the slower of the two."""

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

# The limit that another moment may lift.
SLOTS: Final = "stream_export_slots"
_CHUNK = 64 << 10
_WAITING = 4


class Pipe:
    """What one thread writes and one coroutine reads. At most some chunks wait; then the writer does."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue(_WAITING)
        self._pieces: list[bytes] = []
        self._size = 0
        self._closed = False

    def write(self, piece: str | bytes) -> int:
        """Take some text or bytes, in the thread of the writer. `BrokenPipeError` when the reader has left."""
        data = piece.encode() if isinstance(piece, str) else bytes(piece)
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= _CHUNK:
            self._flush()
        return len(piece)

    def fill(self, produce: Callable[[IO[Any]], object]) -> None:
        """Have everything written, in the thread of the writer; a failure goes to the reader."""
        try:
            produce(cast(IO[Any], self))
            self._flush()
            self._send(None)
        except BrokenPipeError:
            # Nobody is there to be told.
            return
        except Exception as error:  # noqa: BLE001 - it is raised where the stream is read
            self._send_last(error)

    async def read(self) -> bytes | None:
        """The next chunk, None at the end; or what went wrong is raised."""
        found = await self._queue.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """Let the writer go: what it writes from now on breaks."""
        self._closed = True
        while not self._queue.empty():
            self._queue.get_nowait()

    def _flush(self) -> None:
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces, self._size = [], 0
            self._send(data)

    def _send(self, item: bytes | BaseException | None) -> None:
        if self._closed:
            raise BrokenPipeError
        asyncio.run_coroutine_threadsafe(self._queue.put(item), self._loop).result()

    def _send_last(self, error: BaseException) -> None:
        if not self._closed:
            asyncio.run_coroutine_threadsafe(self._queue.put(error), self._loop).result()


class Streams:
    """The threads that write streams, so many at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="omnigraph-stream")
        self._lock = threading.Lock()
        self._running = 0

    async def begin(self, produce: Callable[[IO[Any]], object], media_type: str) -> PipedResponse:
        """Start to write, and answer once the first chunk is there: what fails before is an ordinary failure."""
        with self._lock:
            if self._running >= self._most:
                raise ResourceLimit(
                    f"{self._most} exports are running already",
                    details={
                        "resource": SLOTS,
                        "limit": self._most,
                        "actual": self._running + 1,
                    },
                )
            self._running += 1
        pipe = Pipe()
        self._pool.submit(propagate_context(self._fill), pipe, produce)
        try:
            first = await pipe.read()
        except BaseException:
            pipe.close()
            raise
        return PipedResponse(pipe, first, media_type)

    def close(self) -> None:
        """Wait for nobody."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _fill(self, pipe: Pipe, produce: Callable[[IO[Any]], object]) -> None:
        try:
            pipe.fill(produce)
        finally:
            with self._lock:
                self._running -= 1


class PipedResponse(StreamingResponse):
    """The rest of a pipe. When the client leaves, the writer is let go."""

    def __init__(self, pipe: Pipe, first: bytes | None, media_type: str) -> None:
        super().__init__(_chunks(pipe, first), media_type=media_type)
        self._pipe = pipe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pipe.close()


async def _chunks(pipe: Pipe, first: bytes | None) -> AsyncIterator[bytes]:
    found = first
    while found is not None:
        yield found
        found = await pipe.read()

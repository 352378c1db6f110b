"""A Blob value as a file for coroutines."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from omnigraph.aio.call_threads import CallThreads
    from omnigraph.api.results.blobs import Blob, BlobInfo


class AsyncBlob:
    """The methods of `Blob`. Those that read bytes are coroutines. Calls must not overlap.

    >>> import asyncio
    >>> import omnigraph as og
    >>> async def head() -> bytes:
    ...     async with og.aio.init("memory://docs-aio-blob", "node Photo { name: String @key  data: Blob }") as g:
    ...         await g.load({"Photo": [{"name": "a", "data": b"hello world"}]})
    ...         async with await g.blob("Photo", "a", "data") as blob:
    ...             return await blob.read(5)
    >>> asyncio.run(head())
    b'hello'
    """

    def __init__(self, blob: Blob, threads: CallThreads) -> None:
        self._blob = blob
        self._threads = threads

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Async{self._blob!r}"

    @property
    def info(self) -> BlobInfo:
        """The metadata of the value."""
        return self._blob.info

    @property
    def size(self) -> int | None:
        """The number of bytes; None for an external value."""
        return self._blob.size

    @property
    def etag(self) -> str | None:
        """The entity tag of a managed value."""
        return self._blob.etag

    @property
    def uri(self) -> str | None:
        """The address of an external value; None for a managed value."""
        return self._blob.uri

    async def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes from the position on, or all remaining bytes."""
        return await self._threads.read(lambda: self._blob.read(size))

    async def read_range(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to, but not including, `end`. See `Blob.read_range`."""
        return await self._threads.read(lambda: self._blob.read_range(start, end))

    async def chunks(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes of a range in chunks of at most 1 MiB."""
        chunks = self._blob.chunks(start, end)
        while (chunk := await self._threads.read(lambda: next(chunks, b""))) != b"":
            yield chunk

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position, and return it."""
        return self._blob.seek(offset, whence)

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._blob.tell()

    def close(self) -> None:
        """Release the value. Later reads raise `ValueError`. Idempotent."""
        self._blob.close()

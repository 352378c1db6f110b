"""The thread pools that run the calls of an async handle."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

_READERS = 16
# The writes of a branch are serialized at the end. More concurrent writes would only be prepared more often.
_WRITERS = 4


class CallThreads:
    """A pool for reads and a pool for writes. Threads start on demand."""

    def __init__(self) -> None:
        self._closed = False
        self._start_pools()

    def _start_pools(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._readers = ThreadPoolExecutor(_READERS, "omnigraph-read")
        self._writers = ThreadPoolExecutor(_WRITERS, "omnigraph-write")
        self._process = os.getpid()

    def close(self) -> None:
        """Wait for all running calls and refuse new ones."""
        self._closed = True
        if self._process == os.getpid():
            for pool in (self._writers, self._readers):
                pool.shutdown(wait=True)

    async def read(self, call: Callable[[], T], *, await_if_cancelled: bool = False) -> T:
        """Run a read and return its result.

        If it is cancelled after it has started, it continues in the background and its result is dropped. A read
        that writes files sets `await_if_cancelled`, and then it is awaited like a write.
        """
        import asyncio

        job = self._submit(call, writes=False)
        return await (_await_to_end(job) if await_if_cancelled else asyncio.wrap_future(job))

    async def write(self, call: Callable[[], T]) -> T:
        """Run a write and return its result. If it is cancelled after it has started, it is awaited first."""
        return await _await_to_end(self._submit(call, writes=True))

    def _submit(self, call: Callable[[], T], *, writes: bool) -> Future[T]:
        if self._closed:
            raise InvalidInput("the graph is closed", hint="open it again")
        if self._process != os.getpid():
            # Threads do not survive a fork, so the child needs pools of its own.
            self._start_pools()
        return (self._writers if writes else self._readers).submit(copy_context().run, call)


async def _await_to_end(job: Future[T]) -> T:
    """Return the result of a job. Raise a cancellation when the job has ended, at once if it has not started."""
    import asyncio

    future = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError as cancellation:
        if job.cancel():
            raise
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                # A second cancellation changes nothing: the job is still awaited.
                continue
        raise cancellation from future.exception()

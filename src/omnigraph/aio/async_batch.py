"""A batch of changes that is committed by a coroutine."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.aio.call_threads import CallThreads
    from omnigraph.api.interface.batches import Batch


class AsyncBatch:
    """An async context manager around a `Batch`. It commits at its end, unless there was an exception."""

    def __init__(self, batch: Batch, threads: CallThreads) -> None:
        self._batch = batch
        self._threads = threads

    async def __aenter__(self) -> Batch:
        return self._batch

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._threads.write(lambda: self._batch.__exit__(kind, error, trace))

"""The part of the async handles that is not generated: threads, closing and pickling."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from omnigraph.aio.call_threads import CallThreads

if TYPE_CHECKING:
    from omnigraph.aio.async_batch import AsyncBatch
    from omnigraph.aio.async_blob import AsyncBlob
    from omnigraph.api.graph import Graph
    from omnigraph.api.results.commits import At


class AsyncHandle:
    """A graph handle and the threads that run its calls.

    It can be shared between tasks and event loops, and pickles to its address.
    """

    def __init__(self, graph: Graph, threads: CallThreads | None = None) -> None:
        self._graph = graph
        self._threads = CallThreads() if threads is None else threads
        self._is_view = threads is not None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._graph,)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._graph.uri!r})"

    def acting_as(self, actor: str | None) -> Self:
        """Return a handle for another actor that shares the resources of this handle. Not a coroutine.

        See `Graph.acting_as`.
        """
        return type(self)(self._graph.acting_as(actor), self._threads)

    async def blob(
        self,
        type_name: str,
        id: str | int,  # noqa: A002 - the name is part of the API
        property: str,  # noqa: A002 - the name is part of the API
        *,
        branch: str = "main",
        at: At = None,
    ) -> AsyncBlob:
        """Open a Blob value as a read-only file whose reads are coroutines.

        See `Graph.blob`.
        """
        from omnigraph.aio.async_blob import AsyncBlob

        blob = await self._threads.read(
            lambda: self._graph.blob(type_name, id, property, branch=branch, at=at)
        )
        return AsyncBlob(blob, self._threads)

    def batch(self, **arguments: Any) -> AsyncBatch:
        """Return an async context in which rows of many types are changed and committed once. Not a coroutine.

        See `Graph.batch` for the arguments; the context yields the same `Batch`.
        """
        from omnigraph.aio.async_batch import AsyncBatch

        return AsyncBatch(self._graph.batch(**arguments), self._threads)

    async def close(self) -> None:
        """Wait for the running calls and release threads and connections. Later calls raise `InvalidInput`."""
        import asyncio

        if self._is_view:
            return
        await asyncio.to_thread(self._threads.close)
        self._graph.close()

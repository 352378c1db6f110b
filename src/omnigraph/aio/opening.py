"""The awaitable context manager that `init`, `open` and `connect` return."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.aio.async_handle import AsyncHandle
from omnigraph.aio.call_threads import CallThreads

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph

G = TypeVar("G", bound="Graph")
A = TypeVar("A", bound=AsyncHandle)


class Opening(Coroutine[Any, Any, A]):
    """A graph that is being opened. ``await`` returns the handle; ``async with`` also closes it."""

    def __init__(self, open_graph: Callable[[], G], wrap: Callable[[G], A]) -> None:
        self._coroutine = _open(open_graph, wrap)
        self._handle: A | None = None

    def __await__(self) -> Generator[Any, Any, A]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Resume the coroutine. Event loops call it."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Resume the coroutine with an exception. Event loops call it."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Close the coroutine. Event loops call it."""
        self._coroutine.close()

    async def __aenter__(self) -> A:
        self._handle = await self
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            await self._handle.close()


async def _open(open_graph: Callable[[], G], wrap: Callable[[G], A]) -> A:
    threads = CallThreads()
    try:
        return wrap(await threads.write(open_graph))
    finally:
        threads.close()

"""The async twin of a graph that a server has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.aio import AsyncGraph
from omnigraph.api.commits import At
from omnigraph.api.receipts import Receipt
from omnigraph.api.result import Result
from omnigraph.client.graph import RemoteGraph

if TYPE_CHECKING:
    from omnigraph.aio import _Threads
    from omnigraph.client.stored_query_calls import QueryEntry


class AsyncRemoteGraph(AsyncGraph):
    """A handle for coroutines on a graph that a server has; each method does what the one of `RemoteGraph` does."""

    def __init__(self, graph: RemoteGraph, threads: _Threads | None = None) -> None:
        super().__init__(graph, threads)
        self._remote = graph

    def acting_as(self, actor: str | None) -> AsyncRemoteGraph:
        """The same handle for the same actor; see `RemoteGraph.acting_as`. Nothing to wait for."""
        return AsyncRemoteGraph(self._remote.acting_as(actor), self._threads)

    async def queries(self) -> list[QueryEntry]:
        """The queries that the server keeps for this graph; see `RemoteGraph.queries`."""
        return await self._threads.read(lambda: self._remote.queries())

    async def invoke(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str = "main",
        at: At = None,
        if_commit: str | None = None,
        expect_mutation: bool | None = None,
    ) -> Result | Receipt:
        """Run a stored query; see `RemoteGraph.invoke`. It may write, so a cancelled one is waited for."""
        return await self._threads.write(
            lambda: self._remote.invoke(
                name, params, branch=branch, at=at, if_commit=if_commit, expect_mutation=expect_mutation
            )
        )

"""The async twin of the API: the same calls with the same results, each a coroutine.

>>> import asyncio
>>> import omnigraph as og
>>> async def tell() -> list[str]:
...     async with og.aio.init("memory://docs-aio", schema="node City { name: String @key }") as g:
...         await g.mutate('query add() { insert City { name: "Bern" } }')
...         return [commit.operation for commit in await g.commits()]
>>> asyncio.run(tell())
['mutate', 'init']

Calls run in threads of the handle, reads and writes each in threads of their own, so that reads never queue behind
writes. Functions that are passed in, such as `progress`, are called from there.

Cancelling a call stops it when it has not begun. A read that has begun is left to itself and its rows are dropped.
A write that has begun is waited for, and only then does the cancellation go on: whoever catches it finds the commit
complete or knows that there will be none. Where it failed, the error is the cause of the cancellation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from omnigraph.aio_changes import AsyncChangeReads
from omnigraph.aio_schemas import AsyncSchemaView
from omnigraph.api import entry
from omnigraph.api.access import Address, Policy
from omnigraph.api.branches import Branch, Branches
from omnigraph.api.commits import At, Commit
from omnigraph.api.exports import ExportFormat, ExportTarget
from omnigraph.api.graph import Graph
from omnigraph.api.loads import LoadReceipt
from omnigraph.api.maintenance_reports import Index, Optimized, Recovery, Repair
from omnigraph.api.merges import Merged, Resolve
from omnigraph.api.receipts import Receipt
from omnigraph.api.result import Result
from omnigraph.client.entry import PATIENCE
from omnigraph.engine.engine_choice import Engine
from omnigraph.errors import InvalidInput
from omnigraph.graph.progress import Progress
from omnigraph.load.load_request import Rejects
from omnigraph.rules.load_mode import LoadMode

if TYPE_CHECKING:
    from concurrent.futures import Future

    from omnigraph.aio_client import AsyncRemoteGraph
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.search.embedding import Embedder

__all__ = ["AsyncBranches", "AsyncGraph", "AsyncSchemaView", "Opening", "connect", "init", "open"]

T = TypeVar("T")
G = TypeVar("G", bound=Graph)
A = TypeVar("A", bound="AsyncGraph")

_READERS = 16
# Writers of one branch take turns in the end; more of them at once would only prepare their work more often.
_WRITERS = 4


def init(
    uri: Address,
    schema: str | Path,
    *,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    durability: Literal["full", "os"] = "full",
    cache_bytes: int | None = None,
    embedder: Embedder | None = None,
    policy: Policy | None = None,
    graph_id: str | None = None,
) -> Opening[AsyncGraph]:
    """Make a new graph, as `omnigraph.init` does; await it, or use it with ``async with``."""
    return Opening(
        lambda: entry.init(
            uri,
            schema,
            actor=actor,
            storage_options=storage_options,
            durability=durability,
            cache_bytes=cache_bytes,
            embedder=embedder,
            policy=policy,
            graph_id=graph_id,
        ),
        AsyncGraph,
    )


def open(  # noqa: A001 - the name is part of the API
    uri: Address,
    mode: Literal["rw", "r"] = "rw",
    *,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    durability: Literal["full", "os"] = "full",
    cache_bytes: int | None = None,
    embedder: Embedder | None = None,
    policy: Policy | None = None,
    graph_id: str | None = None,
) -> Opening[AsyncGraph]:
    """Open a graph, as `omnigraph.open` does; await it, or use it with ``async with``."""
    return Opening(
        lambda: entry.open(
            uri,
            mode,
            actor=actor,
            storage_options=storage_options,
            durability=durability,
            cache_bytes=cache_bytes,
            embedder=embedder,
            policy=policy,
            graph_id=graph_id,
        ),
        AsyncGraph,
    )


def connect(
    url: str,
    graph: str,
    *,
    token: str | None = None,
    timeout: float | None = PATIENCE,
    storage_options: Mapping[str, str] | None = None,
) -> Opening[AsyncRemoteGraph]:
    """Connect to a server, as `omnigraph.connect` does; await it, or use it with ``async with``."""
    from omnigraph.aio_client import AsyncRemoteGraph
    from omnigraph.client.entry import connect

    return Opening(
        lambda: connect(url, graph, token=token, timeout=timeout, storage_options=storage_options),
        AsyncRemoteGraph,
    )


class AsyncGraph(AsyncChangeReads):
    """A handle on a graph for coroutines; each method does what the one of `Graph` does.

    It may be shared between tasks and event loops, and pickles to its address.
    """

    def __init__(self, graph: Graph, threads: _Threads | None = None) -> None:
        super().__init__(graph, _Threads() if threads is None else threads)
        self._graph = graph
        self._is_view = threads is not None
        self.branches = AsyncBranches(graph.branches, self._threads)
        self.schema = AsyncSchemaView(graph.schema, self._threads)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._graph,)

    async def __aenter__(self) -> AsyncGraph:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    @property
    def uri(self) -> str:
        """The graph's address in its one normal form."""
        return self._graph.uri

    @property
    def actor(self) -> str | None:
        """Whom the handle acts for."""
        return self._graph.actor

    def acting_as(self, actor: str | None) -> AsyncGraph:
        """The same handle for another actor, with the same threads; see `Graph.acting_as`. Nothing to wait for."""
        return AsyncGraph(self._graph.acting_as(actor), self._threads)

    async def close(self) -> None:
        """Wait for the calls that were made, and let go of threads. Calls after this are refused."""
        import asyncio

        if self._is_view:
            return
        await asyncio.to_thread(self._threads.close)
        self._graph.close()

    # --- reading -----------------------------------------------------------------------------------------

    async def query(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
        engine: Engine = "auto",
        spark: Any = None,
    ) -> Result:
        """Run a read on one consistent state; see `Graph.query`."""
        return await self._threads.read(
            lambda: self._graph.query(
                source, params, name=name, branch=branch, at=at, engine=engine, spark=spark
            )
        )

    async def dataframe(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
        spark: Any = None,
    ) -> Any:
        """The rows of a read as a DataFrame of Spark; see `Graph.dataframe`."""
        return await self._threads.read(
            lambda: self._graph.dataframe(source, params, name=name, branch=branch, at=at, spark=spark)
        )

    async def explain(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        at: At = None,
    ) -> str:
        """How a read would be run; see `Graph.explain`."""
        return await self._threads.read(
            lambda: self._graph.explain(source, params, name=name, branch=branch, at=at)
        )

    async def get(
        self,
        type_name: str,
        id: str | int,  # noqa: A002 - the name is part of the API
        *,
        branch: str = "main",
        at: At = None,
    ) -> dict[str, Any] | None:
        """One node or edge by its id, or None; see `Graph.get`."""
        return await self._threads.read(lambda: self._graph.get(type_name, id, branch=branch, at=at))

    async def export(
        self,
        target: ExportTarget,
        *,
        branch: str = "main",
        at: At = None,
        types: Sequence[str] | None = None,
        progress: Progress | None = None,
        format: ExportFormat = "ndjson",  # noqa: A002 - the name is part of the API
        engine: Engine = "auto",
        spark: Any = None,
        overwrite: bool = False,
    ) -> int:
        """Write a state to files; see `Graph.export`. Cancelled, it is waited for as writes are."""
        return await self._threads.read(
            lambda: self._graph.export(
                target,
                branch=branch,
                at=at,
                types=types,
                progress=progress,
                format=format,
                engine=engine,
                spark=spark,
                overwrite=overwrite,
            ),
            whole=True,
        )

    # --- writing -----------------------------------------------------------------------------------------

    async def mutate(
        self,
        source: str | Path,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str = "main",
        message: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        actor: str | None = None,
    ) -> Receipt:
        """Run a mutation query as one commit; see `Graph.mutate`."""
        return await self._threads.write(
            lambda: self._graph.mutate(
                source,
                params,
                name=name,
                branch=branch,
                message=message,
                if_commit=if_commit,
                idempotency_key=idempotency_key,
                actor=actor,
            )
        )

    async def load(
        self,
        source: Any = None,
        mode: LoadMode = "append",
        *,
        branch: str = "main",
        create_from: str | None = None,
        engine: Engine = "auto",
        rejects: Rejects | None = None,
        permissive: bool = False,
        message: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
        spark: Any = None,
        dry_run: bool = False,
        mapping: str | Path | Mapping[str, Any] | None = None,
    ) -> LoadReceipt:
        """Load many records as one commit; see `Graph.load`. The source is read in a thread."""
        return await self._threads.write(
            lambda: self._graph.load(
                source,
                mode,
                branch=branch,
                create_from=create_from,
                engine=engine,
                rejects=rejects,
                permissive=permissive,
                message=message,
                if_commit=if_commit,
                idempotency_key=idempotency_key,
                actor=actor,
                progress=progress,
                spark=spark,
                dry_run=dry_run,
                mapping=mapping,
            )
        )

    async def revert(
        self,
        commit_id: str | Commit,
        *,
        branch: str = "main",
        resolve: Resolve = None,
        dry_run: bool = False,
        message: str | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> Merged:
        """Undo one commit with a new one; see `Graph.revert`."""
        return await self._threads.write(
            lambda: self._graph.revert(
                commit_id,
                branch=branch,
                resolve=resolve,
                dry_run=dry_run,
                message=message,
                if_commit=if_commit,
                actor=actor,
                progress=progress,
            )
        )

    # --- history -----------------------------------------------------------------------------------------

    async def commits(
        self, branch: str = "main", limit: int | None = 50, actor: str | None = None
    ) -> list[Commit]:
        """A branch's history, newest first; see `Graph.commits`."""
        return await self._threads.read(lambda: self._graph.commits(branch, limit, actor))

    async def commit(self, id: str) -> Commit:  # noqa: A002 - the name is part of the API
        """A commit by its id."""
        return await self._threads.read(lambda: self._graph.commit(id))

    async def recoveries(self) -> list[Recovery]:
        """What became of bulk writes that were interrupted; see `Graph.recoveries`."""
        return await self._threads.read(lambda: self._graph.recoveries())

    async def snapshot(self, branch: str = "main", at: At = None) -> Snapshot:
        """The state of a branch, or of a commit or moment; see `Graph.snapshot`."""
        return await self._threads.read(lambda: self._graph.snapshot(branch, at))

    # --- maintenance -------------------------------------------------------------------------------------

    async def cleanup(
        self, keep: int | None = None, older_than: str | timedelta | None = None, confirm: bool = False
    ) -> dict[str, Any]:
        """Remove data that only old commits need; see `Graph.cleanup`."""
        return await self._threads.write(lambda: self._graph.cleanup(keep, older_than, confirm))

    async def optimize(
        self,
        *,
        branch: str = "main",
        engine: Engine = "auto",
        message: str | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
        spark: Any = None,
    ) -> Optimized:
        """Make a branch's types quick to read again, as one commit; see `Graph.optimize`."""
        return await self._threads.write(
            lambda: self._graph.optimize(
                branch=branch, engine=engine, message=message, actor=actor, progress=progress, spark=spark
            )
        )

    async def repair(self, confirm: bool = False) -> Repair:
        """Settle what interrupted bulk writes left behind; see `Graph.repair`."""
        return await self._threads.write(lambda: self._graph.repair(confirm))

    async def indexes(self, *, branch: str = "main", at: At = None) -> list[Index]:
        """The indexes, and how many rows each covers; see `Graph.indexes`."""
        return await self._threads.read(lambda: self._graph.indexes(branch=branch, at=at))


class AsyncBranches:
    """The branches of a graph, for coroutines."""

    def __init__(self, branches: Branches, threads: _Threads) -> None:
        self._branches = branches
        self._threads = threads

    async def list(self) -> list[str]:
        """Names of all branches, sorted."""
        return await self._threads.read(self._branches.list)

    async def create(
        self, name: str, source: str = "main", *, at: At = None, actor: str | None = None
    ) -> Branch:
        """Make a branch at another's head, or at a commit or moment."""
        return await self._threads.write(lambda: self._branches.create(name, source, at=at, actor=actor))

    async def delete(self, name: str) -> None:
        """Delete a branch; its name is free at once."""
        await self._threads.write(lambda: self._branches.delete(name))

    async def merge(
        self,
        source: str,
        into: str = "main",
        *,
        delete_source: bool = False,
        resolve: Resolve = None,
        dry_run: bool = False,
        message: str | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> Merged:
        """Bring what a branch did into another, as one commit; see `Branches.merge`."""
        return await self._threads.write(
            lambda: self._branches.merge(
                source,
                into,
                delete_source=delete_source,
                resolve=resolve,
                dry_run=dry_run,
                message=message,
                if_commit=if_commit,
                actor=actor,
                progress=progress,
            )
        )


class Opening(Coroutine[Any, Any, A]):
    """A graph that is being opened: await it for the handle, or let ``async with`` open and close it."""

    def __init__(self, open_graph: Callable[[], G], twin: Callable[[G], A]) -> None:
        self._coroutine = _open(open_graph, twin)
        self._graph: A | None = None

    def __await__(self) -> Generator[Any, Any, A]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Go on; for event loops."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an error; for event loops."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Give up; for event loops."""
        self._coroutine.close()

    async def __aenter__(self) -> A:
        self._graph = await self
        return self._graph

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._graph is not None:
            await self._graph.close()


async def _open(open_graph: Callable[[], G], twin: Callable[[G], A]) -> A:
    threads = _Threads()
    try:
        return twin(await threads.write(open_graph))
    finally:
        threads.close()


class _Threads:
    """The threads of a handle, made as they are needed."""

    def __init__(self) -> None:
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Begin without threads."""
        from concurrent.futures import ThreadPoolExecutor

        self._readers = ThreadPoolExecutor(_READERS, "omnigraph-read")
        self._writers = ThreadPoolExecutor(_WRITERS, "omnigraph-write")
        self._process = os.getpid()

    def close(self) -> None:
        """Let all calls finish, and take no more."""
        self._closed = True
        if self._process == os.getpid():
            for pool in (self._writers, self._readers):
                pool.shutdown(wait=True)

    async def read(self, call: Callable[[], T], *, whole: bool = False) -> T:
        """What a call gives; cancelled, it is left to itself unless it leaves something behind."""
        import asyncio

        job = self._submit(call, writes=False)
        return await (_see_through(job) if whole else asyncio.wrap_future(job))

    async def write(self, call: Callable[[], T]) -> T:
        """What a call gives; cancelled, it is waited for if it has begun."""
        return await _see_through(self._submit(call, writes=True))

    def _submit(self, call: Callable[[], T], *, writes: bool) -> Future[T]:
        if self._closed:
            raise InvalidInput("the graph is closed", hint="open it again")
        if self._process != os.getpid():
            # Threads do not survive a fork: in the child nobody would ever take the call.
            self._begin()
        return (self._writers if writes else self._readers).submit(copy_context().run, call)


async def _see_through(job: Future[T]) -> T:
    """What a job gives. A cancellation is passed on when the job has ended, at once if it never began."""
    import asyncio

    future = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError as stop:
        if job.cancel():
            raise
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                # Asked again: the first answer still holds.
                continue
        raise stop from future.exception()

"""The async API: the calls of the `omnigraph` module and of `Graph` as coroutines.

>>> import asyncio
>>> import omnigraph as og
>>> async def operations() -> list[str]:
...     async with og.aio.init("memory://docs-aio", schema="node City { name: String @key }") as g:
...         await g.mutate('query add() { insert City { name: "Bern" } }')
...         return [commit.operation for commit in await g.commits()]
>>> asyncio.run(operations())
['mutate', 'init']

Calls run in a thread pool of the handle. Reads and writes have separate pools, so reads never wait for writes.
Callbacks such as `progress` are called from these threads.

Cancelling a call that has not started drops it. A read that has started runs to its end and its result is
dropped. A write that has started is awaited before the cancellation is raised, so afterwards the commit is either
complete or will never exist. If the write failed, its error is the cause of the cancellation.

The classes `AsyncGraph`, `AsyncBranches`, `AsyncTags`, `AsyncSchemaView`, `AsyncEmbeddings` and `AsyncRemoteGraph`
are generated from the interfaces by ``make generate``.
"""

from omnigraph.aio.async_branches import AsyncBranches
from omnigraph.aio.async_embeddings import AsyncEmbeddings
from omnigraph.aio.async_graph import AsyncGraph
from omnigraph.aio.async_remote_graph import AsyncRemoteGraph
from omnigraph.aio.async_schema_view import AsyncSchemaView
from omnigraph.aio.async_tags import AsyncTags
from omnigraph.aio.entry import connect, init, open  # noqa: A004 - the name is part of the API
from omnigraph.aio.opening import Opening

__all__ = [
    "AsyncBranches",
    "AsyncEmbeddings",
    "AsyncGraph",
    "AsyncRemoteGraph",
    "AsyncSchemaView",
    "AsyncTags",
    "Opening",
    "connect",
    "init",
    "open",
]

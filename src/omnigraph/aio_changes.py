"""The async twin of the calls that tell changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.api.change_reads import ChangeReads
from omnigraph.api.changes import Diff, Kind, Op, State
from omnigraph.api.commits import Commit
from omnigraph.api.exports import ExportTarget

if TYPE_CHECKING:
    from omnigraph.aio import _Threads
    from omnigraph.changes.baseline import Baseline
    from omnigraph.changes.change_pages import ChangePage
    from omnigraph.changes.feed import FeedPage


class AsyncChangeReads:
    """What an `AsyncGraph` can tell of changes."""

    def __init__(self, graph: ChangeReads, threads: _Threads) -> None:
        self._changes_of = graph
        self._threads = threads

    async def diff(
        self,
        before: State,
        after: State,
        *,
        kinds: Sequence[Kind] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[Op] | None = None,
    ) -> Diff:
        """What is different between two states; see `Graph.diff`. Iterating reads in the caller's thread."""
        return await self._threads.read(
            lambda: self._changes_of.diff(before, after, kinds=kinds, types=types, ops=ops)
        )

    async def changes(
        self,
        commit_id: str | Commit,
        *,
        kinds: Sequence[Kind] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[Op] | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ChangePage:
        """What a commit changed, a page of it; see `Graph.changes`."""
        return await self._threads.read(
            lambda: self._changes_of.changes(
                commit_id, kinds=kinds, types=types, ops=ops, limit=limit, page_token=page_token
            )
        )

    async def feed(
        self,
        *,
        branch: str = "main",
        start: str = "now",
        cursor: str | None = None,
        page_token: str | None = None,
        limit: int | None = None,
        max_commits: int = 128,
        kinds: Sequence[Kind] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[Op] | None = None,
    ) -> FeedPage:
        """The changes of a branch, commit by commit; see `Graph.feed`."""
        return await self._threads.read(
            lambda: self._changes_of.feed(
                branch=branch,
                start=start,
                cursor=cursor,
                page_token=page_token,
                limit=limit,
                max_commits=max_commits,
                kinds=kinds,
                types=types,
                ops=ops,
            )
        )

    async def baseline(
        self,
        target: ExportTarget,
        *,
        branch: str = "main",
        kinds: Sequence[Kind] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[Op] | None = None,
    ) -> Baseline:
        """Write a state and the cursor to go on from; see `Graph.baseline`. Cancelled, it is waited for."""
        return await self._threads.read(
            lambda: self._changes_of.baseline(target, branch=branch, kinds=kinds, types=types, ops=ops),
            whole=True,
        )

"""The calls of a graph that tell changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from omnigraph.api.baselines import write_baseline
from omnigraph.api.changes import ChangeFilter, Diff, Kind, Op, State, find_diff
from omnigraph.api.commits import Commit, id_of

if TYPE_CHECKING:
    from omnigraph.api.access import Guard
    from omnigraph.changes.baseline import Baseline
    from omnigraph.changes.change_pages import ChangePage
    from omnigraph.changes.feed import FeedPage
    from omnigraph.engine.memory.memory_cache import Cache
    from omnigraph.graph.repository import Repository


class ChangeReads:
    """What a `Graph` can tell of changes: between states, of a commit, along a branch, and where to begin."""

    def __init__(self, repository: Repository, guard: Guard, cache: Cache) -> None:
        self._repository = repository
        self._guard = guard
        self._cache = cache

    def diff(
        self,
        before: State,
        after: State,
        *,
        kinds: Sequence[Kind] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[Op] | None = None,
    ) -> Diff:
        """What is different between two states, each a branch, a commit, a moment on main or a snapshot.

        Iterating over it reads the changes in order, however many there are; ``stats()`` counts them.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-diff", schema="node City { name: String @key  mayor: String? }")
        >>> _ = g.load({"City": [{"name": "Bern"}, {"name": "Rome"}]})
        >>> _ = g.branches.create("trial")
        >>> _ = g.load({"City": [{"name": "Bern", "mayor": "Ana"}]}, mode="merge", branch="trial")
        >>> [(change.op, change.id, change.changed) for change in g.diff("main", "trial")]
        [('update', 'Bern', ('mayor',))]
        """
        wanted = ChangeFilter.of(kinds, types, ops)
        first, _ = self._guard.admit_state("read", before)
        second, branch = self._guard.admit_state("read", after)
        return replace(find_diff(self._repository, first, second, wanted), branch=branch)

    def changes(
        self,
        commit_id: str | Commit,
        *,
        kinds: Sequence[Kind] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[Op] | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ChangePage:
        """What a commit changed against its first parent: a page, and the token of the next if there is one.

        The first commit of a graph, and one that changed the properties of a type, are a `Conflict`; a commit
        whose data cleanup has taken is a `ChangeFeedGap`.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-changes", schema="node City { name: String @key }")
        >>> done = g.load({"City": [{"name": "Bern"}]})
        >>> [(change.op, change.after) for change in g.changes(done.commit.id)]
        [('insert', {'properties': {'name': 'Bern'}})]
        """
        from omnigraph.changes.change_pages import read_commit_page

        id_ = id_of(commit_id)
        self._guard.admit_commit("read", id_)
        wanted = ChangeFilter.of(kinds, types, ops)
        return read_commit_page(self._repository, self._cache, id_, wanted, limit, page_token)

    def feed(
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
        """The changes of a branch, commit by commit, oldest first, from where the caller stands.

        It stands at a `cursor`, which the last page of a poll gives, or begins at `start`: ``now``, ``beginning``
        or ``after:`` a commit. A page that ends within a commit has a token for the rest instead. Every commit is
        told at least once; the graph keeps nothing of its readers.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-feed", schema="node City { name: String @key }")
        >>> cursor = g.feed().cursor
        >>> _ = g.load({"City": [{"name": "Bern"}]})
        >>> page = g.feed(cursor=cursor)
        >>> [[change.id for change in block.changes] for block in page], page.caught_up
        ([['Bern']], True)
        """
        from omnigraph.changes.feed import FeedRequest, begin_poll

        self._guard.admit("read", branch)
        wanted = ChangeFilter.of(kinds, types, ops)
        request = FeedRequest(branch, start, cursor, page_token, max_commits, wanted)
        return begin_poll(self._repository, request).read_page(limit, self._cache)

    def baseline(
        self,
        target: str | Path | IO[str],
        *,
        branch: str = "main",
        kinds: Sequence[Kind] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[Op] | None = None,
    ) -> Baseline:
        """Write a branch's newest state as records, and last the cursor from which its changes go on.

        Without the last record the rest is worth nothing; a file appears only when it is complete. `ops` count for
        the cursor alone.
        """
        self._guard.admit("export", branch)
        return write_baseline(self._repository, target, branch, ChangeFilter.of(kinds, types, ops))

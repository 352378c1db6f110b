"""The methods of `Graph` that read changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.api.files.export_files import ExportTarget
from omnigraph.api.results.changes import ChangeFilter, Diff, Kind, Op, State
from omnigraph.api.results.commits import Commit, commit_id_of

if TYPE_CHECKING:
    from omnigraph.changes.baseline import Baseline
    from omnigraph.changes.change_pages import ChangePage
    from omnigraph.changes.feed import FeedPage, FeedRequest


class ChangeReads(ABC):
    """Diffs between states, the changes of a commit, the change feed of a branch, and baselines."""

    def diff(
        self,
        before: State,
        after: State,
        *,
        kinds: Sequence[Kind] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[Op] | None = None,
    ) -> Diff:
        """Return the changes between two states.

        Each state is a branch, a commit, a snapshot, or a time on main. Iterating over the result reads the changes
        in order and in bounded memory; ``stats()`` counts them.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-diff", schema="node City { name: String @key  mayor: String? }")
        >>> _ = g.load({"City": [{"name": "Bern"}, {"name": "Rome"}]})
        >>> _ = g.branches.create("trial")
        >>> _ = g.load({"City": [{"name": "Bern", "mayor": "Ana"}]}, mode="merge", branch="trial")
        >>> [(change.op, change.id, change.changed) for change in g.diff("main", "trial")]
        [('update', 'Bern', ('mayor',))]
        """
        return self._diff(before, after, ChangeFilter.of(kinds, types, ops))

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
        """Return a page of the changes of a commit against its first parent, and the token of the next page.

        Raises `Conflict` for the first commit of a graph and for a commit that changed the properties of a type,
        and `ChangeFeedGap` for a commit whose data garbage collection has removed.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-changes", schema="node City { name: String @key }")
        >>> receipt = g.load({"City": [{"name": "Bern"}]})
        >>> [(change.op, change.after) for change in g.changes(receipt.commit.id)]
        [('insert', {'properties': {'name': 'Bern'}})]
        """
        change_filter = ChangeFilter.of(kinds, types, ops)
        return self._changes(commit_id_of(commit_id), change_filter, limit, page_token)

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
        """Return a page of the changes of a branch, commit by commit, oldest first.

        `cursor` continues after an earlier poll; the last page of a poll has the next cursor. Without a cursor
        the feed begins at `start`: ``now``, ``beginning`` or ``after:<commit id>``. A page that ends within a
        commit has a token for the rest instead of a cursor. Every commit is delivered at least once. The graph
        stores no state of its readers.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-feed", schema="node City { name: String @key }")
        >>> cursor = g.feed().cursor
        >>> _ = g.load({"City": [{"name": "Bern"}]})
        >>> page = g.feed(cursor=cursor)
        >>> [[change.id for change in block.changes] for block in page], page.caught_up
        ([['Bern']], True)
        """
        from omnigraph.changes.feed import FeedRequest

        change_filter = ChangeFilter.of(kinds, types, ops)
        request = FeedRequest(branch, start, cursor, page_token, max_commits, change_filter)
        return self._feed(request, limit)

    def baseline(
        self,
        target: ExportTarget,
        *,
        branch: str = "main",
        kinds: Sequence[Kind] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[Op] | None = None,
    ) -> Baseline:
        """Write the head of a branch as records, followed by the cursor from which the change feed continues.

        A file appears only when it is complete. A stream without the last record is incomplete. `ops` applies to
        the cursor only.
        """
        return self._baseline(target, branch, ChangeFilter.of(kinds, types, ops))

    @abstractmethod
    def _diff(self, before: State, after: State, change_filter: ChangeFilter) -> Diff: ...

    @abstractmethod
    def _changes(
        self, commit_id: str, change_filter: ChangeFilter, limit: int | None, page_token: str | None
    ) -> ChangePage: ...

    @abstractmethod
    def _feed(self, request: FeedRequest, limit: int | None) -> FeedPage: ...

    @abstractmethod
    def _baseline(self, target: ExportTarget, branch: str, change_filter: ChangeFilter) -> Baseline: ...

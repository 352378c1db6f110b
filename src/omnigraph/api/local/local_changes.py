"""The changes of a local graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from omnigraph.api.files.baseline_files import write_lines
from omnigraph.api.files.export_files import ExportTarget
from omnigraph.api.interface.change_reads import ChangeReads
from omnigraph.api.results.changes import ChangeFilter, Diff, EntityChange, State
from omnigraph.api.results.receipts import by_type_name

if TYPE_CHECKING:
    from omnigraph.api.local.authorizer import Authorizer
    from omnigraph.changes.baseline import Baseline
    from omnigraph.changes.change_pages import ChangePage
    from omnigraph.changes.diff import TypeDiff
    from omnigraph.changes.feed import FeedPage, FeedRequest
    from omnigraph.engine.memory.memory_cache import Cache
    from omnigraph.graph.repository import Repository


class LocalChangeReads(ChangeReads):
    """`ChangeReads` over a repository."""

    def __init__(self, repository: Repository, authorizer: Authorizer, cache: Cache) -> None:
        self._repository = repository
        self._authorizer = authorizer
        self._cache = cache

    def _diff(self, before: State, after: State, change_filter: ChangeFilter) -> Diff:
        first, _ = self._authorizer.authorize_state("read", before)
        second, branch = self._authorizer.authorize_state("read", after)
        change_filter.check_types(
            table.name for state in (first, second) for table in state.catalog.tables.values()
        )
        return LocalDiff(first, second, change_filter, branch)

    def _changes(
        self, commit_id: str, change_filter: ChangeFilter, limit: int | None, page_token: str | None
    ) -> ChangePage:
        from omnigraph.changes.change_pages import read_commit_page

        commit_id = self._authorizer.authorize_commit_id("read", commit_id)
        return read_commit_page(self._repository, self._cache, commit_id, change_filter, limit, page_token)

    def _feed(self, request: FeedRequest, limit: int | None) -> FeedPage:
        from omnigraph.changes.feed import begin_poll

        authorizer = self._authorizer
        authorizer.authorize("read", request.branch)
        poll = begin_poll(self._repository, request, partial(authorizer.authorize_commit, "read"))
        return poll.read_page(limit, self._cache)

    def _baseline(self, target: ExportTarget, branch: str, change_filter: ChangeFilter) -> Baseline:
        from omnigraph.changes.baseline import begin_baseline

        self._authorizer.authorize("export", branch)
        baseline, lines = begin_baseline(self._repository, branch, change_filter)
        write_lines(target, lines, self._repository.objects.options)
        return baseline


@dataclass(frozen=True, repr=False)
class LocalDiff(Diff):
    """A `Diff` that reads both states from storage."""

    def __iter__(self) -> Iterator[EntityChange]:
        from omnigraph.changes.diff import reading_both, stream_changes

        with reading_both(self.before, self.after):
            yield from stream_changes(self._types(), self.change_filter)

    def stats(self) -> dict[str, Mapping[str, int]]:
        from omnigraph.changes.diff import reading_both

        with reading_both(self.before, self.after):
            counts = {diff.table.key: diff.count(self.change_filter.ops) for diff in self._types()}
        return by_type_name({key: counted for key, counted in counts.items() if any(counted.values())})

    def _types(self) -> list[TypeDiff]:
        from omnigraph.changes.diff import compare_states, require_stored

        diffs = compare_states(self.before, self.after, self.change_filter)
        require_stored(diffs)
        return diffs

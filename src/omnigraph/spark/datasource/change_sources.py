"""Sources of changes for Spark: a branch's change feed as a stream, and the difference between two states.

Planning reads commits and table versions, but no rows. Reading a partition opens only these versions. An offset
of a stream is a cursor of the change feed in clear text, because Spark stores and shows it in its checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa

from omnigraph.changes.change_pages import token_scope
from omnigraph.changes.change_records import ChangeFilter
from omnigraph.changes.commit_diff import change_feed_gap, states_of
from omnigraph.changes.cursors import Token, TokenScope, rejected
from omnigraph.changes.diff import reading_both
from omnigraph.changes.diff_shares import Share, bundle_shares, plan_shares
from omnigraph.changes.feed import FeedRequest, begin_poll
from omnigraph.changes.states import find_states
from omnigraph.errors import ChangeFeedGap, Conflict, NotFound
from omnigraph.graph.history import first_parents, get_commit
from omnigraph.graph.repository import Repository
from omnigraph.spark.datasource.change_options import ChangeSelection, DiffOptions, FeedOptions
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.location import Location
from omnigraph.store.manifest.records import CommitRecord
from omnigraph.store.tables.tables import Tables

Offset: TypeAlias = dict[str, str]
Partition: TypeAlias = tuple[Share, ...]

_INITIAL: Final = "begins"


def to_change_filter(selection: ChangeSelection) -> ChangeFilter:
    """Return the filter for a selection."""
    # `ChangeFilter` rejects unknown names.
    return ChangeFilter.of(cast(Any, selection.kinds), selection.types, cast(Any, selection.ops))


# --- difference --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DiffSource:
    """The difference between two commits. Can be pickled."""

    uri: str
    storage: Mapping[str, str] = field(repr=False)
    before: str
    after: str
    change_filter: ChangeFilter
    rows_per_partition: int

    def partitions(self) -> list[Partition]:
        """Return partitions that tasks read independently."""
        with closing(Repository.open(self.uri, mode="r", options=self.storage)) as repository:
            before, after = (
                repository.snapshot_of(repository.commit(id_)) for id_ in (self.before, self.after)
            )
            with reading_both(before, after):
                shares = list(plan_shares(before, after, self.change_filter, self.rows_per_partition))
        return bundle_shares(shares, self.rows_per_partition)

    def read(self, part: Partition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a partition in the columns of a schema."""
        tables = _tables(self.uri, self.storage)
        for share in part:
            yield from share.read(tables, schema)


def open_diff(options: DiffOptions) -> DiffSource:
    """Open the difference between two states, resolved to commits."""
    change_filter = to_change_filter(options.selection)
    with closing(Repository.open(options.uri, mode="r", options=options.storage)) as repository:
        states = find_states(repository, options.before, options.after, change_filter)
        before, after = states.before.commit_id, states.after.commit_id
    return DiffSource(options.uri, options.storage, before, after, change_filter, options.rows_per_partition)


# --- stream ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FeedSource:
    """The changes of a branch between offsets. Can be pickled before its first use.

    An offset is a dictionary of texts: the graph, the branch's incarnation, the filter, and the last commit that
    was read. An offset of another graph, branch or filter raises `InvalidInput`, as a cursor does.
    """

    options: FeedOptions

    def first(self) -> Offset:
        """Return the initial offset of the stream."""
        request = replace(self._request, start=self.options.start)
        poll = begin_poll(self._repository, request)
        offset = _offset(poll.scope, poll.position)
        # Until the first batch is complete, Spark requests the initial offset again after a restart, and `now`
        # would be later. It completes a batch, and stores the offset, only if the offset changes; the marker
        # makes it change.
        return {**offset, _INITIAL: "now"} if self.options.start == "now" else offset

    def newest(self) -> int:
        """Return the sequence number of the branch's newest commit."""
        return self._repository.head(self.options.branch).commit.sequence

    def next(self, start: Offset, last: int | None = None, *, everything: bool = False) -> Offset:
        """Return the end offset of the batch that starts at an offset: after the commits of one poll, or of all
        polls.

        Commits with a sequence number above `last` are left for later. The batch ends before a commit whose
        changes cannot be computed. Raises `Conflict` or `ChangeFeedGap` if this is its first commit.
        """
        if _INITIAL in start:
            return {name: value for name, value in start.items() if name != _INITIAL}
        place = start
        with _restart_hints():
            while True:
                try:
                    place, before = self._advance(place, last), place
                except (Conflict, ChangeFeedGap):
                    if place == start:
                        raise
                    return place
                if not everything or place == before:
                    return place

    def partitions(self, start: Offset, end: Offset) -> list[Partition]:
        """Return the changes between two offsets in partitions that tasks read independently."""
        if _INITIAL in start:
            return []
        shares: list[Share] = []
        with _restart_hints():
            for commit in self._commits_between(start, end):
                try:
                    before, after = states_of(self._repository, commit)
                    shares += plan_shares(before, after, self._change_filter, self.options.rows_per_partition)
                except NotFound as error:
                    raise change_feed_gap(commit) from error
        return bundle_shares(shares, self.options.rows_per_partition)

    def read(self, part: Partition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a partition in the columns of a schema."""
        tables = _tables(self.options.uri, self.options.storage)
        with _restart_hints():
            for share in part:
                try:
                    yield from share.read(tables, schema)
                except NotFound as error:
                    raise change_feed_gap(share.commit) from error

    def close(self) -> None:
        """Close the graph."""
        if "_repository" in self.__dict__:
            self._repository.close()

    @cached_property
    def _repository(self) -> Repository:
        return Repository.open(self.options.uri, mode="r", options=self.options.storage)

    @cached_property
    def _change_filter(self) -> ChangeFilter:
        return to_change_filter(self.options.selection)

    @property
    def _request(self) -> FeedRequest:
        return FeedRequest(
            self.options.branch, max_commits=self.options.max_commits, change_filter=self._change_filter
        )

    def _advance(self, start: Offset, last: int | None) -> Offset:
        """Return the offset after the readable commits of one poll."""
        poll = begin_poll(self._repository, replace(self._request, cursor=_token(start).encode()))
        if last is not None:
            poll = replace(poll, commits=tuple(commit for commit in poll.commits if commit.sequence <= last))
        readable = poll.readable_commits()
        return _offset(poll.scope, readable[-1].id if readable else poll.position)

    def _commits_between(self, start: Offset, end: Offset) -> list[CommitRecord]:
        """Return the commits after one offset up to another, oldest first."""
        repository = self._repository
        head = repository.head(self.options.branch)
        scope = token_scope(repository, self._change_filter, head.incarnation)
        after, last = (Token.decode(_token(place).encode(), "cursor", scope).commit for place in (start, end))
        view = repository.manifest.view
        commits: list[CommitRecord] = []
        for commit in first_parents(repository.manifest, view, get_commit(repository.manifest, view, last)):
            if commit.id == after:
                return commits[::-1]
            commits.append(commit)
        raise rejected(f"commit '{after}' is not in the history of commit '{last}'")


def _offset(scope: TokenScope, commit: str) -> Offset:
    return {"graph": scope.graph, "branch": scope.branch, "filter": scope.filter, "commit": commit}


def _token(offset: Offset) -> Token:
    try:
        scope = TokenScope(offset["graph"], offset["branch"], offset["filter"])
        return Token("cursor", scope, offset["commit"])
    except KeyError as error:
        raise rejected("it is not an offset of a change stream") from error


def _tables(uri: str, storage: Mapping[str, str]) -> Tables:
    return Tables(LanceRoot.at(Location.parse(uri), storage, "full"))


@contextmanager
def _restart_hints() -> Iterator[None]:
    """Raise errors that end a stream with a hint how to restart it. The checkpoint of Spark stays unchanged."""
    try:
        yield
    except ChangeFeedGap as error:
        hint = (
            "take a baseline, and start a new query with a new checkpoint and the option "
            "start 'after:' with its snapshot_commit_id"
        )
        raise ChangeFeedGap(error.message, details=error.details, hint=hint) from error
    except Conflict as error:
        commit_id = error.details["change_diff_refusal"]["graph_commit_id"]
        hint = f"start a new query with a new checkpoint and the option start 'after:{commit_id}'"
        raise Conflict(error.message, details=error.details, hint=hint) from error

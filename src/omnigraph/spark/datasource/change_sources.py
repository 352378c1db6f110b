"""What Spark reads changes from: the feed of a branch as a stream, and the difference of two states.

Who plans knows commits and the versions of tables, never rows; who reads a part opens these versions alone. A place
in a stream is a cursor of the feed, in the open: Spark keeps it in its checkpoint and shows it.
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
from omnigraph.spark.datasource.change_options import Choice, DiffOptions, FeedOptions
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.location import Location
from omnigraph.store.manifest.records import CommitRecord
from omnigraph.store.tables.tables import Tables

Offset: TypeAlias = dict[str, str]
SinkPart: TypeAlias = tuple[Share, ...]

_BEGINS: Final = "begins"


def wanted_changes(choice: Choice) -> ChangeFilter:
    """The filter that options ask for."""
    # Names that there are none of are refused there.
    return ChangeFilter.of(cast(Any, choice.kinds), choice.types, cast(Any, choice.ops))


# --- a difference ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DiffSource:
    """The difference of two commits; a value that can be pickled."""

    uri: str
    storage: Mapping[str, str] = field(repr=False)
    before: str
    after: str
    wanted: ChangeFilter
    rows_per_partition: int

    def partitions(self) -> list[SinkPart]:
        """Parts that are read apart from one another."""
        with closing(Repository.open(self.uri, mode="r", options=self.storage)) as repository:
            before, after = (
                repository.snapshot_of(repository.commit(id_)) for id_ in (self.before, self.after)
            )
            with reading_both(before, after):
                shares = list(plan_shares(before, after, self.wanted, self.rows_per_partition))
        return bundle_shares(shares, self.rows_per_partition)

    def read(self, part: SinkPart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The changes of a part in the columns of a schema."""
        tables = _tables(self.uri, self.storage)
        for share in part:
            yield from share.read(tables, schema)


def open_diff(options: DiffOptions) -> DiffSource:
    """The difference of the two states that the options name, resolved to commits."""
    wanted = wanted_changes(options.choice)
    with closing(Repository.open(options.uri, mode="r", options=options.storage)) as repository:
        states = find_states(repository, options.before, options.after, wanted)
        before, after = states.before.commit_id, states.after.commit_id
    return DiffSource(options.uri, options.storage, before, after, wanted, options.rows_per_partition)


# --- a stream ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FeedSource:
    """The changes of a branch between places in its history. It can be pickled until it is first asked for one.

    Places are dictionaries of texts: the graph, the branch's incarnation, the filter, and the commit up to which
    everything was told. One that was made for another graph, branch or filter is `InvalidInput`, as a cursor is.
    """

    options: FeedOptions

    def first(self) -> Offset:
        """Where the stream begins."""
        request = replace(self._request, start=self.options.start)
        poll = begin_poll(self._repository, request)
        offset = _offset(poll.scope, poll.position)
        # Before Spark has done a batch it asks again after a restart, and now would be later. It does one, and
        # with that keeps the place, if the place changes; so this one is told from the same place later on.
        return {**offset, _BEGINS: "now"} if self.options.start == "now" else offset

    def newest(self) -> int:
        """The number of the branch's newest commit."""
        return self._repository.head(self.options.branch).commit.sequence

    def next(self, start: Offset, last: int | None = None, *, everything: bool = False) -> Offset:
        """The end of the batch that begins at a place: so many commits as the options say, or `everything`.

        Commits with a number above `last` are left for later. A commit that cannot be told ends the batch before
        it; when it is the first one, it is `Conflict` or `ChangeFeedGap`.
        """
        if _BEGINS in start:
            return {name: value for name, value in start.items() if name != _BEGINS}
        place = start
        with _with_a_way_on():
            while True:
                try:
                    place, before = self._advance(place, last), place
                except (Conflict, ChangeFeedGap):
                    if place == start:
                        raise
                    return place
                if not everything or place == before:
                    return place

    def partitions(self, start: Offset, end: Offset) -> list[SinkPart]:
        """The changes between two places in parts that are read apart from one another."""
        if _BEGINS in start:
            return []
        shares: list[Share] = []
        with _with_a_way_on():
            for commit in self._between(start, end):
                try:
                    before, after = states_of(self._repository, commit)
                    shares += plan_shares(before, after, self._wanted, self.options.rows_per_partition)
                except NotFound as error:
                    raise change_feed_gap(commit) from error
        return bundle_shares(shares, self.options.rows_per_partition)

    def read(self, part: SinkPart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The changes of a part in the columns of a schema."""
        tables = _tables(self.options.uri, self.options.storage)
        with _with_a_way_on():
            for share in part:
                try:
                    yield from share.read(tables, schema)
                except NotFound as error:
                    raise change_feed_gap(share.commit) from error

    def close(self) -> None:
        """Let go of the graph."""
        if "_repository" in self.__dict__:
            self._repository.close()

    @cached_property
    def _repository(self) -> Repository:
        return Repository.open(self.options.uri, mode="r", options=self.options.storage)

    @cached_property
    def _wanted(self) -> ChangeFilter:
        return wanted_changes(self.options.choice)

    @property
    def _request(self) -> FeedRequest:
        return FeedRequest(
            self.options.branch, max_commits=self.options.max_commits, change_filter=self._wanted
        )

    def _advance(self, start: Offset, last: int | None) -> Offset:
        """Return the offset after the readable commits of one poll."""
        poll = begin_poll(self._repository, replace(self._request, cursor=_token(start).encode()))
        if last is not None:
            poll = replace(poll, commits=tuple(commit for commit in poll.commits if commit.sequence <= last))
        readable = poll.readable_commits()
        return _offset(poll.scope, readable[-1].id if readable else poll.position)

    def _between(self, start: Offset, end: Offset) -> list[CommitRecord]:
        """The commits after one place up to another, oldest first."""
        repository = self._repository
        head = repository.head(self.options.branch)
        scope = token_scope(repository, self._wanted, head.incarnation)
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
        raise rejected("it is not one of changes") from error


def _tables(uri: str, storage: Mapping[str, str]) -> Tables:
    return Tables(LanceRoot.at(Location.parse(uri), storage, "full"))


@contextmanager
def _with_a_way_on() -> Iterator[None]:
    """Errors that end a stream say how another one goes on: Spark's checkpoint stays where it is."""
    try:
        yield
    except ChangeFeedGap as error:
        error.hint = (
            "take a baseline, and begin a new query with a new checkpoint and the option "
            "start 'after:' with its snapshot_commit_id"
        )
        raise
    except Conflict as error:
        refusal = error.details["change_diff_refusal"]["graph_commit_id"]
        error.hint = f"begin a new query with a new checkpoint and the option start 'after:{refusal}'"
        raise

"""The change feed of a branch: the changes of its commits along first parents, oldest first.

The graph stores nothing about its readers: the position of a reader is its last cursor. A poll reads the commits
between that position and the head, so its cost grows with the distance of the reader from the head, not with the
length of the history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from omnigraph.changes.change_cache import stream_cached_changes
from omnigraph.changes.change_pages import PageBudget, token_scope
from omnigraph.changes.change_records import EVERYTHING, ChangeBlock, ChangeCause, ChangeFilter
from omnigraph.changes.commit_diff import change_feed_gap, open_commit
from omnigraph.changes.cursors import MAX_CURSOR_BYTES, EntityKey, Token, TokenScope, rejected
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.engine.memory.row_lookups import CachedIds
from omnigraph.errors import (
    ChangeFeedGap,
    Conflict,
    InvalidInput,
    NotFound,
    PermissionDenied,
    ResourceLimit,
)
from omnigraph.graph.commit_names import find_named_commit
from omnigraph.graph.history import first_parents, get_commit
from omnigraph.graph.repository import Repository
from omnigraph.store.manifest.records import CommitRecord, HeadRecord

DEFAULT_COMMITS, MAX_COMMITS = 128, 512
# The HTTP route checks this too: only there an explicit start of `now` differs from none.
EXCLUSIVE_POSITIONS = "`cursor`, `page_token` and `start` are mutually exclusive"

_AFTER = "after:"


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """The position to continue from. At most one of `cursor`, `page_token` and a `start` other than ``now``."""

    branch: str = "main"
    start: str = "now"
    cursor: str | None = None
    page_token: str | None = None
    max_commits: int = DEFAULT_COMMITS
    change_filter: ChangeFilter = EVERYTHING

    def check(self) -> None:
        """Raise `InvalidInput` or `ResourceLimit` for an invalid request."""
        positions = [self.cursor is not None, self.page_token is not None, self.start != "now"]
        if sum(positions) > 1:
            raise InvalidInput(EXCLUSIVE_POSITIONS)
        if self.start not in ("now", "beginning") and not self.start.startswith(_AFTER):
            raise InvalidInput(
                f"unknown start '{self.start}'", hint="use now, beginning or after:<commit id>"
            )
        if self.start.startswith(_AFTER) and not self.start.removeprefix(_AFTER).strip():
            raise InvalidInput("the start `after:` needs a commit id")
        if self.max_commits < 1:
            raise InvalidInput(f"`max_commits` must be at least 1, got {self.max_commits}")
        if self.max_commits > MAX_COMMITS:
            raise ResourceLimit(
                f"a poll has at most {MAX_COMMITS} commits, got `max_commits` {self.max_commits}",
                details={
                    "resource": "change_feed_commits_per_poll",
                    "limit": MAX_COMMITS,
                    "actual": self.max_commits,
                },
            )


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Blocks of a feed, oldest first.

    A page that ends within a commit has a `next_page_token`, which requests the rest. Any other page has a
    `cursor` to continue from, and `caught_up` if there are no further commits.
    """

    blocks: tuple[ChangeBlock, ...]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool | None = None

    def __iter__(self) -> Iterator[ChangeBlock]:
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        found: dict[str, Any] = {"blocks": [block.to_json() for block in self.blocks]}
        if self.next_page_token is not None:
            found["next_page_token"] = self.next_page_token
        else:
            found |= {"cursor": self.cursor, "caught_up": self.caught_up}
        return found


@dataclass(frozen=True)
class FeedPoll:
    """The commits of a poll, oldest first, after the commit `position`.

    `after` is the entity after which an earlier page of the same poll ended within the first commit.
    """

    repository: Repository
    request: FeedRequest
    scope: TokenScope
    head: CommitRecord
    position: str
    commits: tuple[CommitRecord, ...]
    after: EntityKey | None = None

    def readable_commits(self) -> tuple[CommitRecord, ...]:
        """Return the commits up to the first one whose changes cannot be computed.

        Raises `Conflict` or `ChangeFeedGap` if this is the first commit of the poll.
        """
        for number, commit in enumerate(self.commits):
            try:
                open_commit(self.repository, commit, self.request.change_filter)
            except ChangeFeedGap as error:
                if not number:
                    raise change_feed_gap(commit, self.request.cursor) from error
                return self.commits[:number]
            except Conflict:
                if not number:
                    raise
                return self.commits[:number]
        return self.commits

    def read_page(self, limit: int | None, cache: Cache) -> FeedPage:
        """Return the first page of the poll. It ends before a commit whose changes cannot be computed.

        Raises `Conflict` or `ChangeFeedGap` if this is the first commit of the poll.
        """
        budget = PageBudget.of(limit)
        known = CachedIds(cache)
        position = self.position
        blocks: list[ChangeBlock] = []
        for number, commit in enumerate(self.commits):
            try:
                diff = open_commit(self.repository, commit, self.request.change_filter, known)
                after = self.after if not number else None
                with closing(stream_cached_changes(diff, after, cache)) as stream:
                    changes, more = budget.take(stream)
            except ChangeFeedGap as error:
                if not number:
                    raise change_feed_gap(commit, self.request.cursor) from error
                break
            except Conflict:
                if not number:
                    raise
                break
            if more and not changes and blocks:
                # The page was already full: the next poll returns the whole commit.
                break
            blocks.append(ChangeBlock(ChangeCause.of(commit), changes))
            if more:
                token = Token("feed page", self.scope, commit.id, self.commits[-1].id, changes[-1].key)
                return FeedPage(tuple(blocks), token.encode())
            position = commit.id
        cursor = Token("cursor", self.scope, position).encode()
        return FeedPage(tuple(blocks), cursor=cursor, caught_up=position == self.head.id)


def begin_poll(
    repository: Repository, request: FeedRequest, authorize: Callable[[CommitRecord], None] | None = None
) -> FeedPoll:
    """Find the position of a reader and the commits after it. Reads no changes.

    `authorize` raises `PermissionDenied` for a commit that the reader may not read. It is called for every commit
    of the poll, because a cursor may come from another reader, or from a time with other permissions. Raises
    `InvalidInput` for an invalid request, cursor or page token, and `NotFound` for an unknown commit after which
    the feed should start.
    """
    request.check()
    head = repository.head(request.branch)
    scope = token_scope(repository, request.change_filter, head.incarnation)
    if request.page_token is not None:
        poll = _continue_poll(repository, request, scope, head)
    else:
        poll = _start_poll(repository, request, scope, head, authorize)
    if authorize is not None:
        for commit in poll.commits:
            authorize(commit)
    return poll


def _start_poll(
    repository: Repository,
    request: FeedRequest,
    scope: TokenScope,
    head: HeadRecord,
    authorize: Callable[[CommitRecord], None] | None,
) -> FeedPoll:
    """Return the poll of a cursor or a start."""
    position = _position(repository, request, scope, head)
    waiting: deque[CommitRecord] = deque(maxlen=request.max_commits)
    for commit in first_parents(repository.manifest, repository.manifest.view, head.commit):
        # Sequence numbers increase by one from parent to child, so the search stops where the position would be.
        if commit.parent is None or (position is not None and commit.sequence <= position.sequence):
            break
        waiting.append(commit)
    if position is not None and commit.id != position.id:
        if authorize is not None:
            _hide_if_denied(position, authorize)
        raise rejected(f"commit '{position.id}' is not in the history of branch '{head.branch}'")
    if request.cursor is None:
        # Checked only at the start: a reader continues if a type of its filter is dropped later.
        states = (repository.snapshot_of(commit), repository.snapshot_of(head.commit))
        request.change_filter.check_types(
            table.name for state in states for table in state.catalog.tables.values()
        )
    return FeedPoll(repository, request, scope, head.commit, commit.id, tuple(reversed(waiting)))


def _position(
    repository: Repository, request: FeedRequest, scope: TokenScope, head: HeadRecord
) -> CommitRecord | None:
    """Return the last commit that the reader has read; None if it starts at the beginning."""
    if request.cursor is not None:
        if len(request.cursor) > MAX_CURSOR_BYTES:
            raise rejected("it is too long")
        id_ = Token.decode(request.cursor, "cursor", scope).commit
        found = repository.manifest.find_commit(repository.manifest.view, id_)
        if found is None:
            raise rejected(f"commit '{id_}' does not exist")
        return found
    if request.start == "now":
        return head.commit
    if request.start == "beginning":
        return None
    after = request.start.removeprefix(_AFTER).strip()
    return find_named_commit(repository.manifest, repository.manifest.view, after)


def _hide_if_denied(commit: CommitRecord, authorize: Callable[[CommitRecord], None]) -> None:
    """Raise the error of an unknown commit if the reader may not read the commit."""
    try:
        authorize(commit)
    except PermissionDenied as error:
        raise NotFound(f"commit '{commit.id}' not found", details={"commit_id": commit.id}) from error


def _continue_poll(
    repository: Repository, request: FeedRequest, scope: TokenScope, head: HeadRecord
) -> FeedPoll:
    """Return the poll of a page token, from the commit within which its page ended."""
    token = Token.decode(str(request.page_token), "feed page", scope)
    manifest, view = repository.manifest, repository.manifest.view
    commits = []
    for commit in first_parents(manifest, view, get_commit(manifest, view, str(token.cut))):
        commits.append(commit)
        if commit.id == token.commit:
            break
    if commit.parent is None:
        raise rejected("its commits are not in the history of the branch")
    position = str(commits[-1].parent)
    return FeedPoll(repository, request, scope, head.commit, position, tuple(reversed(commits)), token.after)

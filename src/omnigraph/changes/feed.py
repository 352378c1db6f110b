"""The changes of a branch, commit by commit along first parents, oldest first.

The graph keeps nothing of its readers: where one stands is in the cursor that it got last. Each poll looks at the
commits between that place and the head, so what it costs grows with how far the reader is behind, and never with
the length of the history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from omnigraph.changes.change_cache import tell_changes
from omnigraph.changes.change_pages import Room, place_of, scope_of
from omnigraph.changes.change_records import EVERYTHING, ChangeBlock, ChangeCause, ChangeFilter
from omnigraph.changes.cursors import MAX_CURSOR_BYTES, Place, Scope, Token, rejected
from omnigraph.changes.diff import CommitChanges, open_commit
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.errors import ChangeFeedGap, Conflict, InvalidInput, ResourceLimit
from omnigraph.graph.history import first_parents, get_commit
from omnigraph.graph.repository import Repository
from omnigraph.store.manifest.records import CommitRecord, HeadRecord

DEFAULT_COMMITS, MAX_COMMITS = 128, 512
# The HTTP route checks this too: only there an explicit start of `now` differs from none.
EXCLUSIVE_POSITIONS = "`cursor`, `page_token` and `start` are mutually exclusive"

_AFTER = "after:"


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """Where to read on: `cursor`, `page_token` and a `start` other than ``now`` exclude one another."""

    branch: str = "main"
    start: str = "now"
    cursor: str | None = None
    page_token: str | None = None
    max_commits: int = DEFAULT_COMMITS
    wanted: ChangeFilter = EVERYTHING

    def check(self) -> None:
        """Refuse what makes no sense."""
        given = [self.cursor is not None, self.page_token is not None, self.start != "now"]
        if sum(given) > 1:
            raise InvalidInput(EXCLUSIVE_POSITIONS)
        if self.start not in ("now", "beginning") and not self.start.startswith(_AFTER):
            raise InvalidInput(
                f"unknown start '{self.start}'", hint="one of now, beginning, after:<commit id>"
            )
        if self.start not in ("now", "beginning") and not self.start.removeprefix(_AFTER).strip():
            raise InvalidInput("`after:` needs the id of a commit")
        if self.max_commits < 1:
            raise InvalidInput("a poll needs at least one commit")
        if self.max_commits > MAX_COMMITS:
            raise ResourceLimit(
                f"a poll has at most {MAX_COMMITS} commits, not {self.max_commits}",
                details={
                    "resource": "change_feed_commits_per_poll",
                    "limit": MAX_COMMITS,
                    "actual": self.max_commits,
                },
            )


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Blocks of a feed, oldest first.

    A page that ends within a commit has a `next_page_token`, which asks for the rest; any other has a `cursor`,
    from which to poll on, and says whether nothing was waiting there.
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
        """The JSON form."""
        found: dict[str, Any] = {"blocks": [block.to_json() for block in self.blocks]}
        if self.next_page_token is not None:
            found["next_page_token"] = self.next_page_token
        else:
            found |= {"cursor": self.cursor, "caught_up": self.caught_up}
        return found


@dataclass
class Poll:
    """Commits to tell, oldest first. `position` is the commit that everything was told of, and moves along.

    `place` is where an earlier page of the same poll stopped within the first commit.
    """

    repository: Repository
    request: FeedRequest
    scope: Scope
    head: CommitRecord
    position: str
    commits: tuple[CommitRecord, ...]
    place: Place | None = None

    @property
    def cursor(self) -> str:
        """From where to poll on."""
        return Token("cursor", self.scope, self.position).encode()

    @property
    def caught_up(self) -> bool:
        """Whether nothing more is waiting."""
        return self.position == self.head.id

    def stream(self) -> Iterator[CommitChanges]:
        """The commits one after the other; what comes after one that cannot be told is left to the next poll.

        A commit counts as told when the next one is asked for.
        """
        for number, commit in enumerate(self.commits):
            found = self._open(number)
            if found is None:
                return
            yield found
            self.position = commit.id

    def read_page(self, limit: int | None, cache: Cache) -> FeedPage:
        """The first page of what there is to tell."""
        room = Room.of(limit)
        blocks: list[ChangeBlock] = []
        for number, commit in enumerate(self.commits):
            try:
                found = open_commit(self.repository, commit, self.request.wanted)
                place = self.place if not number else None
                with closing(tell_changes(found, place, cache)) as stream:
                    changes, more = room.fill(stream)
            except (Conflict, ChangeFeedGap) as error:
                if not number:
                    raise self._told(error) from error
                break
            if more and not changes and blocks:
                # The page was full before: the commit is for the next poll, whole.
                break
            blocks.append(ChangeBlock(ChangeCause.of(commit), changes))
            if more:
                token = Token("feed page", self.scope, commit.id, self.commits[-1].id, place_of(changes[-1]))
                return FeedPage(tuple(blocks), token.encode())
            self.position = commit.id
        return FeedPage(tuple(blocks), cursor=self.cursor, caught_up=self.caught_up)

    def _open(self, number: int) -> CommitChanges | None:
        try:
            return open_commit(self.repository, self.commits[number], self.request.wanted)
        except (Conflict, ChangeFeedGap) as error:
            if not number:
                raise self._told(error) from error
            return None

    def _told(self, error: Conflict | ChangeFeedGap) -> Conflict | ChangeFeedGap:
        """The error, with the cursor that led to it."""
        if isinstance(error, ChangeFeedGap) and self.request.cursor is not None:
            error.details["change_feed_gap"]["cursor"] = self.request.cursor
        return error


def begin_poll(repository: Repository, request: FeedRequest) -> Poll:
    """Look up where a reader stands, and which commits there are for it. No changes are read."""
    request.check()
    head = repository.head(request.branch)
    scope = scope_of(repository, request.wanted, head.incarnation)
    if request.page_token is not None:
        return _continue(repository, request, scope, head)
    position = _position(repository, request, scope, head)
    waiting: deque[CommitRecord] = deque(maxlen=request.max_commits)
    for commit in first_parents(repository.manifest, repository.manifest.view, head.commit):
        # Numbers grow by one from parent to child, so that nobody looks for a place below where it would be.
        if commit.parent is None or (position is not None and commit.sequence <= position.sequence):
            break
        waiting.append(commit)
    if position is not None and commit.id != position.id:
        raise rejected(f"commit '{position.id}' is not in the history of branch '{head.branch}'")
    if request.cursor is None:
        # Later a type may have gone; whoever began when it was there goes on without it.
        known = (repository.state(commit), repository.state(head.commit))
        request.wanted.check_types(table.name for state in known for table in state.catalog.tables.values())
    return Poll(repository, request, scope, head.commit, commit.id, tuple(reversed(waiting)))


def _position(
    repository: Repository, request: FeedRequest, scope: Scope, head: HeadRecord
) -> CommitRecord | None:
    """The commit that the reader knows of; None for one that knows nothing."""
    if request.cursor is not None:
        if len(request.cursor) > MAX_CURSOR_BYTES:
            raise rejected("it is too long")
        return _known(repository, Token.decode(request.cursor, "cursor", scope).commit)
    if request.start == "now":
        return head.commit
    if request.start == "beginning":
        return None
    return _known(repository, request.start.removeprefix(_AFTER).strip())


def _known(repository: Repository, id_: str) -> CommitRecord:
    found = repository.manifest.find_commit(repository.manifest.view, id_)
    if found is None:
        raise rejected(f"there is no commit '{id_}'")
    return found


def _continue(repository: Repository, request: FeedRequest, scope: Scope, head: HeadRecord) -> Poll:
    """The poll that a page token belongs to, from the commit within which its page ended."""
    token = Token.decode(str(request.page_token), "feed page", scope)
    manifest, view = repository.manifest, repository.manifest.view
    commits = []
    for commit in first_parents(manifest, view, get_commit(manifest, view, str(token.cut))):
        commits.append(commit)
        if commit.id == token.commit:
            break
    position = str(commits[-1].parent)
    return Poll(repository, request, scope, head.commit, position, tuple(reversed(commits)), token.place)

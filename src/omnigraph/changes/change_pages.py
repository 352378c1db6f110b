"""Pages of changes, limited in number and size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from omnigraph.changes.change_cache import stream_cached_changes
from omnigraph.changes.change_records import ChangeCause, ChangeFilter, EntityChange
from omnigraph.changes.commit_diff import CommitDiff, open_commit, states_of
from omnigraph.changes.cursors import Token, TokenScope, rejected
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.errors import InvalidInput, ResourceLimit
from omnigraph.graph.repository import Repository

DEFAULT_CHANGES, MAX_CHANGES = 1_000, 8_192
DEFAULT_BYTES, MAX_BYTES = 4 << 20, 32 << 20


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Changes of a commit. `next_page_token` requests the next page; None on the last page."""

    cause: ChangeCause
    changes: tuple[EntityChange, ...]
    next_page_token: str | None = None

    def __iter__(self) -> Iterator[EntityChange]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        found: dict[str, Any] = {
            "cause": self.cause.to_json(),
            "changes": [change.to_json() for change in self.changes],
        }
        if self.next_page_token is not None:
            found["next_page_token"] = self.next_page_token
        return found


class PageBudget:
    """The changes and bytes that a page can still take. An empty page takes one change of any size."""

    def __init__(self, changes: int, size: int) -> None:
        self._changes = changes
        self._size = size
        self._empty = True

    @classmethod
    def of(cls, limit: int | None) -> PageBudget:
        """Return the budget of a page of at most `limit` changes. An explicit limit also allows larger pages.

        Raises `InvalidInput` for a limit below 1 and `ResourceLimit` for one above `MAX_CHANGES`.
        """
        if limit is None:
            return cls(DEFAULT_CHANGES, DEFAULT_BYTES)
        if limit < 1:
            raise InvalidInput("change page limit must be greater than zero")
        if limit > MAX_CHANGES:
            raise ResourceLimit(
                f"a page has at most {MAX_CHANGES} changes, got a limit of {limit}",
                details={"resource": "commit_changes_page_changes", "limit": MAX_CHANGES, "actual": limit},
            )
        return cls(limit, MAX_BYTES)

    def take(self, stream: Iterator[EntityChange]) -> tuple[tuple[EntityChange, ...], bool]:
        """Return the first changes of a stream, as many as fit, and whether others are left."""
        taken: list[EntityChange] = []
        for change in stream:
            size = len(json.dumps(change.to_json(), ensure_ascii=False).encode())
            if not self._changes or (size > self._size and not self._empty):
                # Smaller changes that follow must not be returned before this one.
                self._changes = 0
                return tuple(taken), True
            self._changes -= 1
            self._size -= size
            self._empty = False
            taken.append(change)
        return tuple(taken), False


def read_commit_page(
    repository: Repository,
    cache: Cache,
    commit_id: str,
    change_filter: ChangeFilter,
    limit: int | None = None,
    page_token: str | None = None,
) -> ChangePage:
    """Return one page of a commit's changes: the first, or the one that `page_token` requests."""
    budget = PageBudget.of(limit)
    diff = open_commit_changes(repository, commit_id, change_filter)
    scope = token_scope(repository, change_filter)
    after = None
    if page_token is not None:
        token = Token.decode(page_token, "commit page", scope)
        if token.commit != diff.commit.id:
            raise rejected("it belongs to another commit")
        after = token.after
    with closing(stream_cached_changes(diff, after, cache)) as stream:
        changes, more = budget.take(stream)
    next_page_token = None
    if more:
        next_page_token = Token("commit page", scope, diff.commit.id, after=changes[-1].key).encode()
    return ChangePage(ChangeCause.of(diff.commit), changes, next_page_token)


def open_commit_changes(repository: Repository, commit_id: str, change_filter: ChangeFilter) -> CommitDiff:
    """Open the changes of a commit by its id; see `open_commit`. Raises `InvalidInput` for an unknown type."""
    commit = repository.commit(commit_id)
    states = states_of(repository, commit)
    change_filter.check_types(table.name for state in states for table in state.catalog.tables.values())
    return open_commit(repository, commit, change_filter)


def token_scope(repository: Repository, change_filter: ChangeFilter, incarnation: str = "") -> TokenScope:
    """Return the scope of tokens for an incarnation of a branch, or for pages of a commit."""
    registry = repository.manifest.registry(repository.manifest.view)
    return TokenScope(registry.graph_id, incarnation, change_filter.fingerprint)

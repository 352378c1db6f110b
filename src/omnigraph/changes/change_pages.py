"""Changes in pages: so many and so large that both sides can hold one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from omnigraph.changes.change_cache import tell_changes
from omnigraph.changes.change_records import ChangeCause, ChangeFilter, EntityChange
from omnigraph.changes.cursors import Place, Scope, Token, rejected
from omnigraph.changes.diff import CommitChanges, open_commit, states_of
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.errors import InvalidInput, ResourceLimit
from omnigraph.graph.repository import Repository

DEFAULT_CHANGES, MAX_CHANGES = 1_000, 8_192
DEFAULT_BYTES, MAX_BYTES = 4 << 20, 32 << 20


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Changes of a commit; with `next_page_token`, which asks for more, not the last of them."""

    cause: ChangeCause
    changes: tuple[EntityChange, ...]
    next_page_token: str | None = None

    def __iter__(self) -> Iterator[EntityChange]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        found: dict[str, Any] = {
            "cause": self.cause.to_json(),
            "changes": [change.to_json() for change in self.changes],
        }
        if self.next_page_token is not None:
            found["next_page_token"] = self.next_page_token
        return found


class Room:
    """What a page still has room for. One change fits into an empty page, however large it is."""

    def __init__(self, changes: int, size: int) -> None:
        self._changes = changes
        self._size = size
        self._empty = True

    @classmethod
    def of(cls, limit: int | None) -> Room:
        """The room of a page of at most `limit` changes; whoever asks for a number gets larger pages too."""
        if limit is None:
            return cls(DEFAULT_CHANGES, DEFAULT_BYTES)
        if limit < 1:
            raise InvalidInput("change page limit must be greater than zero")
        if limit > MAX_CHANGES:
            raise ResourceLimit(
                f"a page has at most {MAX_CHANGES} changes, not {limit}",
                details={"resource": "commit_changes_page_changes", "limit": MAX_CHANGES, "actual": limit},
            )
        return cls(limit, MAX_BYTES)

    def fill(self, stream: Iterator[EntityChange]) -> tuple[tuple[EntityChange, ...], bool]:
        """The first changes of a stream, as many as fit, and whether others are left."""
        found: list[EntityChange] = []
        for change in stream:
            size = len(json.dumps(change.to_json(), ensure_ascii=False).encode())
            if not self._changes or (size > self._size and not self._empty):
                # Nothing smaller that comes later may overtake it.
                self._changes = 0
                return tuple(found), True
            self._changes -= 1
            self._size -= size
            self._empty = False
            found.append(change)
        return tuple(found), False


def read_commit_page(
    repository: Repository,
    cache: Cache,
    commit_id: str,
    wanted: ChangeFilter,
    limit: int | None = None,
    page_token: str | None = None,
) -> ChangePage:
    """One page of a commit's changes: the first, or the one that a token of the page before asks for."""
    room = Room.of(limit)
    opened = open_commit_changes(repository, commit_id, wanted)
    scope = scope_of(repository, wanted)
    place = None
    if page_token is not None:
        token = Token.decode(page_token, "commit page", scope)
        if token.commit != opened.commit.id:
            raise rejected("it was made for another commit")
        place = token.place
    with closing(tell_changes(opened, place, cache)) as stream:
        changes, more = room.fill(stream)
    following = Token("commit page", scope, opened.commit.id, place=place_of(changes[-1])) if more else None
    return ChangePage(
        ChangeCause.of(opened.commit), changes, None if following is None else following.encode()
    )


def open_commit_changes(repository: Repository, commit_id: str, wanted: ChangeFilter) -> CommitChanges:
    """All changes of a commit by its id, when they can be told; see `open_commit`."""
    commit = repository.commit(commit_id)
    states = states_of(repository, commit)
    wanted.check_types(table.name for state in states for table in state.catalog.tables.values())
    return open_commit(repository, commit, wanted)


def place_of(change: EntityChange) -> Place:
    """Where a change is among those of its commit."""
    return Place(change.kind, change.type_id, change.id)


def scope_of(repository: Repository, wanted: ChangeFilter, incarnation: str = "") -> Scope:
    """What tokens for a branch, or for commits wherever they are, are bound to."""
    registry = repository.manifest.registry(repository.manifest.view)
    return Scope(registry.graph_id, incarnation, wanted.fingerprint)

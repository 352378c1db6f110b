"""The tags of a graph."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from omnigraph.api.results.changes import State
from omnigraph.api.results.commits import Timestamp, check_limit
from omnigraph.graph.argument_checks import check_text, require_text
from omnigraph.lang.temporal import EPOCH_TIME

if TYPE_CHECKING:
    from omnigraph.store.manifest.records import TagEntry


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag: a name for a commit, with who created it when."""

    name: str
    commit_id: str
    created_at: Timestamp
    actor: str | None = None
    message: str | None = None

    @classmethod
    def of(cls, name: str, entry: TagEntry) -> Tag:
        """Return the tag of a manifest record."""
        created_at = EPOCH_TIME + timedelta(microseconds=entry.created_at)
        return cls(name, entry.commit, created_at, entry.created_by, entry.message)


class Tags(ABC):
    """The tags of a graph; the `tags` attribute of `Graph`.

    A tag can stand wherever a commit id can. It never moves, and garbage collection keeps the data of its commit.
    """

    def __repr__(self) -> str:
        return f"Tags({', '.join(tag.name for tag in self.list())})"

    def create(
        self, name: str, at: State = "main", *, message: str | None = None, actor: str | None = None
    ) -> Tag:
        """Give a state a name. `at` is a branch, a tag, a commit, a snapshot, or a time on `main`.

        Raises `Conflict` if a tag or a branch has the name, and `NotFound` if garbage collection has removed the
        data of the state.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-tags", schema="node City { name: String @key }")
        >>> _ = g.load({"City": [{"name": "Bern"}]})
        >>> tag = g.tags.create("v1.0", message="first release")
        >>> _ = g.mutate('query drop() { delete City where name = "Bern" }')
        >>> g.get("City", "Bern", at="v1.0")
        {'id': 'Bern', 'name': 'Bern'}
        >>> [item.name for item in g.tags.list()]
        ['v1.0']
        """
        check_text("message", message)
        return self._create(name, at, message, actor)

    def list(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> list[Tag]:
        """Return the tags, sorted by name.

        `prefix` selects the names that begin with a text. `limit` is the maximum number of tags, None for all.
        `after` continues a list after a name, which need not exist.
        """
        check_limit(limit)
        require_text("prefix", prefix)
        check_text("after", after)
        return self._list(prefix, after, limit)

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a tag. Garbage collection may then remove the data of its commit."""

    @abstractmethod
    def _create(self, name: str, at: State, message: str | None, actor: str | None) -> Tag: ...

    @abstractmethod
    def _list(self, prefix: str, after: str | None, limit: int | None) -> builtins.list[Tag]: ...

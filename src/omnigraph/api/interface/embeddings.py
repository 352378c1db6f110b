"""The stored embeddings of a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.api.results.commits import At, Commit
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.graph.progress import Progress
    from omnigraph.maintain.embedding_status import EmbeddingStatus


@dataclass(frozen=True, slots=True)
class EmbeddingRefreshed:
    """The result of a refresh: the vectors that were computed, those that were removed, and the commits."""

    computed: int = 0
    removed: int = 0
    commits: tuple[Commit, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "computed": self.computed,
            "removed": self.removed,
            "commits": [commit.id for commit in self.commits],
        }


@dataclass(frozen=True)
class RefreshOptions:
    """What to refresh. `batch_rows` are the rows of one commit; full rows with their vectors are in memory."""

    branch: str = "main"
    types: Sequence[str] | None = None
    unrecorded: bool = False
    remove: bool = False
    batch_rows: int = 2_000
    message: str | None = None
    actor: str | None = None


class Embeddings(ABC):
    """The stored embeddings of a graph; the `embeddings` attribute of `Graph`.

    >>> import omnigraph as og
    >>> schema = 'node Doc { slug: String @key  v: Vector(2)? @embed("slug", model="a", provider="mock") }'
    >>> g = og.init("memory://docs-embeddings", schema=schema)
    >>> g.load({"Doc": [{"slug": "tea"}]}).nodes
    {'Doc': 1}
    >>> plan = g.schema.apply(schema.replace('"a"', '"b"')).plan
    >>> [(item.model, item.current, item.stale, item.models) for item in g.embeddings.status()]
    [('b', 0, 1, {'a': 1})]
    >>> g.embeddings.refresh().computed
    1
    """

    def status(
        self, *, branch: str = "main", at: At = None, types: Sequence[str] | None = None
    ) -> list[EmbeddingStatus]:
        """Return the state of the vectors of each property with a provider, by type and property.

        `types` are node types, by default all of them. The texts of the types are read. A graph on a server raises
        `InvalidInput`.
        """
        return self._status(branch, at, types)

    def refresh(
        self,
        *,
        branch: str = "main",
        types: Sequence[str] | None = None,
        unrecorded: bool = False,
        remove: bool = False,
        batch_rows: int = 2_000,
        message: str | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> EmbeddingRefreshed:
        """Compute the vectors that are missing or stale.

        Every batch of rows is one commit, so a refresh that was interrupted continues where it ended when it is
        called again. Use a branch and merge it for a change that is visible at once. With `unrecorded`, vectors
        that were stored before the property had a provider are computed again too. Stale vectors of rows without a
        text are kept, or with `remove` removed. Rows that other writers change meanwhile keep their changes. A
        graph on a server raises `InvalidInput`.
        """
        if batch_rows < 1:
            raise InvalidInput(f"batch_rows must be at least 1, got {batch_rows}")
        options = RefreshOptions(branch, types, unrecorded, remove, batch_rows, message, actor)
        return self._refresh(options, progress)

    @abstractmethod
    def _status(self, branch: str, at: At, types: Sequence[str] | None) -> list[EmbeddingStatus]: ...

    @abstractmethod
    def _refresh(self, options: RefreshOptions, progress: Progress | None) -> EmbeddingRefreshed: ...

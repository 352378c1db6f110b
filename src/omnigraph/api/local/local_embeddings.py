"""The stored embeddings of a local graph: their state, and their refresh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.api.results.commits import At, Commit
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.local.authorizer import Authorizer
    from omnigraph.graph.progress import Progress
    from omnigraph.graph.repository import Repository
    from omnigraph.maintain.embedding_status import EmbeddingStatus
    from omnigraph.read.reader import Reader

# Full rows with their vectors are in memory while a batch is written.
_BATCH_ROWS = 2_000


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


class LocalEmbeddings:
    """The stored embeddings of a graph; the `embeddings` attribute of `LocalGraph`.

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

    def __init__(self, repository: Repository, authorizer: Authorizer, reader: Reader) -> None:
        self._repository = repository
        self._authorizer = authorizer
        self._reader = reader

    def status(
        self, *, branch: str = "main", at: At = None, types: Sequence[str] | None = None
    ) -> list[EmbeddingStatus]:
        """Return the state of the vectors of each property with a provider, by type and property.

        `types` are node types, by default all of them. The texts of the types are read.
        """
        from omnigraph.maintain.embedding_status import embedded_columns, embedding_status

        state = self._authorizer.authorize_at("read", branch, at)
        snapshot = self._repository.snapshot(branch, state)
        with snapshot.reading(), snapshot.held():
            return [embedding_status(snapshot, item) for item in embedded_columns(snapshot, types)]

    def refresh(
        self,
        *,
        branch: str = "main",
        types: Sequence[str] | None = None,
        unrecorded: bool = False,
        remove: bool = False,
        batch_rows: int = _BATCH_ROWS,
        message: str | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> EmbeddingRefreshed:
        """Compute the vectors that are missing or stale.

        Every batch of rows is one commit, so a refresh that was interrupted continues where it ended when it is
        called again. Use a branch and merge it for a change that is visible at once. With `unrecorded`, vectors
        that were stored before the property had a provider are computed again too. Stale vectors of rows without a
        text are kept, or with `remove` removed. Rows that other writers change
        meanwhile keep their changes.
        """
        from omnigraph.graph.write_request import WriteRequest
        from omnigraph.maintain.embedding_status import embedded_columns, outdated_ids
        from omnigraph.mutate.refresh_embeddings import EmbeddingRefresh, RefreshedRows

        if batch_rows < 1:
            raise InvalidInput(f"batch_rows must be at least 1, got {batch_rows}")
        actor = self._authorizer.authorize("change", branch, actor=actor)
        snapshot = self._repository.snapshot(branch)
        done, commits = RefreshedRows(), []
        with snapshot.reading(), snapshot.held():
            for column in embedded_columns(snapshot, types):
                full = f"{column.table.name}.{column.item.name}"
                request = WriteRequest(
                    "mutate", actor=actor, message=message or f"refresh embeddings of {full}"
                )
                for found in outdated_ids(snapshot, column, unrecorded=unrecorded):
                    for start in range(0, len(found), batch_rows):
                        refresh = EmbeddingRefresh(
                            column.key,
                            column.item.name,
                            found[start : start + batch_rows],
                            self._reader.vectors,
                            unrecorded,
                            remove,
                        )
                        refresh.compute(snapshot)
                        receipt, result = self._repository.write(branch, request, refresh.prepare)
                        done += result or RefreshedRows()
                        if receipt is not None:
                            commits.append(Commit.of(receipt.commit))
                        if progress is not None:
                            progress("embed", done.computed)
        return EmbeddingRefreshed(done.computed, done.removed, tuple(commits))

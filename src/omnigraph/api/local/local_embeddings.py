"""The stored embeddings of a local graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.api.interface.embeddings import EmbeddingRefreshed, Embeddings, RefreshOptions
from omnigraph.api.results.commits import At, Commit

if TYPE_CHECKING:
    from omnigraph.api.local.authorizer import Authorizer
    from omnigraph.graph.progress import Progress
    from omnigraph.graph.repository import Repository
    from omnigraph.maintain.embedding_status import EmbeddingStatus
    from omnigraph.read.reader import Reader


class LocalEmbeddings(Embeddings):
    """`Embeddings` of a graph in storage."""

    def __init__(self, repository: Repository, authorizer: Authorizer, reader: Reader) -> None:
        self._repository = repository
        self._authorizer = authorizer
        self._reader = reader

    def _status(self, branch: str, at: At, types: Sequence[str] | None) -> list[EmbeddingStatus]:
        from omnigraph.maintain.embedding_status import embedded_columns, embedding_status

        state = self._authorizer.authorize_at("read", branch, at)
        snapshot = self._repository.snapshot(branch, state)
        with snapshot.reading(), snapshot.held():
            return [embedding_status(snapshot, item) for item in embedded_columns(snapshot, types)]

    def _refresh(self, options: RefreshOptions, progress: Progress | None) -> EmbeddingRefreshed:
        from omnigraph.graph.write_request import WriteRequest
        from omnigraph.maintain.embedding_status import embedded_columns, outdated_ids
        from omnigraph.mutate.refresh_embeddings import EmbeddingRefresh, RefreshedRows

        actor = self._authorizer.authorize("change", options.branch, actor=options.actor)
        snapshot = self._repository.snapshot(options.branch)
        done, commits, size = RefreshedRows(), [], options.batch_rows
        with snapshot.reading(), snapshot.held():
            for column in embedded_columns(snapshot, options.types):
                full = f"{column.table.name}.{column.item.name}"
                request = WriteRequest(
                    "mutate", actor=actor, message=options.message or f"refresh embeddings of {full}"
                )
                for found in outdated_ids(snapshot, column, unrecorded=options.unrecorded):
                    for start in range(0, len(found), size):
                        refresh = EmbeddingRefresh(
                            column.key,
                            column.item.name,
                            found[start : start + size],
                            self._reader.vectors,
                            options.unrecorded,
                            options.remove,
                        )
                        refresh.compute(snapshot)
                        receipt, result = self._repository.write(options.branch, request, refresh.prepare)
                        done += result or RefreshedRows()
                        if receipt is not None:
                            commits.append(Commit.of(receipt.commit))
                        if progress is not None:
                            progress("embed", done.computed)
        return EmbeddingRefreshed(done.computed, done.removed, tuple(commits))

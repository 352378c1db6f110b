"""The stored embeddings of a remote graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Never

from omnigraph.api.interface.embeddings import Embeddings, RefreshOptions
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.results.commits import At
    from omnigraph.graph.progress import Progress


class RemoteEmbeddings(Embeddings):
    """`Embeddings` on a server, which has no routes for them: every call raises `InvalidInput`."""

    def _status(self, branch: str, at: At, types: Sequence[str] | None) -> Never:  # noqa: ARG002 - refused
        _refuse()

    def _refresh(self, options: RefreshOptions, progress: Progress | None) -> Never:  # noqa: ARG002 - refused
        _refuse()


def _refuse() -> Never:
    raise InvalidInput(
        "the stored embeddings of a graph on a server cannot be counted or refreshed over HTTP",
        hint="run `omnigraph embed status` or `omnigraph embed refresh` on the storage of the graph; the server "
        "can continue to write meanwhile",
    )

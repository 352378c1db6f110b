"""Read all changes of a commit or a poll, one page at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from omnigraph.cli.render.change_lines import FilterArguments
from omnigraph.errors import ChangeFeedGap, Conflict

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.changes.change_records import ChangeBlock, ChangeCause, EntityChange
    from omnigraph.changes.feed import FeedPage


def stream_commit(
    graph: Graph, commit_id: str, wanted: FilterArguments, limit: int | None
) -> tuple[ChangeCause, Iterator[EntityChange]]:
    """Return the commit and an iterator over its changes.

    The first page is read here, so that an invalid request raises before any output.
    """
    limit = _page_size(limit)
    first = graph.changes(commit_id, **wanted, limit=limit)

    def changes() -> Iterator[EntityChange]:
        page = first
        yield from page.changes
        while page.next_page_token is not None:
            page = graph.changes(commit_id, **wanted, limit=limit, page_token=page.next_page_token)
            yield from page.changes

    return first.cause, changes()


class PagedPoll:
    """A poll that reads all pages of up to `DEFAULT_COMMITS` commits.

    `cursor` and `caught_up` are set when all of `blocks` has been read. The constructor reads the first page, so
    that an invalid request raises before any output.
    """

    def __init__(
        self, graph: Graph, branch: str, wanted: FilterArguments, limit: int | None, **start: str | None
    ) -> None:
        self._graph = graph
        self._arguments: dict[str, Any] = {"branch": branch, "limit": _page_size(limit), **wanted}
        self._first = self._read(**{name: value for name, value in start.items() if value is not None})
        self.cursor: str | None = None
        self.caught_up = False

    def blocks(self) -> Iterator[tuple[ChangeCause, Iterator[EntityChange]]]:
        """Yield each commit, oldest first, with its changes, which must be read before the next commit."""
        for cause, parts in groupby(self._parts(), key=lambda part: part.cause):
            yield cause, (change for part in parts for change in part.changes)

    def _parts(self) -> Iterator[ChangeBlock]:
        from omnigraph.changes.feed import DEFAULT_COMMITS

        page, emitted = self._first, 0
        last = None
        while True:
            for part in page.blocks:
                emitted += part.cause != last
                last = part.cause
                yield part
            if page.next_page_token is not None:
                page = self._read(page_token=page.next_page_token)
                continue
            self.cursor, self.caught_up = page.cursor, bool(page.caught_up)
            if self.caught_up or emitted >= DEFAULT_COMMITS:
                return
            try:
                page = self._read(cursor=self.cursor, max_commits=DEFAULT_COMMITS - emitted)
            except (Conflict, ChangeFeedGap):
                # The changes of the next commit cannot be read. The next poll, from this cursor, raises the error.
                return

    def _read(self, **place: Any) -> FeedPage:
        return self._graph.feed(**self._arguments, **place)


def _page_size(limit: int | None) -> int:
    """Return `limit`, or the largest page size: fewer pages need fewer scans and requests."""
    from omnigraph.changes.change_pages import MAX_CHANGES

    return MAX_CHANGES if limit is None else limit

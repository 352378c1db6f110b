"""All of what a commit changed, and all of a poll, page by page: nobody holds more than one page."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from omnigraph.cli.render.change_lines import Wanted
from omnigraph.errors import ChangeFeedGap, Conflict

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.changes.change_records import ChangeBlock, ChangeCause, EntityChange
    from omnigraph.changes.feed import FeedPage


def stream_commit(
    graph: Graph, commit_id: str, wanted: Wanted, limit: int | None
) -> tuple[ChangeCause, Iterator[EntityChange]]:
    """The commit and its changes. What refuses them is raised here, before the first is read."""
    limit = _page_size(limit)
    first = graph.changes(commit_id, **wanted, limit=limit)

    def changes() -> Iterator[EntityChange]:
        page = first
        yield from page.changes
        while page.next_page_token is not None:
            page = graph.changes(commit_id, **wanted, limit=limit, page_token=page.next_page_token)
            yield from page.changes

    return first.cause, changes()


class Poll:
    """A poll of as many commits as one tells of. Where it ends is known when all of `blocks` was read.

    The first page is read here, so that what refuses the poll is raised before anything is told.
    """

    def __init__(
        self, graph: Graph, branch: str, wanted: Wanted, limit: int | None, **start: str | None
    ) -> None:
        self._graph = graph
        self._asked: dict[str, Any] = {"branch": branch, "limit": _page_size(limit), **wanted}
        self._first = self._read(**{name: value for name, value in start.items() if value is not None})
        self.cursor: str | None = None
        self.caught_up = False

    def blocks(self) -> Iterator[tuple[ChangeCause, Iterator[EntityChange]]]:
        """Every commit, oldest first, with its changes; those of one are to be read before the next."""
        for cause, parts in groupby(self._parts(), key=lambda part: part.cause):
            yield cause, (change for part in parts for change in part.changes)

    def _parts(self) -> Iterator[ChangeBlock]:
        from omnigraph.changes.feed import DEFAULT_COMMITS

        page, told = self._first, 0
        last = None
        while True:
            for part in page.blocks:
                told += part.cause != last
                last = part.cause
                yield part
            if page.next_page_token is not None:
                page = self._read(page_token=page.next_page_token)
                continue
            self.cursor, self.caught_up = page.cursor, bool(page.caught_up)
            if self.caught_up or told >= DEFAULT_COMMITS:
                return
            try:
                page = self._read(cursor=self.cursor, max_commits=DEFAULT_COMMITS - told)
            except (Conflict, ChangeFeedGap):
                # The next commit cannot be told; that is for whoever polls on from here.
                return

    def _read(self, **place: Any) -> FeedPage:
        return self._graph.feed(**self._asked, **place)


def _page_size(limit: int | None) -> int:
    """As many changes as a page may have, unless the user says: fewer pages are fewer scans and requests."""
    from omnigraph.changes.change_pages import MAX_CHANGES

    return MAX_CHANGES if limit is None else limit

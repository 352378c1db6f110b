"""The history of a state: its commits, newest first, with filters."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.graph.history import first_parents, get_commit
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which commits a log has. `since` is in microseconds since the epoch, `tables` are ids of tables.

    Without `merged` the log has the first parents only, with it also the commits of merged branches.
    """

    actor: str | None = None
    since: int | None = None
    tables: frozenset[str] | None = None
    merged: bool = False

    def selects(self, commit: CommitRecord) -> bool:
        """Return whether a commit has the actor and changed one of the tables."""
        return (self.actor is None or commit.actor == self.actor) and (
            self.tables is None or not self.tables.isdisjoint(commit.touched)
        )


def select_commits(
    manifest: Manifest, view: ManifestView, start: CommitRecord, wanted: LogFilter
) -> Iterator[CommitRecord]:
    """Yield the commits of the history of a commit that a filter selects, newest first, itself included."""
    walk = all_ancestors if wanted.merged else first_parents
    for commit in walk(manifest, view, start):
        if wanted.since is not None and commit.created_at < wanted.since:
            # A commit is older than its children.
            return
        if wanted.selects(commit):
            yield commit


def all_ancestors(manifest: Manifest, view: ManifestView, start: CommitRecord) -> Iterator[CommitRecord]:
    """Yield a commit and its ancestors over both parents, newest first."""
    seen = {start.id}
    queue = [(-start.created_at, start.id, start)]
    while queue:
        _, _, commit = heapq.heappop(queue)
        yield commit
        for id_ in (commit.parent, commit.merged_parent):
            if id_ is not None and id_ not in seen:
                seen.add(id_)
                parent = get_commit(manifest, view, id_)
                heapq.heappush(queue, (-parent.created_at, id_, parent))

"""Lineage: walking commits along their parents, and where two histories meet."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from omnigraph.errors import NotFound
from omnigraph.store.manifest import Manifest, View
from omnigraph.store.records import CommitRecord


def get_commit(manifest: Manifest, view: View, id_: str) -> CommitRecord:
    """A commit by its id, or `NotFound`."""
    found = manifest.find_commit(view, id_)
    if found is None:
        raise NotFound(f"commit '{id_}' not found", details={"commit_id": id_})
    return found


def first_parents(manifest: Manifest, view: View, start: CommitRecord) -> Iterator[CommitRecord]:
    """A commit and its first parents, newest first, down to genesis."""
    commit = start
    yield commit
    while commit.parent is not None:
        commit = get_commit(manifest, view, commit.parent)
        yield commit


def commit_at(manifest: Manifest, view: View, head: CommitRecord, moment: int) -> CommitRecord:
    """The newest first parent that is not younger than a moment in epoch microseconds."""
    for commit in first_parents(manifest, view, head):
        if commit.created_at <= moment:
            return commit
    raise NotFound("the graph did not exist yet at that time", details={"created_at": moment})


def distances(manifest: Manifest, view: View, start: CommitRecord) -> Iterator[tuple[int, CommitRecord]]:
    """Every ancestor with its shortest distance over both parents, nearest first."""
    seen = {start.id}
    queue: list[tuple[int, str]] = [(0, start.id)]
    while queue:
        distance, id_ = heapq.heappop(queue)
        commit = start if id_ == start.id else get_commit(manifest, view, id_)
        yield distance, commit
        for parent in (commit.parent, commit.merged_parent):
            if parent is not None and parent not in seen:
                seen.add(parent)
                heapq.heappush(queue, (distance + 1, parent))


def merge_base(
    manifest: Manifest, view: View, ours: CommitRecord, theirs: CommitRecord
) -> CommitRecord | None:
    """The common ancestor with the smallest summed distance; among equals the newest.

    Both histories are walked outwards in step, so the cost follows the distance to the base, not the length of
    the history.
    """
    walks = [distances(manifest, view, ours), distances(manifest, view, theirs)]
    seen: list[dict[str, int]] = [{}, {}]
    best: tuple[tuple[int, int], CommitRecord] | None = None
    active = [True, True]
    while any(active):
        for side in (0, 1):
            if not active[side]:
                continue
            step = next(walks[side], None)
            if step is None:
                active[side] = False
                continue
            distance, commit = step
            if best is not None and distance > best[0][0]:
                # Everything this side still has is farther than the best sum already found.
                active[side] = False
                continue
            seen[side][commit.id] = distance
            other = seen[1 - side].get(commit.id)
            if other is not None:
                rank = (distance + other, -commit.created_at)
                # Clocks may agree to the microsecond; the id then makes both directions answer the same.
                if best is None or rank < best[0] or (rank == best[0] and commit.id > best[1].id):
                    best = rank, commit
    return None if best is None else best[1]

"""Lineage: walking commits along their parents, and where two histories meet."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TypeAlias

from omnigraph.errors import NotFound
from omnigraph.lang.temporal import parse_datetime
from omnigraph.store.manifest.manifest import Manifest, View
from omnigraph.store.manifest.records import CommitRecord

GetCommit: TypeAlias = Callable[[str], CommitRecord]


def get_commit(manifest: Manifest, view: View, id_: str) -> CommitRecord:
    """A commit by its id, or `NotFound`."""
    found = manifest.find_commit(view, id_)
    if found is None:
        moment = parse_datetime(id_) is not None
        raise NotFound(
            f"commit '{id_}' not found",
            details={"commit_id": id_},
            hint="commits are named by their ids, moments by a datetime" if moment else None,
        )
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


def distances(get: GetCommit, start: CommitRecord) -> Iterator[tuple[int, CommitRecord]]:
    """Every ancestor with its shortest distance over both parents, nearest first."""
    seen = {start.id}
    queue: list[tuple[int, str]] = [(0, start.id)]
    while queue:
        distance, id_ = heapq.heappop(queue)
        commit = start if id_ == start.id else get(id_)
        yield distance, commit
        for parent in (commit.parent, commit.merged_parent):
            if parent is not None and parent not in seen:
                seen.add(parent)
                heapq.heappush(queue, (distance + 1, parent))


def merge_base(get: GetCommit, ours: CommitRecord, theirs: CommitRecord) -> CommitRecord | None:
    """The best common ancestor: no descendant of it is one.

    Of several it is the one with the smallest summed distance, and among equals the newest. The cost follows the
    commits since then, not the length of the history.
    """
    found = best_common_ancestors(get, ours, theirs)
    if len(found) < 2:
        return found[0] if found else None
    apart = dict.fromkeys((commit.id for commit in found), 0)
    for side in (ours, theirs):
        left = set(apart)
        for distance, commit in distances(get, side):
            if commit.id in left:
                apart[commit.id] += distance
                left.discard(commit.id)
            if not left:
                break
    nearest = min(apart.values())
    # Clocks may agree to the microsecond; the id then makes both directions answer the same.
    return max(
        (commit for commit in found if apart[commit.id] == nearest),
        key=lambda commit: (commit.created_at, commit.id),
    )


_OURS, _THEIRS, _BELOW = 1, 2, 4
_COMMON = _OURS | _THEIRS


def best_common_ancestors(get: GetCommit, ours: CommitRecord, theirs: CommitRecord) -> list[CommitRecord]:
    """The common ancestors that are ancestors of no other one.

    Commits are older than their children over both parents, so that newest first every commit is met after all
    that lead to it. What lies below a common ancestor is marked and never one of the best.
    """
    marks = {ours.id: _OURS}
    marks[theirs.id] = marks.get(theirs.id, 0) | _THEIRS
    queue = [
        (-commit.created_at, commit.id, commit) for commit in {ours.id: ours, theirs.id: theirs}.values()
    ]
    heapq.heapify(queue)
    # How many commits are waiting that could still lead to something new.
    open_ = len(queue)
    found: list[CommitRecord] = []
    while open_:
        _, id_, commit = heapq.heappop(queue)
        mark = marks[id_]
        open_ -= not mark & _BELOW
        if mark & _COMMON == _COMMON and not mark & _BELOW:
            found.append(commit)
            mark |= _BELOW
        for parent in (commit.parent, commit.merged_parent):
            if parent is None:
                continue
            before = marks.get(parent)
            after = mark if before is None else before | mark
            marks[parent] = after
            if before is None:
                above = get(parent)
                heapq.heappush(queue, (-above.created_at, parent, above))
                open_ += not after & _BELOW
            elif after & _BELOW and not before & _BELOW:
                open_ -= 1
    return found

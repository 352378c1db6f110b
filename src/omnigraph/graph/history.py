"""Commit lineage: walks along the parents of commits, and merge bases."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from omnigraph.errors import NotFound
from omnigraph.lang.temporal import floor_datetime
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord, HeadRecord

GetCommit: TypeAlias = Callable[[str], CommitRecord]

# The number of levels of merge bases that a merge reads: those of the heads, those of the merge bases, and so on.
MAX_BASE_DEPTH: Final = 16


def get_commit(manifest: Manifest, view: ManifestView, id_: str) -> CommitRecord:
    """Return a commit by its id; `NotFound` if there is none."""
    found = manifest.find_commit(view, id_)
    if found is None:
        is_datetime = floor_datetime(id_) is not None
        raise NotFound(
            f"commit '{id_}' not found",
            details={"commit_id": id_},
            hint="this is a time, not a commit id: pass it as a datetime" if is_datetime else None,
        )
    return found


def branch_heads(manifest: Manifest, view: ManifestView) -> list[HeadRecord]:
    """Return the heads of all branches; `StorageError` if the head of a branch is missing."""
    heads: list[HeadRecord] = []
    # Many branches at rest have the same head commit.
    commits: dict[str, CommitRecord] = {}
    for name, entry in manifest.branches_after(view, None):
        commit = commits.get(entry.commit or "")
        if commit is not None:
            heads.append(HeadRecord(name, entry.incarnation, commit))
            continue
        head = manifest.head_of(view, name, entry)
        heads.append(head)
        if entry.commit is not None:
            commits[entry.commit] = head.commit
    return heads


def first_parents(manifest: Manifest, view: ManifestView, start: CommitRecord) -> Iterator[CommitRecord]:
    """Yield a commit and its first parents, newest first, down to the first commit."""
    commit = start
    yield commit
    while commit.parent is not None:
        commit = get_commit(manifest, view, commit.parent)
        yield commit


def commit_at(manifest: Manifest, view: ManifestView, head: CommitRecord, moment: int) -> CommitRecord:
    """Return the newest first parent that is not newer than a time in microseconds since the epoch."""
    for commit in first_parents(manifest, view, head):
        if commit.created_at <= moment:
            return commit
    raise NotFound("the graph did not exist yet at that time", details={"created_at": moment})


def ancestors_by_distance(get: GetCommit, start: CommitRecord) -> Iterator[tuple[int, CommitRecord]]:
    """Yield every ancestor with its shortest distance over both parents, nearest first."""
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


_OURS, _THEIRS, _BELOW = 1, 2, 4
_COMMON = _OURS | _THEIRS


def best_common_ancestors(
    get: GetCommit, ours: Sequence[CommitRecord], theirs: Sequence[CommitRecord]
) -> list[CommitRecord]:
    """Return the common ancestors that are not ancestors of another common ancestor, oldest first.

    Several commits on a side stand for a merge of them: their ancestors are those of any of them.

    A commit is older than its children, over both parents. Commits are visited newest first, so every commit is
    visited after all its descendants. Ancestors of a common ancestor are marked and never returned. The cost
    depends on the number of commits since the merge bases, not on the length of the history.
    """
    marks: dict[str, int] = {}
    for mark, side in ((_OURS, ours), (_THEIRS, theirs)):
        for commit in side:
            marks[commit.id] = marks.get(commit.id, 0) | mark
    starts = {commit.id: commit for commit in (*ours, *theirs)}
    queue = [(-commit.created_at, commit.id, commit) for commit in starts.values()]
    heapq.heapify(queue)
    # The number of queued commits that are not below a common ancestor.
    unresolved = len(queue)
    best: list[CommitRecord] = []
    while unresolved:
        _, id_, commit = heapq.heappop(queue)
        mark = marks[id_]
        unresolved -= not mark & _BELOW
        if mark & _COMMON == _COMMON and not mark & _BELOW:
            best.append(commit)
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
                unresolved += not after & _BELOW
            elif after & _BELOW and not before & _BELOW:
                unresolved -= 1
    return sorted(best, key=lambda commit: (commit.created_at, commit.id))


def virtual_base_ancestors(get: GetCommit, ours: CommitRecord, theirs: CommitRecord) -> list[CommitRecord]:
    """Return every commit whose state a merge of two commits compares as a merge base.

    With one best common ancestor it is the only one. Several are merged into a virtual merge base, which needs
    the common ancestors of those, and so on, down to `MAX_BASE_DEPTH` levels.
    """
    found: dict[str, CommitRecord] = {}
    seen: set[tuple[frozenset[str], str]] = set()
    level: list[tuple[Sequence[CommitRecord], CommitRecord]] = [((ours,), theirs)]
    for _ in range(MAX_BASE_DEPTH):
        below: list[tuple[Sequence[CommitRecord], CommitRecord]] = []
        for many, one in level:
            pair = (frozenset(commit.id for commit in many), one.id)
            if pair in seen:
                continue
            seen.add(pair)
            bases = best_common_ancestors(get, many, (one,))
            found.update((commit.id, commit) for commit in bases)
            below += [(bases[:number], bases[number]) for number in range(1, len(bases))]
        level = below
    return list(found.values())

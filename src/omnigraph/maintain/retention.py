"""Retention: which commits keep their data during garbage collection.

The newest commits of each branch, commits that were a head recently, and all heads are retained. Merge bases of
branches are retained whatever their age, because a branch could not be merged without them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache, partial
from itertools import combinations

from omnigraph.errors import InvalidInput
from omnigraph.graph.branch_names import MAIN
from omnigraph.graph.history import GetCommit, virtual_base_ancestors
from omnigraph.maintain.commit_memory import CommitMemory
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord, HeadRecord

_DURATION = re.compile(r"([0-9]+)\s*([smhdw]?)")
_UNITS = {"": "seconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MICROSECOND = timedelta(microseconds=1)

# A head that is further from the one before is treated as unrelated.
_MAX_EXTENSION = 10_000
# With at most this many branches, the merge bases of all pairs are retained. More pairs would take too long.
MAX_BRANCHES_FOR_ALL_PAIRS = 64


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention policy. With both limits a commit is retained if either limit retains it."""

    keep: int | None = None
    older_than: timedelta | None = None

    @classmethod
    def of(cls, keep: int | None, older_than: timedelta | str | None) -> Retention:
        """Return a checked policy; `InvalidInput` if a value is invalid or both are missing."""
        if keep is None and older_than is None:
            raise InvalidInput("cleanup requires at least one of --keep or --older-than")
        if keep is not None and type(keep) is not int:
            raise InvalidInput(f"keep: expected a whole number, got {keep!r}")
        if keep is not None and keep < 1:
            raise InvalidInput(f"keep: expected at least 1, got {keep}; the head of a branch is always kept")
        return cls(keep, None if older_than is None else parse_duration(older_than))


def parse_duration(value: timedelta | str) -> timedelta:
    """Parse a duration: a whole number and one of the units `s m h d w`; without a unit it is in seconds.

    >>> parse_duration("7d"), parse_duration("90")
    (datetime.timedelta(days=7), datetime.timedelta(seconds=90))
    """
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise InvalidInput(f"{value} is not a duration: it is negative")
        return value
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise InvalidInput(
            f"'{value}' is not a duration",
            hint="write a whole number and a unit, such as 45s, 30m, 12h, 7d or 2w; without a unit it is seconds",
        )
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except (OverflowError, ValueError) as error:
        raise InvalidInput(f"'{value}' is too long a duration") from error


def micros(duration: timedelta) -> int:
    """Return a duration in microseconds.

    >>> micros(timedelta(seconds=2))
    2000000
    """
    return duration // _MICROSECOND


def retained_commits(
    get: GetCommit,
    heads: Iterable[CommitRecord],
    *,
    keep: int,
    since: int,
    known: dict[str, int] | None = None,
) -> Iterator[CommitRecord]:
    """Yield the commits less than `keep` steps below a head, and those that were a head at `since` or later.

    A step follows either parent, so merged commits count like those of the target branch. A commit was a head until
    its successor was created. `since` is in microseconds since the epoch. Heads are always included.

    `known` has the distance of each commit that an earlier call has yielded, and is extended. A commit in it is
    yielded again, and its parents are followed, only if it is now nearer to a head.
    """
    distances = {} if known is None else known
    queue: deque[tuple[int, CommitRecord]] = deque()
    for commit in {item.id: item for item in heads}.values():
        distances[commit.id] = 0
        queue.append((0, commit))
    while queue:
        distance, commit = queue.popleft()
        yield commit
        if distance + 1 >= keep and commit.created_at <= since:
            continue
        for parent in (commit.parent, commit.merged_parent):
            if parent is not None and distances.get(parent, distance + 2) > distance + 1:
                distances[parent] = distance + 1
                queue.append((distance + 1, get(parent)))


class MergeBases:
    """The merge bases of branches, with a memory of commits and of merge bases.

    The bases of two branches stay the same while both get only commits with one parent. If the same instance is
    used again, only the commits since the last use are read for such branches.
    """

    def __init__(self, manifest: Manifest, commits: CommitMemory | None = None) -> None:
        self._commits = CommitMemory(manifest) if commits is None else commits
        self._bases: dict[tuple[str, str], _Bases] = {}

    def of(self, view: ManifestView, heads: Sequence[HeadRecord]) -> list[CommitRecord]:
        """Return the merge bases of all pairs of branches, and those that a virtual merge base is built from.

        With many branches only likely merges are considered: a branch with main, and a branch with its source.
        """
        by_name = {head.branch: head for head in heads}
        get = self._commits.getter(view)
        extends = lru_cache(maxsize=None)(partial(self._extends, get))
        found: dict[tuple[str, str], _Bases] = {}
        for branch, other in self._pairs(get, heads):
            ours, theirs = by_name[branch], by_name[other]
            pair = (ours.incarnation, theirs.incarnation)
            before = self._bases.get(pair)
            ids = (ours.commit.id, theirs.commit.id)
            if before is not None and extends(before.ours, ids[0]) and extends(before.theirs, ids[1]):
                found[pair] = replace(before, ours=ids[0], theirs=ids[1])
            else:
                bases = virtual_base_ancestors(get, ours.commit, theirs.commit)
                found[pair] = _Bases(*ids, tuple(bases))
        self._bases = found
        return list({base.id: base for item in found.values() for base in item.bases}.values())

    def _extends(self, get: GetCommit, before: str, after: str) -> bool:
        """Return whether a head is an earlier one, followed only by commits with one parent."""
        id_ = after
        for _ in range(_MAX_EXTENSION):
            if id_ == before:
                return True
            commit = get(id_)
            if commit.merged_parent is not None or commit.parent is None:
                return False
            id_ = commit.parent
        return False

    def _pairs(self, get: GetCommit, heads: Sequence[HeadRecord]) -> Iterable[tuple[str, str]]:
        if len(heads) <= MAX_BRANCHES_FOR_ALL_PAIRS:
            return combinations(sorted(head.branch for head in heads), 2)
        names = {head.incarnation: head.branch for head in heads}
        others = [head for head in heads if head.branch != MAIN]
        sources = {head.branch: names.get(_source_branch(get, head), MAIN) for head in others}
        return {*((head.branch, MAIN) for head in others), *sources.items()}


@dataclass(frozen=True, slots=True)
class _Bases:
    """The merge bases of two branches, with the heads that they were computed for."""

    ours: str
    theirs: str
    bases: tuple[CommitRecord, ...]


def _source_branch(get: GetCommit, head: HeadRecord) -> str:
    """Return the incarnation of the branch that a branch was created from."""
    commit = head.commit
    while commit.incarnation == head.incarnation and commit.parent is not None:
        commit = get(commit.parent)
    return commit.incarnation

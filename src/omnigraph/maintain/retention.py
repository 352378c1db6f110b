"""Retention: which commits keep their data during garbage collection.

The newest commits of each branch, commits that were a head recently, and all heads are retained. Merge bases of
branches are retained whatever their age, because a branch could not be merged without them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import combinations

from omnigraph.errors import InvalidInput
from omnigraph.graph.branch_names import MAIN
from omnigraph.graph.history import GetCommit, get_commit, virtual_base_ancestors
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord, HeadRecord

_DURATION = re.compile(r"([0-9]+)\s*([smhdw]?)")
_UNITS = {"": "seconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MICROSECOND = timedelta(microseconds=1)

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
    manifest: Manifest, view: ManifestView, heads: Iterable[CommitRecord], *, keep: int, since: int
) -> list[CommitRecord]:
    """Return the commits less than `keep` steps below a head, and those that were a head at `since` or later.

    A step follows either parent, so merged commits count like those of the target branch. A commit was a head until
    its successor was created. `since` is in microseconds since the epoch. Heads are always included.
    """
    retained = {commit.id: commit for commit in heads}
    queue = deque((0, commit) for commit in retained.values())
    while queue:
        distance, commit = queue.popleft()
        if distance + 1 >= keep and commit.created_at <= since:
            continue
        for parent in (commit.parent, commit.merged_parent):
            if parent is not None and parent not in retained:
                retained[parent] = get_commit(manifest, view, parent)
                queue.append((distance + 1, retained[parent]))
    return list(retained.values())


class MergeBases:
    """The merge bases of branches, with a cache of commits and of merge bases."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._commits: dict[str, CommitRecord] = {}
        self._bases: dict[tuple[str, str], list[CommitRecord]] = {}

    def of(self, view: ManifestView, heads: Sequence[HeadRecord]) -> list[CommitRecord]:
        """Return the merge bases of all pairs of branches, and those that a virtual merge base is built from.

        With many branches only likely merges are considered: a branch with main, and a branch with its source.
        """
        commits = {head.branch: head.commit for head in heads}
        get = partial(self._get, view)
        bases: dict[str, CommitRecord] = {}
        for branch, other in self._pairs(get, heads):
            ours, theirs = commits[branch], commits[other]
            if (ours.id, theirs.id) not in self._bases:
                self._bases[ours.id, theirs.id] = virtual_base_ancestors(get, ours, theirs)
            bases.update((base.id, base) for base in self._bases[ours.id, theirs.id])
        return list(bases.values())

    def _get(self, view: ManifestView, id_: str) -> CommitRecord:
        commit = self._commits.get(id_)
        if commit is None:
            commit = self._commits[id_] = get_commit(self._manifest, view, id_)
        return commit

    def _pairs(self, get: GetCommit, heads: Sequence[HeadRecord]) -> Iterable[tuple[str, str]]:
        if len(heads) <= MAX_BRANCHES_FOR_ALL_PAIRS:
            return combinations(sorted(head.branch for head in heads), 2)
        names = {head.incarnation: head.branch for head in heads}
        others = [head for head in heads if head.branch != MAIN]
        sources = {head.branch: names.get(_source_branch(get, head), MAIN) for head in others}
        return {*((head.branch, MAIN) for head in others), *sources.items()}


def _source_branch(get: GetCommit, head: HeadRecord) -> str:
    """Return the incarnation of the branch that a branch was created from."""
    commit = head.commit
    while commit.incarnation == head.incarnation and commit.parent is not None:
        commit = get(commit.parent)
    return commit.incarnation

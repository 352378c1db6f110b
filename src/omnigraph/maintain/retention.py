"""Which commits keep their data: so many of each branch, so long after they were replaced, and every head.

The commits where live branches part keep theirs too, whatever their age: without it a branch could be read, but no
longer merged.
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
from omnigraph.graph.history import GetCommit, get_commit, merge_base
from omnigraph.store.manifest.manifest import Manifest, ManifestView
from omnigraph.store.manifest.records import CommitRecord, HeadRecord

_DURATION = re.compile(r"([0-9]+)\s*([smhdw]?)")
_UNITS = {"": "seconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MICROSECOND = timedelta(microseconds=1)

# Among so many branches any two can be merged; the pairs of more would be too many to look at.
ALL_PAIRS = 64


@dataclass(frozen=True, slots=True)
class Retention:
    """How much history keeps its data; with both limits a commit has to be beyond both to lose it."""

    keep: int | None = None
    older_than: timedelta | None = None

    @classmethod
    def of(cls, keep: int | None, older_than: timedelta | str | None) -> Retention:
        """The checked policy, or `InvalidInput`."""
        if keep is None and older_than is None:
            raise InvalidInput("cleanup requires at least one of --keep or --older-than")
        if keep is not None and type(keep) is not int:
            raise InvalidInput(f"keep is a whole number, not {keep!r}")
        if keep is not None and keep < 1:
            raise InvalidInput(f"keep is {keep}, but a branch keeps at least its newest commit")
        return cls(keep, None if older_than is None else parse_duration(older_than))


def parse_duration(given: timedelta | str) -> timedelta:
    """A length of time: a whole number and one of `s m h d w`, without a unit in seconds.

    >>> parse_duration("7d"), parse_duration("90")
    (datetime.timedelta(days=7), datetime.timedelta(seconds=90))
    """
    if isinstance(given, timedelta):
        if given < timedelta(0):
            raise InvalidInput(f"{given} is not a duration: it is negative")
        return given
    match = _DURATION.fullmatch(str(given).strip())
    if match is None:
        raise InvalidInput(
            f"'{given}' is not a duration",
            hint="write a whole number and a unit, such as 45s, 30m, 12h, 7d or 2w; without a unit it is seconds",
        )
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except (OverflowError, ValueError) as error:
        raise InvalidInput(f"'{given}' is too long a duration") from error


def micros(length: timedelta) -> int:
    """A length of time in microseconds.

    >>> micros(timedelta(seconds=2))
    2000000
    """
    return length // _MICROSECOND


def retained_commits(
    manifest: Manifest, view: ManifestView, heads: Iterable[CommitRecord], *, keep: int, since: int
) -> list[CommitRecord]:
    """Every commit fewer than `keep` steps below a head, or current on its branch at `since` or later.

    Steps go over both parents, so that what was merged counts as near as what it was merged into. A commit was
    current until its successor was made. `since` is in epoch microseconds; heads always belong.
    """
    found = {commit.id: commit for commit in heads}
    queue = deque((0, commit) for commit in found.values())
    while queue:
        distance, commit = queue.popleft()
        if distance + 1 >= keep and commit.created_at <= since:
            continue
        for parent in (commit.parent, commit.merged_parent):
            if parent is not None and parent not in found:
                found[parent] = get_commit(manifest, view, parent)
                queue.append((distance + 1, found[parent]))
    return list(found.values())


class Lineage:
    """Commits, each read from the manifest once, however often and from wherever it is met."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._commits: dict[str, CommitRecord] = {}
        self._bases: dict[tuple[str, str], CommitRecord | None] = {}

    def merge_bases(self, view: ManifestView, heads: Sequence[HeadRecord]) -> list[CommitRecord]:
        """The merge bases of every two branches; among many only of those that are likely to be merged.

        Likely are a branch and main, and a branch and the one that it was made from.
        """
        standing = {head.branch: head.commit for head in heads}
        get = partial(self._get, view)
        found: dict[str, CommitRecord] = {}
        for branch, other in self._pairs(get, heads):
            ours, theirs = standing[branch], standing[other]
            if (ours.id, theirs.id) not in self._bases:
                self._bases[ours.id, theirs.id] = merge_base(get, ours, theirs)
            base = self._bases[ours.id, theirs.id]
            if base is not None:
                found[base.id] = base
        return list(found.values())

    def _get(self, view: ManifestView, id_: str) -> CommitRecord:
        found = self._commits.get(id_)
        if found is None:
            found = self._commits[id_] = get_commit(self._manifest, view, id_)
        return found

    def _pairs(self, get: GetCommit, heads: Sequence[HeadRecord]) -> Iterable[tuple[str, str]]:
        if len(heads) <= ALL_PAIRS:
            return combinations(sorted(head.branch for head in heads), 2)
        names = {head.incarnation: head.branch for head in heads}
        others = [head for head in heads if head.branch != MAIN]
        origins = {head.branch: names.get(_origin(get, head), MAIN) for head in others}
        return {*((head.branch, MAIN) for head in others), *origins.items()}


def _origin(get: GetCommit, head: HeadRecord) -> str:
    """The incarnation of the branch at whose commit a branch began."""
    commit = head.commit
    while commit.incarnation == head.incarnation and commit.parent is not None:
        commit = get(commit.parent)
    return commit.incarnation

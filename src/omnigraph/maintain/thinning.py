"""Thinning of old commits: the last state of each minute, hour and day keeps its data.

A graph that is written a hundred times a second cannot keep the data of every state of a week. Thinning bounds the
number of retained states whatever the rate of commits: 60 of the last hour, 24 of the last day, and one for each
day before.

The last commit of an hour is also the last commit of a minute of that hour. The commits that are retained
at one time are therefore enough to choose those that are retained later, and only new commits are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeAlias

from omnigraph.graph.history import GetCommit
from omnigraph.maintain.retention import micros
from omnigraph.store.manifest.records import CommitRecord, HeadRecord

_MINUTE: Final = micros(timedelta(minutes=1))
_HOUR: Final = micros(timedelta(hours=1))
_DAY: Final = micros(timedelta(days=1))

# The id of a commit and its time in microseconds since the epoch.
Dated: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ThinnedBranch:
    """The thinned commits of one branch: those that are retained of all commits up to the commit `upto`."""

    upto: str
    kept: tuple[Dated, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"upto": self.upto, "kept": [list(item) for item in self.kept]}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ThinnedBranch:
        """Parse the JSON form."""
        return cls(str(body["upto"]), tuple((str(id_), int(moment)) for id_, moment in body["kept"]))


@dataclass
class Thinning:
    """The thinned commits of a graph, by the incarnation of the branch that made them."""

    window: int
    branches: dict[str, ThinnedBranch] = field(default_factory=dict)

    def advance(self, get: GetCommit, heads: Sequence[HeadRecord], now: int) -> list[str]:
        """Return the ids of the commits to retain at a time. Commits since the last call are read.

        Branches that do not exist any more are forgotten.
        """
        branches = {}
        for head in heads:
            before = self.branches.get(head.incarnation)
            made = list(self._made_since(get, head, before, now))
            if before is None and not made:
                # All its commits were made on other branches.
                continue
            kept = thin([*made, *(() if before is None else before.kept)], now, self.window)
            branches[head.incarnation] = ThinnedBranch(head.commit.id, tuple(kept))
        self.branches = branches
        return [id_ for branch in branches.values() for id_, _ in branch.kept]

    def _made_since(
        self, get: GetCommit, head: HeadRecord, before: ThinnedBranch | None, now: int
    ) -> Iterator[Dated]:
        """Yield the commits that were made on a branch since the last call, newest first."""
        commit: CommitRecord | None = head.commit
        while commit is not None and commit.incarnation == head.incarnation:
            if (before is not None and commit.id == before.upto) or now - commit.created_at >= self.window:
                return
            yield commit.id, commit.created_at
            commit = None if commit.parent is None else get(commit.parent)


def thin(commits: Iterable[Dated], now: int, window: int) -> list[Dated]:
    """Return the last commit of each minute of the last hour, hour of the last day, and day within the window.

    All times are in microseconds.

    >>> hours = [(f"c{number}", number * 3_600_000_000) for number in range(100)]
    >>> len(thin(hours, now=hours[-1][1], window=100 * 3_600_000_000))
    28
    """
    last: dict[tuple[int, int], Dated] = {}
    for commit in commits:
        age = now - commit[1]
        if age >= window:
            continue
        unit = _MINUTE if age < _HOUR else _HOUR if age < _DAY else _DAY
        key = (unit, commit[1] // unit)
        if key not in last or (commit[1], commit[0]) > (last[key][1], last[key][0]):
            last[key] = commit
    return list(last.values())

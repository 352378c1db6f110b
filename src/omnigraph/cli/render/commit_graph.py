"""A drawing of a commit graph: one column for each line of history, newest commit first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.api.results.commits import Commit


def draw_commits(commits: Sequence[Commit]) -> Iterator[tuple[str, Commit | None]]:
    """Yield the lines of a drawing: those of the commits, and between them the lines that join columns.

    Commits must come before their parents. A parent that is not among the commits leaves its column open.

    >>> from datetime import UTC, datetime
    >>> from omnigraph.api.results.commits import Commit
    >>> def commit(id_, *parents):
    ...     return Commit(id_, parents, "main", 1, None, datetime.now(UTC), "load", None)
    >>> merged = [commit("d", "c", "b"), commit("c", "a"), commit("b", "a"), commit("a")]
    >>> for line, at in draw_commits(merged):
    ...     print(f"{line} {at.id}" if at else line)
    * d
    |\\
    * | c
    | * b
    |/
    * a
    """
    columns: list[str] = []
    for commit in commits:
        if commit.id not in columns:
            columns.append(commit.id)
        yield from _join_columns(columns, commit.id)
        place = columns.index(commit.id)
        marks = ["*" if number == place else "|" for number in range(len(columns))]
        yield " ".join(marks), commit
        if not commit.parents:
            del columns[place]
            continue
        columns[place] = commit.parents[0]
        if len(commit.parents) > 1:
            columns.insert(place + 1, commit.parents[1])
            yield " ".join("|" * (place + 1)) + "\\" + " \\" * len(columns[place + 2 :]), None


def _join_columns(columns: list[str], id_: str) -> Iterator[tuple[str, None]]:
    """Yield the lines that lead the columns of one commit into the first of them, from the last one on."""
    while columns.count(id_) > 1:
        before, last = [number for number, item in enumerate(columns) if item == id_][-2:]
        # A column that is not the neighbour crosses those between.
        crossed = "_|" * (last - before - 1)
        yield " ".join("|" * (before + 1)) + crossed + "/" + " /" * len(columns[last + 1 :]), None
        del columns[last]

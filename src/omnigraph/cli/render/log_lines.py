"""The lines of a log: aligned columns, cut to the width of the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from omnigraph.api.display.terminal_text import display_width, fitting_length
from omnigraph.cli.render.commit_graph import draw_commits
from omnigraph.cli.render.output import escape_unprintable

if TYPE_CHECKING:
    from datetime import datetime

    from omnigraph.api.results.commits import Commit


def log_lines(
    commits: Sequence[Commit], tags: Mapping[str, Sequence[str]], *, draw: bool, width: int | None
) -> Iterator[str]:
    """Yield a line for each commit: short id, time in UTC, actor, operation, branch, tags and message.

    `tags` has the names of tags by commit id. With `draw` the commit graph is drawn before the columns. Lines are
    cut at `width`; None cuts none.
    """
    from omnigraph.graph.state_names import abbreviate

    if not commits:
        return
    short = abbreviate([commit.id for commit in commits])
    cells = {commit.id: _cells(commit, short[commit.id]) for commit in commits}
    sizes = [max(map(display_width, column)) for column in zip(*cells.values(), strict=True)]
    drawn = list(draw_commits(commits)) if draw else [("", commit) for commit in commits]
    margin = max(len(line) for line, _ in drawn)
    for line, commit in drawn:
        if commit is None:
            yield line
            continue
        padded = [
            text + " " * (size - display_width(text))
            for text, size in zip(cells[commit.id], sizes, strict=True)
        ]
        names = "".join(f"[{escape_unprintable(name)}] " for name in tags.get(commit.id, ()))
        note = names + ("" if commit.message is None else escape_unprintable(commit.message))
        start = f"{line:<{margin}}  " if draw else ""
        yield _cut(f"{start}{'  '.join(padded)}  {note}".rstrip(), width)


def format_time(moment: datetime) -> str:
    """Return a time in UTC to the second.

    >>> from datetime import UTC, datetime
    >>> format_time(datetime(2026, 5, 4, 9, 30, 5, tzinfo=UTC))
    '2026-05-04 09:30:05Z'
    """
    return f"{moment:%Y-%m-%d %H:%M:%SZ}"


def _cells(commit: Commit, short: str) -> list[str]:
    actor = "-" if commit.actor is None else escape_unprintable(commit.actor)
    operation = f"{commit.operation} (recovered)" if commit.recovered else commit.operation
    return [short, format_time(commit.created_at), actor, operation, escape_unprintable(commit.branch)]


def _cut(text: str, width: int | None) -> str:
    if width is None or display_width(text) <= width:
        return text
    return text[: fitting_length(text, width - 1)] + "…"

"""Commits that print as a table."""

from __future__ import annotations

import shutil
from typing import Final

from omnigraph.api.results.commits import Commit

_COLUMNS: Final = ("commit", "time", "actor", "operation", "branch", "message")
_SHOWN: Final = 20


class CommitList(list[Commit]):
    """A list of commits, which prints as a table and is shown as one in notebooks.

    >>> import omnigraph as og
    >>> commits = og.init("memory://docs-commit-list", schema="node City { name: String @key }").commits()
    >>> len(commits), str(commits).splitlines()[-1]
    (1, '1 commit')
    """

    def __repr__(self) -> str:
        from omnigraph.api.display.text_table import fitted_table_lines

        width = shutil.get_terminal_size().columns
        return "\n".join([*fitted_table_lines(_COLUMNS, self._rows(), width), self._caption()])

    def _repr_html_(self) -> str:
        from omnigraph.api.display.html_table import html_table

        return html_table(list(_COLUMNS), self._rows(), self._caption())

    def _rows(self) -> list[list[str]]:
        return [
            [
                commit.id,
                f"{commit.created_at:%Y-%m-%d %H:%M:%SZ}",
                commit.actor or "",
                commit.operation,
                commit.branch,
                commit.message or "",
            ]
            for commit in self[:_SHOWN]
        ]

    def _caption(self) -> str:
        total = f"{len(self):,} {'commit' if len(self) == 1 else 'commits'}"
        return f"{_SHOWN} of {total}" if len(self) > _SHOWN else total

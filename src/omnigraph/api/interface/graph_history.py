"""The methods of `Graph` that read its history."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from omnigraph.api.results.commits import Commit, check_limit

if TYPE_CHECKING:
    from omnigraph.api.results.maintenance_reports import Recovery


class GraphHistory(ABC):
    """Commits and the outcomes of recovery."""

    def commits(self, branch: str = "main", limit: int | None = 50, actor: str | None = None) -> list[Commit]:
        """Return the commits of a branch, newest first, including those before the branch was created.

        `limit` is the maximum number of commits, None for all. `actor` selects the commits of one actor.
        """
        check_limit(limit)
        return self._commits(branch, limit, actor)

    @abstractmethod
    def commit(self, id: str) -> Commit:  # noqa: A002 - the name is part of the API
        """Return a commit by its id. Raises `NotFound` if there is none."""

    @abstractmethod
    def recoveries(self) -> list[Recovery]:
        """Return the outcomes of interrupted bulk writes on all branches, newest first.

        >>> import omnigraph as og
        >>> og.init("memory://docs-recoveries", schema="node City { name: String @key }").recoveries()
        []
        """

    @abstractmethod
    def _commits(self, branch: str, limit: int | None, actor: str | None) -> list[Commit]: ...

"""The methods of `Graph` that read its history."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from omnigraph.api.results.commit_list import CommitList
from omnigraph.api.results.commits import At, Commit, check_limit
from omnigraph.api.results.history import EntityVersion, PropertyOrigin
from omnigraph.errors import InvalidInput
from omnigraph.graph.argument_checks import check_text, require_text

if TYPE_CHECKING:
    from omnigraph.api.results.maintenance_reports import Recovery


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The arguments of `Graph.commits`."""

    branch: str = "main"
    limit: int | None = 50
    actor: str | None = None
    at: At = None
    since: datetime | None = None
    types: tuple[str, ...] = ()
    merged: bool = False


class GraphHistory(ABC):
    """Commits, the versions of entities, and the outcomes of recovery."""

    def commits(
        self,
        branch: str = "main",
        limit: int | None = 50,
        actor: str | None = None,
        *,
        at: At = None,
        since: datetime | None = None,
        types: Sequence[str] | None = None,
        merged: bool = False,
    ) -> list[Commit]:
        """Return the commits of a branch, newest first, including those before the branch was created.

        `limit` is the maximum number of commits, None for all. `at` begins with an older state: the commit after
        the last one of a page is ``f"{page[-1].id}~1"``. `actor` selects the commits of one actor, `types` those
        that changed rows of one of these types, and `since` those that are not older than a time. With `merged` the
        commits of merged branches are included.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-commits", schema="node City { name: String @key }")
        >>> for name in ("Bern", "Rome"):
        ...     _ = g.load({"City": [{"name": name}]}, message=f"add {name}")
        >>> [commit.message for commit in g.commits(types=["City"], limit=1)]
        ['add Rome']
        >>> [commit.message for commit in g.commits(at="HEAD~1", limit=1)]
        ['add Bern']
        """
        check_limit(limit)
        check_text("actor", actor)
        if since is not None and not isinstance(since, datetime):
            raise InvalidInput(f"`since` must be a datetime, got {since!r}")
        if isinstance(types, str):
            raise InvalidInput(f"expected a list of types, got the text '{types}'")
        names = tuple(require_text("type", name) for name in types or ())
        return CommitList(self._commits(LogOptions(branch, limit, actor, at, since, names, merged)))

    @abstractmethod
    def commit(self, id: str) -> Commit:  # noqa: A002 - the name is part of the API
        """Return a commit by its id or another name of it. Raises `NotFound` if there is none.

        A commit is named by its id or the first characters of it, at least 4; by a tag; by a branch, which is its
        head; or relative to one of these: ``review~2`` is two commits before the head of `review`, ``v1^2`` the
        commit that `v1` merged, and ``main@{2026-05-04T12:00Z}`` the state of a branch at a time. ``HEAD`` is the
        branch of the call, here `main`.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-commit", schema="node City { name: String @key }")
        >>> first = g.commits()[0].id
        >>> _ = g.load({"City": [{"name": "Bern"}]})
        >>> g.commit("HEAD~1").id == g.commit(first[:20]).id == first
        True
        """

    def history(
        self,
        type_name: str,
        id: str | int,  # noqa: A002 - the name is part of the API
        *,
        branch: str = "main",
        at: At = None,
        limit: int | None = None,
    ) -> list[EntityVersion]:
        """Return the versions of a node or edge, newest first: each commit that changed it, and what it changed.

        The list includes deletions, and the versions before them. A change that was made on a merged branch is
        that of the commit on that branch. A merge is listed only if its result differs from both sides. An entity
        that never existed has no versions.

        The cost is that of the commits that wrote the row, and of the merges: other commits are passed without
        reading data. While the entity does not exist, the commits that removed rows of its type are read as well.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-history", schema="node City { name: String @key  mayor: String? }")
        >>> _ = g.load({"City": [{"name": "Bern", "mayor": "Ana"}]}, actor="ana")
        >>> _ = g.load({"City": [{"name": "Bern", "mayor": "Bo"}]}, mode="merge", actor="bo")
        >>> [(version.op, version.actor, version.changed) for version in g.history("City", "Bern")]
        [('update', 'bo', ('mayor',)), ('insert', 'ana', ())]
        """
        from omnigraph.catalog.keys import id_text

        check_limit(limit)
        return self._history(require_text("type_name", type_name), id_text(id), branch, at, limit)

    def blame(
        self,
        type_name: str,
        id: str | int,  # noqa: A002 - the name is part of the API
        *,
        branch: str = "main",
        at: At = None,
    ) -> list[PropertyOrigin]:
        """Return for each property of a node or edge its value and the commit that set it.

        Raises `NotFound` if the state does not have the entity. See `history` for the cost and for merges.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-blame", schema="node City { name: String @key  mayor: String? }")
        >>> _ = g.load({"City": [{"name": "Bern", "mayor": "Ana"}]}, actor="ana")
        >>> _ = g.load({"City": [{"name": "Bern", "mayor": "Bo"}]}, mode="merge", actor="bo")
        >>> [(item.property, item.value, item.commit.actor) for item in g.blame("City", "Bern")]
        [('mayor', 'Bo', 'bo'), ('name', 'Bern', 'ana')]
        """
        from omnigraph.catalog.keys import id_text

        return self._blame(require_text("type_name", type_name), id_text(id), branch, at)

    @abstractmethod
    def recoveries(self) -> list[Recovery]:
        """Return the outcomes of interrupted bulk writes on all branches, newest first.

        >>> import omnigraph as og
        >>> og.init("memory://docs-recoveries", schema="node City { name: String @key }").recoveries()
        []
        """

    @abstractmethod
    def _commits(self, options: LogOptions) -> list[Commit]: ...

    @abstractmethod
    def _history(
        self, type_name: str, id_: str, branch: str, at: At, limit: int | None
    ) -> list[EntityVersion]: ...

    @abstractmethod
    def _blame(self, type_name: str, id_: str, branch: str, at: At) -> list[PropertyOrigin]: ...

"""The branches of a graph."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from dataclasses import dataclass

from omnigraph.api.results.commits import At, check_limit
from omnigraph.api.results.merges import Merged, MergeRequest, Resolve
from omnigraph.graph.argument_checks import check_text, require_text
from omnigraph.graph.progress import Progress

_SHOWN_BRANCHES = 50


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch and the id of its head commit."""

    name: str
    commit_id: str


class Branches(ABC):
    """The branches of a graph; the `branches` attribute of `Graph`. A notebook displays their names."""

    def __repr__(self) -> str:
        names = self.list(limit=_SHOWN_BRANCHES + 1)
        more = ", …" if len(names) > _SHOWN_BRANCHES else ""
        return f"Branches({', '.join(names[:_SHOWN_BRANCHES])}{more})"

    def _repr_html_(self) -> str:
        from omnigraph.api.display.html_table import html_table

        names = self.list(limit=_SHOWN_BRANCHES + 1)
        shown = names[:_SHOWN_BRANCHES]
        more = " and more" if len(names) > len(shown) else ""
        caption = f"{len(shown)} {'branch' if len(shown) == 1 else 'branches'}{more}"
        return html_table(["branch"], [[name] for name in shown], caption)

    def list(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of the branches, sorted.

        `prefix` selects the names that begin with a text. `limit` is the maximum number of names, None for all.
        `after` continues a list after a name, which need not exist: the last name of a page gives the next page.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-branches", schema="node City { name: String @key }")
        >>> for number in range(5):
        ...     _ = g.branches.create(f"agent-{number}")
        >>> g.branches.list(prefix="agent-", limit=2)
        ['agent-0', 'agent-1']
        >>> g.branches.list(prefix="agent-", limit=2, after="agent-1")
        ['agent-2', 'agent-3']
        """
        check_limit(limit)
        require_text("prefix", prefix)
        check_text("after", after)
        return self._list(prefix, after, limit)

    def create(self, name: str, source: str = "main", *, at: At = None, actor: str | None = None) -> Branch:
        """Create a branch at the head of `source`, or at the state `at`. No data is copied.

        Raises `Conflict` if the branch exists.
        """
        return self._create(name, source, at, actor)

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a branch. Its name can be used again immediately."""

    def merge(
        self,
        source: str,
        into: str = "main",
        *,
        delete_source: bool = False,
        resolve: Resolve = None,
        dry_run: bool = False,
        message: str | None = None,
        if_commit: str | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> Merged:
        """Merge the branch `source` into the branch `into`, as one commit with two parents.

        Changes that both sides made to an entity are merged property by property. If both sides changed the same
        property, `MergeConflicts` is raised and neither branch changes. `resolve` resolves conflicts: ``"ours"``
        takes the value of `into`, ``"theirs"`` the value of `source`. A mapping from conflict id to a side or to
        ``{"value": ...}`` resolves them one by one; its key ``"*"`` applies to all other conflicts.

        With `dry_run` nothing is committed and the result lists the conflicts. `delete_source` deletes the branch
        after the merge, unless it has new commits. `if_commit` raises `PreconditionFailed` unless the head of
        `into` is this commit.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-merge", schema="node City { name: String @key  mayor: String? }")
        >>> _ = g.branches.create("review")
        >>> _ = g.mutate('query add() { insert City { name: "Bern" } }', branch="review")
        >>> g.branches.merge("review").outcome
        'fast_forward'
        >>> g.get("City", "Bern")
        {'id': 'Bern', 'mayor': None, 'name': 'Bern'}
        """
        options = MergeRequest(into, resolve, dry_run, message, if_commit, actor, progress, delete_source)
        return self._merge(source, options)

    @abstractmethod
    def _list(self, prefix: str, after: str | None, limit: int | None) -> builtins.list[str]: ...

    @abstractmethod
    def _create(self, name: str, source: str, at: At, actor: str | None) -> Branch: ...

    @abstractmethod
    def _merge(self, source: str, options: MergeRequest) -> Merged: ...

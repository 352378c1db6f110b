"""The branches of a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from omnigraph.api.results.commits import At
from omnigraph.api.results.merges import Merged, MergeRequest, Resolve
from omnigraph.graph.progress import Progress


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch and the id of its head commit."""

    name: str
    commit_id: str


class Branches(ABC):
    """The branches of a graph; the `branches` attribute of `Graph`."""

    @abstractmethod
    def list(self) -> list[str]:
        """Return the names of all branches, sorted."""

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
    def _create(self, name: str, source: str, at: At, actor: str | None) -> Branch: ...

    @abstractmethod
    def _merge(self, source: str, options: MergeRequest) -> Merged: ...

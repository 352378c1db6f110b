"""The branches of a graph, from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from omnigraph.api.access import Guard
from omnigraph.api.commits import At, Branch, state_at
from omnigraph.api.merges import Merged, MergeRequest, Resolve, run_merge

if TYPE_CHECKING:
    from omnigraph.graph.repository import Repository


class Branches:
    """The branches of a graph."""

    def __init__(self, repository: Repository, guard: Guard) -> None:
        self._repository = repository
        self._guard = guard

    def list(self) -> list[str]:
        """Names of all branches, sorted."""
        self._guard.admit("read")
        return list(self._repository.branches())

    def create(self, name: str, source: str = "main", *, at: At = None, actor: str | None = None) -> Branch:
        """Make a branch at another's head, or at a commit or moment. Costs one row."""
        actor = self._guard.admit("branch_create", source, name, actor=actor)
        head = self._repository.create_branch(name, source, at=state_at(at), actor=actor)
        return Branch(head.branch, head.commit.id)

    def delete(self, name: str) -> None:
        """Delete a branch; its name is free at once."""
        self._guard.admit("branch_delete", target=name)
        self._repository.delete_branch(name)

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
        progress: Callable[[str, int], None] | None = None,
    ) -> Merged:
        """Bring what a branch did into another, as one commit with two parents, or refuse with `MergeConflicts`.

        Entities that both changed merge property by property. `resolve` settles conflicts: ``"ours"`` is what
        `into` has, ``"theirs"`` what `source` has; a mapping settles them one by one by their ids, with a side or
        with ``{"value": ...}``, and ``"*"`` is for the rest. With `dry_run` nothing is committed and conflicts are
        told in the outcome.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-merge", schema="node City { name: String @key  mayor: String? }")
        >>> _ = g.branches.create("review")
        >>> _ = g.mutate('query add() { insert City { name: "Bern" } }', branch="review")
        >>> g.branches.merge("review").outcome
        'fast_forward'
        >>> g.get("City", "Bern")
        {'id': 'Bern', 'mayor': None, 'name': 'Bern'}
        """
        actor = self._guard.admit("branch_merge", source, into, actor=actor)
        request = MergeRequest(into, resolve, dry_run, message, if_commit, actor, progress)
        return run_merge(self._repository, source, request, self._guard, delete_source=delete_source)

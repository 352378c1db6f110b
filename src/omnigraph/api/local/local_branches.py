"""The branches of a local graph."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.api.interface.branches import Branch, Branches
from omnigraph.api.local.local_merges import run_merge
from omnigraph.api.results.commits import At
from omnigraph.api.results.merges import Merged, MergeRequest

if TYPE_CHECKING:
    from omnigraph.api.local.authorizer import Authorizer
    from omnigraph.engine.memory.row_lookups import CachedIds
    from omnigraph.graph.repository import Repository


class LocalBranches(Branches):
    """`Branches` over a repository."""

    def __init__(self, repository: Repository, authorizer: Authorizer, cache: CachedIds) -> None:
        self._repository = repository
        self._authorizer = authorizer
        self._cache = cache

    def _list(self, prefix: str, after: str | None, limit: int | None) -> list[str]:
        from omnigraph.graph.branch_lookup import list_branches

        self._authorizer.authorize("read")
        return list_branches(self._repository.manifest, prefix, after, limit)

    def delete(self, name: str) -> None:
        self._authorizer.authorize("branch_delete", target=name)
        self._repository.delete_branch(name)

    def _create(self, name: str, source: str, at: At, actor: str | None) -> Branch:
        actor = self._authorizer.authorize("branch_create", source, name, actor=actor)
        # The new branch shows the rows of the state to everyone who may read the branch.
        state = self._authorizer.authorize_at("read", source, at, actor=actor)
        head = self._repository.create_branch(name, source, at=state, actor=actor)
        return Branch(head.branch, head.commit.id)

    def _merge(self, source: str, options: MergeRequest) -> Merged:
        actor = self._authorizer.authorize("branch_merge", source, options.into, actor=options.actor)
        self._authorizer.authorize("read", source, actor=actor)
        return run_merge(
            self._repository, source, replace(options, actor=actor), self._authorizer, self._cache
        )

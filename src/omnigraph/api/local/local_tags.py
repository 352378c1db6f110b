"""The tags of a local graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.api.interface.tags import Tag, Tags
from omnigraph.api.results.changes import State

if TYPE_CHECKING:
    from omnigraph.api.local.authorizer import Authorizer
    from omnigraph.graph.repository import Repository


class LocalTags(Tags):
    """`Tags` over a repository.

    A tag holds data back from garbage collection under a name, as a branch does, so the permissions are those of a
    branch of this name.
    """

    def __init__(self, repository: Repository, authorizer: Authorizer) -> None:
        self._repository = repository
        self._authorizer = authorizer

    def _list(self, prefix: str, after: str | None, limit: int | None) -> list[Tag]:
        from omnigraph.graph.tags import list_tags

        self._authorizer.authorize("read")
        found = list_tags(self._repository.manifest, prefix, after, limit)
        return [Tag.of(name, entry) for name, entry in found]

    def delete(self, name: str) -> None:
        from omnigraph.graph.tags import delete_tag

        self._authorizer.authorize("branch_delete", target=name)
        delete_tag(self._repository, name)

    def _create(self, name: str, at: State, message: str | None, actor: str | None) -> Tag:
        from omnigraph.graph.tags import create_tag

        actor = self._authorizer.authorize("branch_create", target=name, actor=actor)
        snapshot, _ = self._authorizer.authorize_state("read", at, actor=actor)
        entry = create_tag(self._repository, name, snapshot, message=message, actor=actor)
        return Tag.of(name.strip(), entry)

"""Authorization of the calls of a local graph: the actor, and the policy that allows or denies an action."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from omnigraph.api.results.changes import State, named_state
from omnigraph.api.results.commits import At, state_at
from omnigraph.errors import InvalidInput, NotFound, PermissionDenied
from omnigraph.graph.argument_checks import check_text
from omnigraph.graph.branch_names import MAIN, has_form_of_commit_id, normalize_branch_name

if TYPE_CHECKING:
    from omnigraph.graph.repository import At as StoredAt
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.policy.gate import Access, Gate
    from omnigraph.store.manifest.records import CommitRecord


@dataclass(frozen=True, slots=True)
class Authorizer:
    """The actor of a handle and the policy gate of its graph. Without a gate every action is allowed.

    `granted` lists accesses of the actor that the creator of the handle has authorized already.
    """

    repository: Repository
    actor: str | None = None
    gate: Gate | None = None
    granted: frozenset[Access] = frozenset()

    def __post_init__(self) -> None:
        check_text("actor", self.actor)

    def authorize(
        self, action: str, branch: str | None = None, target: str | None = None, *, actor: str | None = None
    ) -> str | None:
        """Return the acting actor: `actor`, or the actor of the handle. Raise `PermissionDenied` if it may not act.

        Also raises `InvalidInput` if the handle is closed.
        """
        self.repository.check_usable()
        acting = self.actor if actor is None else check_text("actor", actor)
        if self.gate is not None:
            from omnigraph.policy.gate import Access

            access = Access(action, check_text("branch", branch), check_text("branch", target))
            if acting != self.actor or access not in self.granted:
                self.gate.check(acting, access)
        return acting

    @property
    def protected_branches(self) -> frozenset[str]:
        """The branches that the policy protects."""
        return frozenset() if self.gate is None else self.gate.bundle.protected_branches

    def allows(self, action: str, branch: str, *, actor: str | None = None) -> bool:
        """Return whether the actor may perform an action on a branch."""
        try:
            self.authorize(action, branch, actor=actor)
        except PermissionDenied:
            return False
        return True

    def authorize_at(self, action: str, branch: str, at: At, *, actor: str | None = None) -> StoredAt:
        """Authorize an action on a state and return the state as the repository accepts it.

        The head of a branch requires the permission on this branch. An earlier state requires it on the named
        branch and on the branch on which its commit was made, because history before the creation of a branch
        belongs to another branch.
        """
        state = state_at(at)
        if self.gate is None or state is None:
            self.authorize(action, branch, actor=actor)
            return state
        # With a commit, `main` is the default of the argument and not a branch that the caller named.
        is_named = isinstance(state, datetime) or normalize_branch_name(branch) != MAIN
        if is_named:
            self.authorize(action, branch, actor=actor)
        start = self._named_branch(state, branch) if isinstance(state, str) else None
        if start is not None:
            self.authorize(action, start, actor=actor)
        try:
            snapshot = self.repository.snapshot(branch, state)
        except (NotFound, InvalidInput):
            if not isinstance(state, datetime):
                # Only an actor that may act on every branch learns which commits exist.
                self.authorize(action, actor=actor)
            raise
        named = start or (branch if is_named else None)
        if named is None or not self._is_head(named, snapshot.commit):
            self.authorize_commit(action, snapshot.commit, actor=actor)
        # Returning the snapshot ensures that the authorized state is the one that is read.
        return snapshot

    def authorize_commit_id(self, action: str, commit_id: str, *, actor: str | None = None) -> str:
        """Authorize an action on the state and the changes of a commit; return its id.

        A tag may name the commit. The call uses the returned id, because the tag may name another commit later.
        """
        if self.gate is None:
            self.authorize(action, actor=actor)
            return commit_id if has_form_of_commit_id(commit_id) else self.repository.commit(commit_id).id
        snapshot = self.authorize_at(action, MAIN, commit_id, actor=actor)
        return self.repository.snapshot(at=snapshot).commit_id

    def authorize_commit(self, action: str, commit: CommitRecord, *, actor: str | None = None) -> None:
        """Authorize an action on a commit by the branch on which it was made.

        A commit of a deleted branch requires a permission that no scope limits: the policy may not list the name
        any more, and the name may belong to another branch now.
        """
        if self.gate is None:
            self.authorize(action, actor=actor)
            return
        manifest = self.repository.manifest
        entry = manifest.branch(manifest.view, commit.branch)
        exists = entry is not None and entry.incarnation == commit.incarnation
        self.authorize(action, commit.branch if exists else None, actor=actor)

    def authorize_state(
        self, action: str, state: State, *, actor: str | None = None
    ) -> tuple[Snapshot, str | None]:
        """Authorize an action on a state; return its snapshot, and its branch if a branch named it."""
        from omnigraph.changes.states import find_state

        named = named_state(state)
        start = self._named_branch(named, MAIN) if self.gate is not None and isinstance(named, str) else None
        if start is not None:
            self.authorize(action, start, actor=actor)
        try:
            snapshot, branch = find_state(self.repository, named)
        except (NotFound, InvalidInput):
            self.authorize(action, actor=actor)
            raise
        if branch is None and isinstance(state, datetime):
            self.authorize(action, MAIN, actor=actor)
            if not self._is_head(MAIN, snapshot.commit):
                self.authorize_commit(action, snapshot.commit, actor=actor)
        elif branch is None:
            self.authorize_commit(action, snapshot.commit, actor=actor)
        else:
            self.authorize(action, branch, actor=actor)
        return snapshot, branch

    def _named_branch(self, name: str, branch: str) -> str | None:
        from omnigraph.graph.commit_names import named_branch

        manifest = self.repository.manifest
        return named_branch(manifest, manifest.refresh(), name, normalize_branch_name(branch))

    def _is_head(self, branch: str, commit: CommitRecord) -> bool:
        return self.repository.head(branch, refresh=False).commit.id == commit.id

"""Authorization of the calls of a local graph: the actor, and the policy that allows or denies an action."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from omnigraph.api.changes import State, named_state
from omnigraph.api.commits import At, state_at
from omnigraph.errors import NotFound
from omnigraph.graph.argument_checks import check_text

if TYPE_CHECKING:
    from omnigraph.graph.repository import At as StoredAt
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.policy.gate import Access, Gate


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

    def authorize_at(self, action: str, branch: str, at: At) -> StoredAt:
        """Authorize an action on a state and return the state as the repository accepts it.

        A commit or snapshot belongs to the branch on which it was created.
        """
        state = state_at(at)
        if self.gate is None or state is None or isinstance(state, datetime):
            self.authorize(action, branch)
            return state
        try:
            snapshot = self.repository.snapshot(branch, state)
        except NotFound:
            # Only an actor that may act on every branch learns that a commit does not exist.
            self.authorize(action)
            raise
        self.authorize(action, snapshot.commit.branch)
        # Returning the snapshot ensures that the authorized state is the one that is read.
        return snapshot

    def authorize_commit(self, action: str, commit_id: str) -> None:
        """Authorize an action on the state of a commit."""
        if self.gate is None:
            self.authorize(action)
        else:
            self.authorize_at(action, "main", commit_id)

    def authorize_state(self, action: str, state: State) -> tuple[Snapshot, str | None]:
        """Authorize an action on a state; return its snapshot, and its branch if a branch named it."""
        from omnigraph.changes.states import find_state

        try:
            snapshot, branch = find_state(self.repository, named_state(state))
        except NotFound:
            self.authorize(action)
            raise
        on_main = isinstance(state, datetime)
        self.authorize(action, branch or ("main" if on_main else snapshot.commit.branch))
        return snapshot, branch

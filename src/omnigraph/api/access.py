"""The one gate of the API: who acts, and whether the policy of the graph lets them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.api.commits import At, state_at
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.graph.argument_checks import check_text

if TYPE_CHECKING:
    from omnigraph.api.changes import State
    from omnigraph.graph.repository import At as StoredAt
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.policy.bundle import Binding, PolicyBundle
    from omnigraph.policy.gate import Access, Gate
    from omnigraph.store.storage_options import StorageOptions

# A path, file://, s3:// or memory:// address.
Address: TypeAlias = "str | os.PathLike[str]"
# A bundle, what its file would hold, or the path of that file.
Policy: TypeAlias = "PolicyBundle | Mapping[str, Any] | str | Path"


@dataclass(frozen=True, slots=True)
class Guard:
    """Whom a handle acts for, and the policy that it obeys; without one everybody may do everything.

    `granted` are accesses of the actor that the creator of the handle has authorized already.
    """

    repository: Repository
    actor: str | None = None
    gate: Gate | None = None
    granted: frozenset[Access] = frozenset()

    def __post_init__(self) -> None:
        check_text("actor", self.actor)

    def admit(
        self, action: str, branch: str | None = None, target: str | None = None, *, actor: str | None = None
    ) -> str | None:
        """Who acts: `actor`, else whom the handle is for. `PermissionDenied` when the policy does not let them."""
        self.repository.check_usable()
        acting = self.actor if actor is None else check_text("actor", actor)
        if self.gate is not None:
            from omnigraph.policy.gate import Access

            access = Access(action, check_text("branch", branch), check_text("branch", target))
            if acting != self.actor or access not in self.granted:
                self.gate.check(acting, access)
        return acting

    @property
    def protected(self) -> frozenset[str]:
        """The branches that the policy protects."""
        return frozenset() if self.gate is None else self.gate.bundle.protected_branches

    def admit_at(self, action: str, branch: str, named: At) -> StoredAt:
        """Where to read, once that is allowed. A commit or snapshot belongs to the branch it was made on."""
        at = state_at(named)
        if self.gate is None or at is None or isinstance(at, datetime):
            self.admit(action, branch)
            return at
        try:
            found = self.repository.snapshot(branch, at)
        except NotFound:
            # That a commit does not exist is told only to those who might have read it on any branch.
            self.admit(action)
            raise
        self.admit(action, found.commit.branch)
        # Looked up once: what is read is what was asked about.
        return found

    def admit_commit(self, action: str, commit_id: str) -> None:
        """Return when what a commit holds may be read."""
        if self.gate is None:
            self.admit(action)
        else:
            self.admit_at(action, "main", commit_id)

    def admit_state(self, action: str, named: State) -> tuple[Snapshot, str | None]:
        """The state that is meant, once it may be read, and the branch when it was named by one."""
        from omnigraph.api.changes import named_state
        from omnigraph.changes.states import find_state

        try:
            found, branch = find_state(self.repository, named_state(named))
        except NotFound:
            self.admit(action)
            raise
        on_main = isinstance(named, datetime)
        self.admit(action, branch or ("main" if on_main else found.commit.branch))
        return found, branch


def gate_of(
    policy: Policy | None, graph_id: str | None, uri: Address, options: StorageOptions | None
) -> Gate | None:
    """The gate of the graph at an address; None without a policy. Nothing of the graph is looked at."""
    if policy is None:
        return None
    from omnigraph.policy.gate import Gate
    from omnigraph.store.location import Location

    bundle = read_policy(policy, options or {}, binding="graph")
    return Gate(bundle, name_of(Location.parse(uri).uri) if graph_id is None else graph_id)


def read_policy(
    policy: Policy, options: StorageOptions | None = None, *, binding: Binding | None = None
) -> PolicyBundle:
    """The bundle that is meant, or `InvalidInput`; a file may be YAML or JSON, here or in a store.

    >>> read_policy({"version": 1, "groups": {"team": ["act-ann"]}}).actors
    frozenset({'act-ann'})
    """
    from omnigraph.policy.bundle import PolicyBundle, read_bundle

    if isinstance(policy, PolicyBundle):
        return policy
    if isinstance(policy, Mapping):
        return read_bundle(policy, binding=binding)
    given: object = policy
    if not isinstance(given, str | Path) or not str(given).strip():
        shown = repr(given) if isinstance(given, str) else type(given).__name__
        raise InvalidInput(
            f"a policy is a bundle, what its file would hold, or the path of that file, not {shown}"
        )
    from omnigraph.sources.mapping.document import read_document

    document, _ = read_document(policy, options or {})
    found = document.checked((), lambda: read_bundle(document.value, binding=binding))
    assert isinstance(found, PolicyBundle)
    return found


def name_of(uri: str) -> str:
    """What policies call the graph at an address, when nothing else is said.

    >>> name_of("s3://bucket/team/knowledge.omni"), name_of("memory://scratch")
    ('knowledge', 'scratch')
    """
    return uri.rstrip("/").rpartition("/")[2].removesuffix(".omni")

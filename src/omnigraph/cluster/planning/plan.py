"""Compute the plan of a cluster: compare the declared digests with the applied ones. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from omnigraph.cluster.addresses import (
    graph_address,
    graph_of,
    kind_of,
    name_of,
    schema_address,
    sort_key,
)
from omnigraph.cluster.configuration.model import Configuration
from omnigraph.cluster.ledger.approvals import Approval, Binding, find_approval
from omnigraph.cluster.ledger.state import ClusterState
from omnigraph.cluster.planning.changes import (
    ApprovalGate,
    Change,
    MetadataChange,
    Migration,
    Plan,
)

GRAPH_DELETE: Final = "graph_delete"
APPROVAL_REQUIRED: Final = "approval_required"
DEPENDENCY_NOT_APPLIED: Final = "dependency_not_applied"
RECOVERY_PENDING: Final = "cluster_recovery_pending"
UNSUPPORTED_KIND: Final = "apply_unsupported_kind"
SCHEMA_APPLY_FAILED: Final = "schema_apply_failed"


@dataclass(frozen=True)
class PlanInputs:
    """What a plan depends on besides the configuration and the ledger.

    `is_pending` says of a graph whether an interrupted operation on it is pending. `migrations` has the migration
    of each graph with a changed schema that could be opened.
    """

    is_pending: Callable[[str], bool] = field(default=lambda _: False)
    approvals: tuple[Approval, ...] = ()
    migrations: Mapping[str, Migration] = field(default_factory=dict)


def compute_plan(configuration: Configuration, state: ClusterState, inputs: PlanInputs) -> Plan:
    """Return the plan from the ledger to the configuration."""
    changes = {change.resource: change for change in find_changes(configuration, state)}
    planner = _Planner(configuration, state, inputs, changes)
    decided = tuple(planner.decide(change) for change in changes.values())
    gates = tuple(
        ApprovalGate(change.resource, GRAPH_DELETE, planner.approval_of(change) is not None)
        for change in decided
        if change.operation == "delete" and kind_of(change.resource) == "graph"
    )
    return Plan(decided, find_blast_radius(configuration, state, changes), gates)


def find_changes(configuration: Configuration, state: ClusterState) -> list[Change]:
    """Return the differences between the ledger and the configuration, without dispositions."""
    desired, applied = configuration.digests, state.digests
    found: list[Change] = []
    for address in sorted({*desired, *applied}, key=sort_key):
        before, after = applied.get(address), desired.get(address)
        metadata = _metadata_change(configuration, state, address)
        if before == after and metadata is None:
            continue
        found.append(
            Change(
                address,
                "create" if before is None else "delete" if after is None else "update",
                before,
                after,
                binding_change=metadata == "policy_bindings",
                metadata_change=metadata,
            )
        )
    return found


def _metadata_change(
    configuration: Configuration, state: ClusterState, address: str
) -> MetadataChange | None:
    """Return what differs of a resource in the ledger beside its digest."""
    applied = state.resources.get(address)
    if applied is None:
        return None
    policy = configuration.policies.get(name_of(address)) if kind_of(address) == "policy" else None
    if policy is not None and applied.applies_to != policy.applies_to:
        return "policy_bindings"
    profile = configuration.providers.get(address)
    if profile is not None and applied.digest == configuration.digests[address]:
        return None if applied.embedding_profile == profile else "embedding_profile"
    return None


def approval_binding(configuration: Configuration, change: Change) -> Binding:
    """Return what an approval of a change is bound to."""
    return Binding(
        change.resource,
        change.operation,
        configuration.digest,
        change.before_digest,
        change.after_digest,
    )


def find_stale_approvals(
    configuration: Configuration, plan: Plan, approvals: Iterable[Approval]
) -> list[Approval]:
    """Return the approvals of changes that the plan still has, in another state than the approved one."""
    current = {
        gate.resource: approval_binding(configuration, change)
        for gate in plan.approvals_required
        if (change := plan.find(gate.resource)) is not None
    }
    return [item for item in approvals if item.resource in current and item.binding != current[item.resource]]


def find_blast_radius(
    configuration: Configuration, state: ClusterState, changed: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Return the resources that depend on each changed one, directly or through others."""
    dependents: dict[str, set[str]] = {}
    for dependent, dependency in (*configuration.dependencies, *applied_dependencies(state)):
        dependents.setdefault(dependency, set()).add(dependent)
    found: dict[str, tuple[str, ...]] = {}
    for address in changed:
        affected: set[str] = set()
        open_ = [address]
        while open_:
            for item in dependents.get(open_.pop(), ()):
                if item not in affected and item != address:
                    affected.add(item)
                    open_.append(item)
        if affected:
            found[address] = tuple(sorted(affected, key=sort_key))
    return found


def applied_dependencies(state: ClusterState) -> list[tuple[str, str]]:
    """Return pairs of applied addresses, the first of which depends on the second."""
    found: list[tuple[str, str]] = []
    for address, item in state.resources.items():
        graph = graph_of(address)
        if graph is not None and kind_of(address) != "graph":
            found.append((address, graph_address(graph)))
        if graph is not None and kind_of(address) == "query":
            found.append((address, schema_address(graph)))
        if item.embedding_provider is not None:
            found.append((address, item.embedding_provider))
        found += [(address, to) for to in item.applies_to or () if to != "cluster"]
    return found


@dataclass(frozen=True)
class _Planner:
    configuration: Configuration
    state: ClusterState
    inputs: PlanInputs
    changes: Mapping[str, Change]

    def decide(self, change: Change) -> Change:
        """Return a change with its disposition."""
        match kind_of(change.resource), change.operation:
            case "graph", "create":
                return self._move(change)
            case "graph", "update":
                return replace(change, disposition="derived")
            case "graph", "delete":
                return self._delete(change, change)
            case "schema", "delete":
                parent = self.changes.get(graph_address(name_of(change.resource)))
                if parent is None or parent.operation != "delete":
                    return _blocked(change, UNSUPPORTED_KIND, "deferred")
                return self._delete(change, parent)
            case "schema", _:
                return self._schema(change)
            case "query", _:
                return self._query(change)
            case "policy", _:
                return self._policy(change)
            case "provider", _:
                return self._provider(change)
        return _blocked(change, UNSUPPORTED_KIND, "deferred")

    def approval_of(self, change: Change) -> Approval | None:
        return find_approval(self.inputs.approvals, approval_binding(self.configuration, change))

    def _move(self, change: Change) -> Change:
        graph = graph_of(change.resource)
        if graph is not None and self.inputs.is_pending(graph):
            return _blocked(change, RECOVERY_PENDING)
        return replace(change, disposition="applied")

    def _delete(self, change: Change, graph: Change) -> Change:
        moved = self._move(change)
        if moved.disposition == "blocked" or self.approval_of(graph) is not None:
            return moved
        return _blocked(change, APPROVAL_REQUIRED)

    def _schema(self, change: Change) -> Change:
        graph = name_of(change.resource)
        migration = self.inputs.migrations.get(graph) if change.operation == "update" else None
        moved = replace(self._move(change), migration=migration)
        if moved.disposition == "applied" and migration is not None and not migration.supported:
            return _blocked(moved, SCHEMA_APPLY_FAILED)
        return moved

    def _query(self, change: Change) -> Change:
        graph = graph_of(change.resource)
        assert graph is not None
        parent = self.changes.get(graph_address(graph))
        if change.operation == "delete" and parent is not None and parent.operation == "delete":
            return self._delete(change, parent)
        if change.operation != "delete" and self._is_unavailable(graph):
            return _blocked(change, DEPENDENCY_NOT_APPLIED)
        return replace(change, disposition="applied")

    def _policy(self, change: Change) -> Change:
        policy = self.configuration.policies.get(name_of(change.resource))
        applied = self.state.resources.get(change.resource)
        before = set(() if applied is None else applied.applies_to or ())
        after = set(() if policy is None else policy.applies_to)
        if any(self._is_unavailable(name_of(to)) for to in after - before if to != "cluster"):
            return _blocked(change, DEPENDENCY_NOT_APPLIED)
        # Without its policy, a graph whose deletion waits for an approval would be open to every reader.
        if any(self._is_kept(to) for to in before - after):
            return _blocked(change, DEPENDENCY_NOT_APPLIED)
        return replace(change, disposition="applied")

    def _provider(self, change: Change) -> Change:
        users = [a for a, item in self.state.resources.items() if item.embedding_provider == change.resource]
        if change.operation == "delete" and any(self._is_kept(user) for user in users):
            return _blocked(change, DEPENDENCY_NOT_APPLIED)
        return replace(change, disposition="applied")

    def _is_unavailable(self, graph: str) -> bool:
        """Whether a graph or its schema stays behind the configuration."""
        for address in (graph_address(graph), schema_address(graph)):
            change = self.changes.get(address)
            if change is not None and change.operation != "delete":
                decided = self.decide(change)
                if decided.disposition in ("blocked", "deferred"):
                    return True
        return False

    def _is_kept(self, address: str) -> bool:
        change = self.changes.get(address)
        return (
            change is not None
            and change.operation == "delete"
            and self._delete(change, change).disposition == "blocked"
        )


def _blocked(change: Change, reason: str, disposition: str = "blocked") -> Change:
    return replace(change, disposition="deferred" if disposition == "deferred" else "blocked", reason=reason)

"""The results of the cluster commands, with the members that their JSON output has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph.cluster.configuration.model import Configuration
from omnigraph.cluster.diagnostics import Diagnostic, has_errors
from omnigraph.cluster.ledger.lock import LOCK_KEY, ClusterLock
from omnigraph.cluster.ledger.state import STATE_KEY, ClusterState
from omnigraph.cluster.ledger.storage import ClusterStorage, StoredState
from omnigraph.cluster.planning.changes import Plan


@dataclass(frozen=True)
class StateObservations:
    """What a command saw of the ledger and of the lock. `acquired` is its own lock, `held` that of another one."""

    storage: ClusterStorage | None = None
    stored: StoredState = field(default_factory=StoredState)
    acquired: ClusterLock | None = None
    held: ClusterLock | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        state, lock = self.stored.or_empty, self.acquired or self.held
        found: dict[str, Any] = {
            "state_path": None if self.storage is None else self.storage.path(STATE_KEY),
            "lock_path": None if self.storage is None else self.storage.path(LOCK_KEY),
            "state_found": self.stored.state is not None,
            "applied_config_digest": state.config_digest,
            "state_revision": state.state_revision,
            "state_cas": self.stored.cas,
            "resource_count": len(state.resources),
            "locked": self.held is not None,
            "lock_id": None if self.held is None else self.held.lock_id,
            "lock_acquired": self.acquired is not None,
            "acquired_lock_id": None if self.acquired is None else self.acquired.lock_id,
        }
        if lock is not None:
            found |= {
                "lock_operation": lock.operation,
                "lock_created_at": lock.created_at,
                "lock_pid": lock.pid,
                "lock_age_seconds": lock.age_seconds,
            }
        required = ("state_path", "lock_path")
        return {name: value for name, value in found.items() if value is not None or name in required}


@dataclass(frozen=True)
class Report:
    """The result of a command on the configuration directory `config_dir`."""

    config_dir: str
    diagnostics: tuple[Diagnostic, ...] = ()
    observations: StateObservations = field(default_factory=StateObservations, kw_only=True)

    @property
    def ok(self) -> bool:
        """Whether the command succeeded: no diagnostic is an error."""
        return not has_errors(self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "ok": self.ok,
            "config_dir": self.config_dir,
            **self.members(),
            "diagnostics": [item.to_json() for item in self.diagnostics],
        }

    def members(self) -> dict[str, Any]:
        """Return the members of this command."""
        return {}


@dataclass(frozen=True)
class ValidateReport(Report):
    """The result of `cluster validate`."""

    config_file: str = ""
    configuration: Configuration | None = None

    def members(self) -> dict[str, Any]:
        """Return the members of this command."""
        found = self.configuration
        digests = {} if found is None else found.digests
        return {
            "config_file": self.config_file,
            "resource_digests": dict(digests),
            "resources": [] if found is None else _resources(found),
            "dependencies": dependencies_json(found),
        }


def _resources(configuration: Configuration) -> list[dict[str, str]]:
    found = []
    for address, digest in configuration.digests.items():
        file = configuration.files.get(address)
        kind = address.partition(".")[0]
        item = {"address": address, "kind": kind, "digest": digest}
        found.append(item if file is None else {**item, "path": str(file.path)})
    return found


def dependencies_json(configuration: Configuration | None) -> list[dict[str, str]]:
    """Return the dependencies of a configuration for output."""
    if configuration is None:
        return []
    return [{"from": dependent, "to": dependency} for dependent, dependency in configuration.dependencies]


def revision_json(configuration: Configuration | None) -> dict[str, str]:
    """Return the desired revision for output."""
    return {} if configuration is None else {"config_digest": configuration.digest}


@dataclass(frozen=True)
class PlanReport(Report):
    """The result of `cluster plan`."""

    configuration: Configuration | None = None
    plan: Plan = field(default_factory=Plan)

    def members(self) -> dict[str, Any]:
        """Return the members of this command."""
        found = self.configuration
        return {
            "desired_revision": revision_json(found),
            "resource_digests": {} if found is None else dict(found.digests),
            "dependencies": dependencies_json(found),
            "state_observations": self.observations.to_json(),
            "changes": [change.to_json() for change in self.plan.changes],
            "blast_radius": [
                {"resource": resource, "affected": list(affected)}
                for resource, affected in self.plan.blast_radius.items()
            ],
            "approvals_required": [gate.to_json() for gate in self.plan.approvals_required],
        }


@dataclass(frozen=True)
class ApplyReport(Report):
    """The result of `cluster apply` and of `cluster rollback`."""

    configuration: Configuration | None = None
    plan: Plan = field(default_factory=Plan)
    state: ClusterState = field(default_factory=ClusterState)
    actor: str | None = None
    converged: bool = False
    state_written: bool = False
    rolled_back_to: int | None = None

    @property
    def applied_count(self) -> int:
        """The number of changes that were applied."""
        return (
            sum(change.disposition == "applied" for change in self.plan.changes) if self.state_written else 0
        )

    @property
    def deferred_count(self) -> int:
        """The number of changes that were deferred or blocked."""
        return sum(change.disposition in ("deferred", "blocked") for change in self.plan.changes)

    def members(self) -> dict[str, Any]:
        """Return the members of this command."""
        return {
            **({} if self.actor is None else {"actor": self.actor}),
            **({} if self.rolled_back_to is None else {"rolled_back_to": self.rolled_back_to}),
            "desired_revision": revision_json(self.configuration),
            "state_observations": self.observations.to_json(),
            "changes": [change.to_json() for change in self.plan.changes],
            "applied_count": self.applied_count,
            "deferred_count": self.deferred_count,
            "converged": self.converged,
            "state_written": self.state_written,
            "resource_statuses": statuses_json(self.state),
        }


def statuses_json(state: ClusterState) -> dict[str, Any]:
    """Return the statuses of the resources for output."""
    return {address: item.to_json() for address, item in sorted(state.resource_statuses.items())}


@dataclass(frozen=True)
class ApproveReport(Report):
    """The result of `cluster approve`."""

    approval_id: str | None = None
    resource: str | None = None
    operation: str | None = None
    approved_by: str | None = None

    def members(self) -> dict[str, Any]:
        """Return the members of this command."""
        found = {
            "approval_id": self.approval_id,
            "resource": self.resource,
            "operation": self.operation,
            "approved_by": self.approved_by,
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class StatusReport(Report):
    """The result of `cluster status`, `cluster refresh` and `cluster import`."""

    state: ClusterState = field(default_factory=ClusterState)
    operation: str | None = None

    def members(self) -> dict[str, Any]:
        """Return the members of this command."""
        return {
            **({} if self.operation is None else {"operation": self.operation}),
            "state_observations": self.observations.to_json(),
            "resource_digests": dict(sorted(self.state.digests.items())),
            "resource_statuses": statuses_json(self.state),
            "observations": dict(self.state.observations),
        }


@dataclass(frozen=True)
class UnlockReport(Report):
    """The result of `cluster force-unlock`."""

    lock_removed: bool = False

    def members(self) -> dict[str, Any]:
        """Return the members of this command."""
        return {"state_observations": self.observations.to_json(), "lock_removed": self.lock_removed}


@dataclass(frozen=True)
class HistoryReport(Report):
    """The result of `cluster history`: the entries, the newest first."""

    entries: Sequence[Mapping[str, Any]] = ()

    def members(self) -> dict[str, Any]:
        """Return the members of this command."""
        return {"revisions": [dict(entry) for entry in self.entries]}

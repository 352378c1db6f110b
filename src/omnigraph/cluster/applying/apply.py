"""`cluster apply`: bring the graphs and the catalogue of a cluster to its configuration."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from omnigraph.cluster.addresses import graph_address, kind_of, name_of, sort_key
from omnigraph.cluster.applying.graph_steps import GraphSteps, Progress, plan_changes
from omnigraph.cluster.applying.prepare_plan import prepare_plan
from omnigraph.cluster.applying.recovery import Sweep, sweep_recoveries
from omnigraph.cluster.configuration.model import Configuration
from omnigraph.cluster.diagnostics import ClusterFailure, Diagnostic, error, reason, warning
from omnigraph.cluster.ledger.approvals import Approval, read_approvals, write_approval
from omnigraph.cluster.ledger.history import commit_ledger
from omnigraph.cluster.ledger.intents import read_intents, remove_intents
from omnigraph.cluster.ledger.lock import ClusterLock
from omnigraph.cluster.ledger.state import AppliedResource, ClusterState, ResourceStatus
from omnigraph.cluster.ledger.storage import ClusterStorage, StoredState
from omnigraph.cluster.planning.changes import Change, Plan
from omnigraph.cluster.planning.plan import APPROVAL_REQUIRED, find_changes
from omnigraph.cluster.reports import ApplyReport, StateObservations
from omnigraph.cluster.session import Session, run_command
from omnigraph.errors import OmnigraphError

_CATALOGUE: Final = ("query", "policy")


def apply(
    folder: str | Path, options: Mapping[str, str] | None = None, *, actor: str | None = None
) -> ApplyReport:
    """Apply the configuration of a directory. Idempotent: a second run of a converged apply writes nothing.

    A crash at any point leaves a ledger that is correct, or that the next run corrects from the intents.
    """

    def empty(config_dir: str, diagnostics: tuple[Diagnostic, ...]) -> ApplyReport:
        return ApplyReport(config_dir, diagnostics, actor=actor)

    def work(session: Session) -> ApplyReport:
        return session.run_locked("apply", lambda lock: _Apply(session, actor, lock).run())

    return run_command(folder, options, empty, work)


@dataclass(frozen=True)
class _Apply:
    session: Session
    actor: str | None
    lock: ClusterLock | None

    @property
    def storage(self) -> ClusterStorage:
        return self.session.storage

    @property
    def configuration(self) -> Configuration:
        return self.session.configuration

    def run(self) -> ApplyReport:
        stored = self.session.require_state()
        check_unchanged(self.configuration)
        approvals, _ = read_approvals(self.storage)
        sweep = sweep_recoveries(
            self.storage, self.configuration, stored.or_empty, read_intents(self.storage), approvals
        )
        prepared = prepare_plan(self.storage, self.configuration, sweep.state, sweep.kept, sweep.seen)
        progress = Progress(
            sweep.state,
            plan_changes(prepared.plan),
            sweep.finished,
            find_used_approvals(approvals, sweep),
            (*sweep.diagnostics, *prepared.diagnostics),
        )
        steps = GraphSteps(self.storage, self.configuration, self.actor, stored.cas, prepared.approvals)
        progress = steps.create_and_migrate(progress)
        progress = write_payloads(self.storage, self.configuration, progress)
        progress = steps.delete_approved(progress)
        progress = self._record(progress, sweep)
        return self._finish(stored, progress, prepared.plan)

    def _record(self, progress: Progress, sweep: Sweep) -> Progress:
        """Bring the ledger to what was applied."""
        state = record_catalogue(progress.state, self.configuration, progress.plan_changes)
        remaining = find_changes(self.configuration, state)
        is_converged = not remaining and not sweep.kept.intents
        kept = frozenset(intent.graph_id for intent in sweep.kept.intents)
        state = record_statuses(state, self.configuration, progress.plan_changes, kept)
        # A ledger that does not match the configuration is not that of an earlier configuration either.
        state = replace(state, config_digest=self.configuration.digest if is_converged else None)
        return replace(progress, state=state)

    def _finish(self, stored: StoredState, progress: Progress, plan: Plan) -> ApplyReport:
        must_write = progress.state != stored.state
        after = stored
        if must_write:
            after = commit_ledger(self.storage, stored, progress.state, "apply", self.actor)
        # From here on the apply has happened; what fails now is repeated by the next one.
        findings = (
            *progress.diagnostics,
            *remove_intents(self.storage, progress.intents),
            *self._consume(progress.consumed),
            *_explain_blocked(progress.plan_changes),
        )
        return ApplyReport(
            self.session.folder,
            findings,
            self.configuration,
            replace(plan, changes=progress.plan_changes),
            progress.state,
            self.actor,
            converged=progress.state.config_digest == self.configuration.digest,
            state_written=must_write,
            observations=StateObservations(self.storage, after, acquired=self.lock),
        )

    def _consume(self, consumed: tuple[Approval, ...]) -> tuple[Diagnostic, ...]:
        """Rewrite the approvals that were used. The ledger records them already."""
        found: list[Diagnostic] = []
        for approval in consumed:
            try:
                write_approval(self.storage, approval)
            except ClusterFailure as failure:
                message = f"the approval is used up, but its file still says otherwise: {failure.message}"
                found.append(warning("recovery_sidecar_cleanup_failed", approval.resource, message))
        return tuple(found)


def find_used_approvals(approvals: tuple[Approval, ...], sweep: Sweep) -> tuple[Approval, ...]:
    """Return the approvals that an earlier apply has used, and whose files do not say so yet.

    The ledger records them. That apply was interrupted, or could not write the file.
    """
    operations = {
        id_: str(record.get("consumed_by_operation")) for id_, record in sweep.state.approval_records.items()
    }
    return tuple(
        item.consumed(operations[item.approval_id]) for item in approvals if item.approval_id in operations
    )


def check_unchanged(configuration: Configuration) -> None:
    """Raise `ClusterFailure` if a file of the configuration has changed since it was read."""
    for address, file in configuration.files.items():
        try:
            data = file.path.read_bytes()
        except OSError:
            data = None
        if data != file.data:
            message = f"{file.path} has changed since the command read it: run the command again"
            raise ClusterFailure(error("resource_content_changed", address, message))


def write_payloads(storage: ClusterStorage, configuration: Configuration, progress: Progress) -> Progress:
    """Store the queries and policies that are applied. A payload that no ledger names yet is not served."""
    for change in progress.plan_changes:
        if kind_of(change.resource) not in _CATALOGUE or change.operation == "delete":
            continue
        if change.disposition != "applied":
            continue
        file = configuration.files[change.resource]
        try:
            storage.write_payload(change.resource, file.digest, file.data)
        except OmnigraphError as failure:
            code = "resource_payload_write_error"
            progress = progress.with_finding(error(code, change.resource, reason(failure)))
            progress = progress.blocked(change.resource, code)
    return progress


def record_catalogue(
    state: ClusterState, configuration: Configuration, changes: tuple[Change, ...]
) -> ClusterState:
    """Return the ledger after the applied changes of queries, policies and providers, and of graph metadata."""
    changed: dict[str, AppliedResource | None] = {}
    for change in changes:
        address, kind = change.resource, kind_of(change.resource)
        if change.disposition != "applied" or kind in ("graph", "schema"):
            continue
        if change.operation == "delete":
            changed[address] = None
        elif kind == "provider":
            profile = configuration.providers[address]
            changed[address] = AppliedResource(configuration.digests[address], embedding_profile=profile)
        elif kind == "policy":
            policy = configuration.policies[name_of(address)]
            changed[address] = AppliedResource(policy.file.digest, policy.applies_to)
        else:
            changed[address] = AppliedResource(configuration.digests[address])
    state = state.with_resources(changed)
    for graph in configuration.graphs.values():
        own = state.resources.get(graph_address(graph.id))
        if own is None:
            continue
        updated = replace(
            own,
            embedding_provider=graph.provider,
            external_blob_policy=graph.external_blobs.to_json(),
        )
        state = state.with_resources({graph_address(graph.id): updated}).with_graph_digest(graph.id)
    for graph_id in state.graphs:
        state = state.with_graph_digest(graph_id)
    return state


def record_statuses(
    state: ClusterState, configuration: Configuration, changes: tuple[Change, ...], kept: Container[str]
) -> ClusterState:
    """Return the ledger with the status of every resource that is applied, declared or planned.

    The recovery sweep has set the status of the graphs in `kept`.
    """
    planned = {change.resource: change for change in changes}
    found: dict[str, ResourceStatus | None] = dict.fromkeys(state.resource_statuses)
    for address in sorted({*state.resources, *configuration.digests, *planned}, key=sort_key):
        before = state.resource_statuses.get(address)
        is_kept = kind_of(address) == "graph" and name_of(address) in kept and before is not None
        found[address] = before if is_kept else _status(state, configuration, address, planned.get(address))
    return state.with_statuses(found)


def _status(
    state: ClusterState, configuration: Configuration, address: str, change: Change | None
) -> ResourceStatus | None:
    applied = state.resources.get(address)
    desired = configuration.digests.get(address)
    if change is not None and change.disposition in ("blocked", "deferred"):
        has_failed = change.reason is not None and change.reason.endswith("_failed")
        return ResourceStatus("error" if has_failed else "blocked", (change.reason or "",))
    if applied is None and desired is None:
        return None
    if applied is not None and desired is not None and applied.digest == desired:
        return ResourceStatus("applied")
    return ResourceStatus("pending")


def _explain_blocked(changes: tuple[Change, ...]) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for change in changes:
        subject = f"{change.operation} of {change.resource}"
        if change.disposition == "deferred":
            found.append(
                warning("apply_unsupported_change", change.resource, f"the {subject} is not supported")
            )
        elif change.disposition == "blocked" and change.reason == APPROVAL_REQUIRED:
            address = graph_address(change.resource.split(".")[1])
            message = (
                f"the {subject} destroys data: run `omnigraph cluster approve {address} --as ACTOR`, "
                "then apply again"
            )
            found.append(warning("apply_dependency_blocked", change.resource, message))
        elif change.disposition == "blocked":
            message = f"the {subject} is not applied: {change.reason}"
            found.append(warning("apply_dependency_blocked", change.resource, message))
    return found

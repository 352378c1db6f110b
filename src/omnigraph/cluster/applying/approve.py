"""`cluster approve`: allow one change that destroys data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from omnigraph.cluster.addresses import kind_of
from omnigraph.cluster.applying.prepare_plan import prepare_plan
from omnigraph.cluster.diagnostics import ClusterFailure, error
from omnigraph.cluster.ledger.approvals import Approval, write_approval
from omnigraph.cluster.ledger.intents import read_intents
from omnigraph.cluster.planning.plan import approval_binding
from omnigraph.cluster.reports import ApproveReport, StateObservations
from omnigraph.cluster.session import Session, run_command


def approve(
    folder: str | Path, resource: str, actor: str, options: Mapping[str, str] | None = None
) -> ApproveReport:
    """Approve a change that the present plan lists as needing an approval.

    The approval is bound to the configuration and to the applied state; a change of either makes it stale. So no
    lock is needed: an approval beside a running apply is for the state before it, or for the one after it.
    """
    return run_command(folder, options, ApproveReport, lambda session: _approve(session, resource, actor))


def _approve(session: Session, resource: str, actor: str) -> ApproveReport:
    stored = session.require_state()
    pending = read_intents(session.storage)
    prepared = prepare_plan(session.storage, session.configuration, stored.or_empty, pending)
    change = prepared.plan.find(resource)
    gate = next((item for item in prepared.plan.approvals_required if item.resource == resource), None)
    if change is None or gate is None:
        if kind_of(resource) == "graph" and resource not in stored.or_empty.resources:
            message = "there is no such applied graph"
            raise ClusterFailure(error("graph_not_applied", resource, message))
        message = "the present plan has no change of this resource that needs an approval"
        raise ClusterFailure(error("approval_not_required", resource, message))
    approval = Approval.new(approval_binding(session.configuration, change), gate.reason, actor)
    write_approval(session.storage, approval)
    return ApproveReport(
        session.folder,
        (),
        approval.approval_id,
        resource,
        change.operation,
        actor,
        observations=StateObservations(session.storage, stored),
    )

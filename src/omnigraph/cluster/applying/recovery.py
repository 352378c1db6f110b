"""The recovery sweep: decide from storage what became of each interrupted change, and correct the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from omnigraph.cluster.addresses import graph_address, schema_address
from omnigraph.cluster.applying.live_graphs import LiveGraph, observe_graph
from omnigraph.cluster.configuration.model import Configuration
from omnigraph.cluster.diagnostics import Diagnostic, error, warning
from omnigraph.cluster.ledger.approvals import Approval, consume_approvals
from omnigraph.cluster.ledger.intents import Intent, PendingIntents
from omnigraph.cluster.ledger.lock import timestamp
from omnigraph.cluster.ledger.state import AppliedResource, ClusterState, ResourceStatus
from omnigraph.cluster.ledger.storage import ClusterStorage

PENDING_CONDITION = "actual_applied_state_pending"


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep.

    `finished` intents are removed after the ledger is written, `kept` ones remain. `seen` has the graphs
    that the sweep opened.
    """

    state: ClusterState
    finished: tuple[Intent, ...] = ()
    kept: PendingIntents = field(default_factory=PendingIntents)
    diagnostics: tuple[Diagnostic, ...] = ()
    seen: Mapping[str, LiveGraph] = field(default_factory=dict)


def sweep_recoveries(
    storage: ClusterStorage,
    configuration: Configuration,
    state: ClusterState,
    pending: PendingIntents,
    approvals: tuple[Approval, ...] = (),
) -> Sweep:
    """Settle the intents of interrupted operations, the oldest first."""
    sweep = Sweep(state, kept=replace(pending, intents=()), diagnostics=pending.diagnostics)
    for intent in pending.intents:
        live = observe_graph(storage, intent.graph_id)
        sweep = _settle(sweep, intent, live, configuration, approvals)
        sweep = replace(sweep, seen={**sweep.seen, intent.graph_id: live})
    return sweep


def _settle(
    sweep: Sweep,
    intent: Intent,
    live: LiveGraph,
    configuration: Configuration,
    approvals: tuple[Approval, ...],
) -> Sweep:
    declared = configuration.graphs.get(intent.graph_id)
    schema = None if declared is None else declared.schema
    digest = live.schema_digest(schema)
    if intent.kind == "graph_delete":
        if live.presence == "absent" and graph_address(intent.graph_id) not in sweep.state.resources:
            return _finish(sweep, intent)
        if live.presence == "absent":
            return _roll_delete_forward(sweep, intent, approvals)
        # A graph without a part of its manifest is unreadable. The ledger has it still, so it is planned again.
        message = "the deletion was interrupted; it is planned again"
        finding = warning("graph_delete_incomplete", graph_address(intent.graph_id), message)
        return _finish(_with(sweep, finding), intent)
    if live.presence == "unreadable":
        return _keep(sweep, intent, f"the graph cannot be read: {live.error}")
    if intent.kind == "graph_create":
        if live.presence in ("absent", "interrupted"):
            return _finish(sweep, intent)
        if live.presence == "partial":
            return _keep_partial(sweep, intent, live)
    if digest is not None and digest == intent.desired_schema_digest:
        applied = sweep.state.resources.get(schema_address(intent.graph_id))
        if applied is not None and applied.digest == digest:
            return _finish(sweep, intent)
        return _roll_forward(sweep, intent, digest)
    if intent.kind == "schema_apply":
        applied = sweep.state.resources.get(schema_address(intent.graph_id))
        if digest is not None and applied is not None and digest == applied.digest:
            # The change did not happen. It is planned again.
            return _finish(sweep, intent)
    found = "no graph" if live.presence == "absent" else f"schema {digest}" if digest else live.error
    return _keep(sweep, intent, f"expected schema {intent.desired_schema_digest}, found {found}")


def _roll_forward(sweep: Sweep, intent: Intent, digest: str) -> Sweep:
    graph, schema = graph_address(intent.graph_id), schema_address(intent.graph_id)
    changed: dict[str, AppliedResource | None] = {schema: AppliedResource(digest)}
    if graph not in sweep.state.resources:
        changed[graph] = AppliedResource("")
    applied = ResourceStatus("applied")
    state = sweep.state.with_resources(changed).with_statuses({graph: applied, schema: applied})
    state = _recorded(state.with_graph_digest(intent.graph_id), intent)
    return _finish(_with(replace(sweep, state=state), _forward(intent)), intent)


def _roll_delete_forward(sweep: Sweep, intent: Intent, approvals: tuple[Approval, ...]) -> Sweep:
    state = sweep.state.without_graph(intent.graph_id)
    approval = next((item for item in approvals if item.approval_id == intent.approval_id), None)
    if approval is not None:
        used = consume_approvals(approvals, approval, intent.operation_id)
        state = state.with_approvals(item.to_json() for item in used)
    sweep = replace(sweep, state=_recorded(state, intent))
    return _finish(_with(sweep, _forward(intent)), intent)


def _recorded(state: ClusterState, intent: Intent) -> ClusterState:
    record = {"kind": intent.kind, "graph_id": intent.graph_id, "rolled_forward_at": timestamp()}
    return replace(state, recovery_records={**state.recovery_records, intent.operation_id: record})


def _forward(intent: Intent) -> Diagnostic:
    message = f"the interrupted {intent.kind} of {intent.started_at} had completed; the ledger records it now"
    return warning("cluster_recovery_rolled_forward", graph_address(intent.graph_id), message)


def _finish(sweep: Sweep, intent: Intent) -> Sweep:
    return replace(sweep, finished=(*sweep.finished, intent))


def _keep_partial(sweep: Sweep, intent: Intent, live: LiveGraph) -> Sweep:
    address = graph_address(intent.graph_id)
    message = f"{intent.graph_uri}: {live.error}; remove them, then apply again"
    status = ResourceStatus("error", ("graph_create_incomplete",), message)
    state = sweep.state.with_statuses({address: status})
    sweep = _with(replace(sweep, state=state), error("graph_create_incomplete", address, message))
    return replace(sweep, kept=replace(sweep.kept, intents=(*sweep.kept.intents, intent)))


def _keep(sweep: Sweep, intent: Intent, why: str) -> Sweep:
    address = graph_address(intent.graph_id)
    message = (
        f"the {intent.kind} of {intent.started_at} was interrupted, and its outcome is not clear: {why}; repair "
        f"the graph, or delete {intent.key} to accept it as it is, then run `cluster refresh`"
    )
    state = sweep.state.with_statuses({address: ResourceStatus("drifted", (PENDING_CONDITION,), message)})
    sweep = _with(replace(sweep, state=state), warning("cluster_recovery_pending", address, message))
    return replace(sweep, kept=replace(sweep.kept, intents=(*sweep.kept.intents, intent)))


def _with(sweep: Sweep, finding: Diagnostic) -> Sweep:
    return replace(sweep, diagnostics=(*sweep.diagnostics, finding))

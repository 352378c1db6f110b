"""Prepare a plan: read what it depends on besides the configuration and the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.cluster.addresses import kind_of, name_of
from omnigraph.cluster.applying.live_graphs import LiveGraph, observe_graph
from omnigraph.cluster.configuration.model import Configuration
from omnigraph.cluster.diagnostics import Diagnostic, warning
from omnigraph.cluster.ledger.approvals import Approval, read_approvals
from omnigraph.cluster.ledger.intents import PendingIntents
from omnigraph.cluster.ledger.state import ClusterState
from omnigraph.cluster.ledger.storage import ClusterStorage
from omnigraph.cluster.planning.changes import Migration, Plan
from omnigraph.cluster.planning.plan import (
    PlanInputs,
    compute_plan,
    find_changes,
    find_stale_approvals,
)


@dataclass(frozen=True)
class PreparedPlan:
    """A plan, the approvals that it considered, and the warnings found on the way."""

    plan: Plan
    approvals: tuple[Approval, ...]
    diagnostics: tuple[Diagnostic, ...]


def prepare_plan(
    storage: ClusterStorage,
    configuration: Configuration,
    state: ClusterState,
    pending: PendingIntents,
    seen: Mapping[str, LiveGraph] | None = None,
) -> PreparedPlan:
    """Return the plan from the ledger to the configuration. `seen` has graphs that were opened already."""
    stored, notes = read_approvals(storage)
    # An approval that the ledger records is used up, even if its file could not be rewritten.
    approvals = tuple(item for item in stored if item.approval_id not in state.approval_records)
    migrations, warnings = _preview_migrations(storage, configuration, state, seen or {})
    plan = compute_plan(configuration, state, PlanInputs(pending.blocks, approvals, migrations))
    stale = tuple(
        warning(
            "approval_stale",
            item.resource,
            f"the approval {item.approval_id} of {item.approved_by} is for another configuration or state and is "
            "ignored: approve the change again",
        )
        for item in find_stale_approvals(configuration, plan, approvals)
    )
    return PreparedPlan(plan, approvals, (*notes, *warnings, *stale))


def _preview_migrations(
    storage: ClusterStorage,
    configuration: Configuration,
    state: ClusterState,
    seen: Mapping[str, LiveGraph],
) -> tuple[dict[str, Migration], tuple[Diagnostic, ...]]:
    found: dict[str, Migration] = {}
    warnings: list[Diagnostic] = []
    for change in find_changes(configuration, state):
        if kind_of(change.resource) != "schema" or change.operation != "update":
            continue
        graph = name_of(change.resource)
        live = seen.get(graph) or observe_graph(storage, graph)
        migration = live.migration_to(configuration.graphs[graph].schema)
        if migration is None:
            why = live.error or f"it is {live.presence}"
            message = f"the migration is not known, because the graph cannot be opened: {why}"
            warnings.append(warning("schema_preview_unavailable", change.resource, message))
        else:
            found[graph] = migration
    return found, tuple(warnings)

"""The steps of apply that move graphs: create, migrate, delete. An intent fences each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from omnigraph.cluster.addresses import graph_address, graph_of, kind_of, name_of, schema_address
from omnigraph.cluster.applying.live_graphs import (
    FIRST_VERSION,
    create_graph,
    delete_graph,
    find_readers,
    migrate_graph,
    observe_graph,
)
from omnigraph.cluster.configuration.model import Configuration
from omnigraph.cluster.diagnostics import ClusterFailure, Diagnostic, error, reason, warning
from omnigraph.cluster.ledger.approvals import Approval, confirm_approval, consume_approvals, find_approval
from omnigraph.cluster.ledger.intents import Intent, IntentKind, remove_intents, write_intent
from omnigraph.cluster.ledger.state import AppliedResource, ClusterState
from omnigraph.cluster.ledger.storage import ClusterStorage
from omnigraph.cluster.planning.changes import Change, Plan
from omnigraph.cluster.planning.plan import (
    DEPENDENCY_NOT_APPLIED,
    SCHEMA_APPLY_FAILED,
    approval_binding,
)
from omnigraph.errors import Conflict, OmnigraphError, OutcomeUnknown

_FAILED: Final[Mapping[IntentKind, str]] = {
    "graph_create": "graph_create_failed",
    "schema_apply": SCHEMA_APPLY_FAILED,
    "graph_delete": "graph_delete_failed",
}
_SKIPPED: Final[Mapping[IntentKind, str]] = {
    "graph_create": "graph_create_skipped",
    "schema_apply": "schema_apply_skipped",
    "graph_delete": "graph_delete_skipped",
}


@dataclass(frozen=True)
class Progress:
    """How far an apply has come.

    `state` is the ledger to write, `changes` the planned changes by address with what became of them. `intents` are
    removed after the ledger is written. After a failure `is_stopped`, and no further graph is moved.
    """

    state: ClusterState
    changes: Mapping[str, Change]
    intents: tuple[Intent, ...] = ()
    consumed: tuple[Approval, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    is_stopped: bool = False

    @property
    def plan_changes(self) -> tuple[Change, ...]:
        """The changes in the order of the plan."""
        return tuple(self.changes.values())

    def with_finding(self, *findings: Diagnostic) -> Progress:
        """Return the progress with further diagnostics."""
        return replace(self, diagnostics=(*self.diagnostics, *findings))

    def blocked(self, address: str, why: str) -> Progress:
        """Return the progress with a change that is not applied."""
        change = self.changes.get(address)
        if change is None:
            return self
        return replace(
            self, changes={**self.changes, address: replace(change, disposition="blocked", reason=why)}
        )


@dataclass(frozen=True)
class GraphSteps:
    """Moves the graphs of a cluster for one apply. `cas` is the identity of the ledger that it started from."""

    storage: ClusterStorage
    configuration: Configuration
    actor: str | None
    cas: str | None
    approvals: tuple[Approval, ...] = field(default=(), repr=False)

    def create_and_migrate(self, progress: Progress) -> Progress:
        """Create the new graphs, then migrate the changed schemas."""
        for change in progress.plan_changes:
            if kind_of(change.resource) == "graph" and _is(change, "create"):
                progress = self._create(progress, name_of(change.resource))
        for change in progress.plan_changes:
            graph = name_of(change.resource)
            if kind_of(change.resource) != "schema" or change.operation == "delete":
                continue
            if _is_unsupported(change):
                progress = self._refuse_migration(progress, change)
            elif _is(progress.changes[change.resource], change.operation) and not _is_new(progress, graph):
                progress = self._migrate(progress, change)
        return progress

    def delete_approved(self, progress: Progress) -> Progress:
        """Delete the graphs whose deletion is approved."""
        for change in progress.plan_changes:
            if kind_of(change.resource) == "graph" and _is(change, "delete"):
                progress = self._delete(progress, change)
        return progress

    # --- steps ---------------------------------------------------------------------------------------------

    def _create(self, progress: Progress, graph: str) -> Progress:
        schema = self.configuration.graphs[graph].schema
        intent = self._intent("graph_create", graph, expected=FIRST_VERSION, digest=schema.digest)
        moved = self._move(
            progress, intent, lambda: create_graph(self.storage, graph, schema, self.actor), graph
        )
        if moved.intents == progress.intents:
            return moved
        resources = {
            graph_address(graph): AppliedResource(""),
            schema_address(graph): AppliedResource(schema.digest),
        }
        return replace(moved, state=moved.state.with_resources(resources))

    def _migrate(self, progress: Progress, change: Change) -> Progress:
        graph = name_of(change.resource)
        schema = self.configuration.graphs[graph].schema
        applied = {change.resource: AppliedResource(schema.digest)}
        if change.migration is not None and not change.migration.steps:
            # Only comments or formatting differ.
            return replace(progress, state=progress.state.with_resources(applied))
        version = observe_graph(self.storage, graph).version
        intent = self._intent(
            "schema_apply",
            graph,
            observed=version,
            expected=None if version is None else version + 1,
            digest=schema.digest,
        )
        moved = self._move(
            progress, intent, lambda: migrate_graph(self.storage, graph, schema, self.actor), graph
        )
        if moved.intents == progress.intents:
            return moved
        return replace(moved, state=moved.state.with_resources(applied))

    def _refuse_migration(self, progress: Progress, change: Change) -> Progress:
        assert change.migration is not None
        lines = "; ".join(line for line in change.migration.lines if line.startswith("unsupported"))
        failure = error(SCHEMA_APPLY_FAILED, change.resource, f"the migration is not possible: {lines}")
        return replace(progress.with_finding(failure), is_stopped=True)

    def _delete(self, progress: Progress, change: Change) -> Progress:
        graph = name_of(change.resource)
        approval = find_approval(self.approvals, approval_binding(self.configuration, change))
        if approval is None:
            message = "the deletion has no approval any more"
            finding = error("apply_approval_invariant_violation", change.resource, message)
            return self._failed(progress.with_finding(finding), "graph_delete", graph, finding.code)
        if not progress.is_stopped:
            try:
                confirm_approval(self.storage, approval)
                readers = find_readers(self.storage, graph)
            except ClusterFailure as failure:
                finding = failure.diagnostics[0]
                return self._failed(progress.with_finding(finding), "graph_delete", graph, finding.code)
            except OmnigraphError as failure:
                finding = error("graph_delete_failed", change.resource, reason(failure))
                return self._failed(progress.with_finding(finding), "graph_delete", graph, finding.code)
            if readers:
                message = f"{readers} exports or copies read the graph: apply again when they have ended"
                finding = error("graph_delete_export_in_progress", change.resource, message)
                return self._failed(progress.with_finding(finding), "graph_delete", graph, finding.code)
        intent = self._intent("graph_delete", graph, approval_id=approval.approval_id)
        moved = self._move(progress, intent, lambda: delete_graph(self.storage, graph), graph)
        if moved.is_stopped:
            return moved
        used = consume_approvals(self.approvals, approval, intent.operation_id)
        state = moved.state.without_graph(graph).with_approvals(item.to_json() for item in used)
        return replace(moved, state=state, consumed=(*moved.consumed, *used))

    def _intent(
        self,
        kind: IntentKind,
        graph: str,
        *,
        observed: int | None = None,
        expected: int | None = None,
        digest: str | None = None,
        approval_id: str | None = None,
    ) -> Intent:
        return Intent.begin(
            kind,
            self.storage,
            graph,
            actor=self.actor,
            cas=self.cas,
            observed=observed,
            expected=expected,
            digest=digest,
            approval_id=approval_id,
        )

    def _move(self, progress: Progress, intent: Intent, work: Callable[[], None], graph: str) -> Progress:
        """Do one step behind its intent. The intent is added to those of the progress if the step succeeded."""
        address = schema_address(graph) if intent.kind == "schema_apply" else graph_address(graph)
        if progress.is_stopped:
            code = _SKIPPED[intent.kind]
            finding = warning(code, address, "skipped, because an earlier change of a graph failed")
            return self._failed(progress.with_finding(finding), intent.kind, graph, code)
        try:
            write_intent(self.storage, intent)
        except ClusterFailure as failure:
            code = _FAILED[intent.kind]
            return self._failed(progress.with_finding(*failure.diagnostics), intent.kind, graph, code)
        try:
            work()
        except OmnigraphError as failure:
            code = _FAILED[intent.kind]
            progress = progress.with_finding(error(code, address, _explain(intent, failure)))
            if not isinstance(failure, OutcomeUnknown) and intent.kind != "graph_delete":
                # Nothing happened, or a creation was begun that the next one completes.
                progress = progress.with_finding(*remove_intents(self.storage, (intent,)))
            return self._failed(progress, intent.kind, graph, code)
        return replace(progress, intents=(*progress.intents, intent))

    def _failed(self, progress: Progress, kind: IntentKind, graph: str, why: str) -> Progress:
        """Return the progress with a step that was not done, and with what depends on it blocked."""
        progress = replace(progress, is_stopped=True)
        own = graph_address(graph)
        for change in progress.plan_changes:
            address = change.resource
            if graph_of(address) == graph:
                is_delete = change.operation == "delete"
                if kind == "graph_delete" or (address != own and kind_of(address) != "schema"):
                    if is_delete and kind != "graph_delete":
                        continue
                    progress = progress.blocked(address, why if address == own else DEPENDENCY_NOT_APPLIED)
                elif kind == "graph_create" or kind_of(address) == "schema":
                    progress = progress.blocked(address, why)
            elif self._needs(progress, change, own, kind):
                progress = progress.blocked(address, DEPENDENCY_NOT_APPLIED)
        return progress

    def _needs(self, progress: Progress, change: Change, graph: str, kind: IntentKind) -> bool:
        """Whether a change of a policy or a provider must wait for a graph that was not created or deleted."""
        if kind == "graph_create":
            policy = self.configuration.policies.get(name_of(change.resource))
            return kind_of(change.resource) == "policy" and policy is not None and graph in policy.applies_to
        applied, own = progress.state.resources.get(change.resource), progress.state.resources.get(graph)
        if kind != "graph_delete" or applied is None or own is None:
            return False
        is_provider = change.operation == "delete" and own.embedding_provider == change.resource
        return is_provider or graph in (applied.applies_to or ())


def _is(change: Change, operation: str) -> bool:
    return change.operation == operation and change.disposition == "applied"


def _is_unsupported(change: Change) -> bool:
    return change.migration is not None and not change.migration.supported and change.disposition == "blocked"


def _is_new(progress: Progress, graph: str) -> bool:
    """Whether the graph is created by this apply, with its declared schema."""
    change = progress.changes.get(graph_address(graph))
    return change is not None and change.operation == "create"


def _explain(intent: Intent, failure: OmnigraphError) -> str:
    text = reason(failure)
    if intent.kind == "graph_create" and isinstance(failure, Conflict):
        return f"{text}; run `omnigraph cluster refresh` to adopt the graph"
    return text


def plan_changes(plan: Plan) -> dict[str, Change]:
    """Return the changes of a plan by address."""
    return {change.resource: change for change in plan.changes}

"""`cluster rollback`: apply the catalogue of an earlier revision again.

The catalogue is the stored queries, the policies and the embedding providers. Graphs and their schemas stay as they
are: the data that an earlier schema described may not exist any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from omnigraph.cluster.addresses import graph_address, graph_of, kind_of, name_of, sort_key
from omnigraph.cluster.applying.live_graphs import observe_graph
from omnigraph.cluster.applying.observe import check_payload
from omnigraph.cluster.configuration.declared_files import decode
from omnigraph.cluster.diagnostics import ClusterFailure, Diagnostic, error, warning
from omnigraph.cluster.ledger.history import HistoryEntry, commit_ledger, read_history
from omnigraph.cluster.ledger.intents import read_intents
from omnigraph.cluster.ledger.lock import ClusterLock
from omnigraph.cluster.ledger.state import AppliedResource, ClusterState, ResourceStatus
from omnigraph.cluster.ledger.storage import ClusterStorage
from omnigraph.cluster.planning.changes import Change, Plan
from omnigraph.cluster.reports import ApplyReport, StateObservations
from omnigraph.cluster.session import Session, run_command
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.source import Source

_CATALOGUE: Final = ("query", "policy", "provider")


def rollback(
    folder: str | Path,
    revision: int,
    options: Mapping[str, str] | None = None,
    *,
    actor: str | None = None,
) -> ApplyReport:
    """Bring queries, policies and providers to those of an earlier ledger revision, as a new revision.

    The queries must type-check against the present schemas. The declared configuration is not changed, so the next
    plan shows the difference to it.
    """

    def empty(config_dir: str, diagnostics: tuple[Diagnostic, ...]) -> ApplyReport:
        return ApplyReport(config_dir, diagnostics, actor=actor, rolled_back_to=revision)

    def work(session: Session) -> ApplyReport:
        return session.run_locked("rollback", lambda lock: _run(session, revision, actor, lock))

    return run_command(folder, options, empty, work)


def _run(session: Session, revision: int, actor: str | None, lock: ClusterLock | None) -> ApplyReport:
    storage, stored = session.storage, session.require_state()
    state = stored.or_empty
    pending = read_intents(storage)
    entry = next((e for e in read_history(storage, stored.cas) if e.revision == revision), None)
    if entry is None:
        message = f"the history has no revision {revision}: `omnigraph cluster history` lists them"
        raise ClusterFailure(error("revision_not_found", f"revision {revision}", message))
    target, skipped = earlier_catalogue(state, entry)
    changes = find_catalogue_changes(state, target)
    findings = [*pending.diagnostics, *skipped]
    findings += check_catalogue(storage, target, changes)
    if any(item.severity == "error" for item in findings):
        raise ClusterFailure(*findings)
    after = stored
    if changes:
        statuses: dict[str, ResourceStatus | None] = {
            change.resource: None if change.operation == "delete" else ResourceStatus("applied")
            for change in changes
        }
        after = commit_ledger(storage, stored, target.with_statuses(statuses), "rollback", actor)
    return ApplyReport(
        session.folder,
        tuple(findings),
        session.configuration,
        Plan(changes),
        after.or_empty,
        actor,
        converged=after.or_empty.digests == dict(session.configuration.digests),
        state_written=bool(changes),
        rolled_back_to=revision,
        observations=StateObservations(storage, after, acquired=lock),
    )


def earlier_catalogue(
    state: ClusterState, entry: HistoryEntry
) -> tuple[ClusterState, tuple[Diagnostic, ...]]:
    """Return the ledger with the catalogue of an earlier one, and a warning for each part that is left out."""
    earlier = entry.read_state()
    wanted: dict[str, AppliedResource] = {}
    skipped: list[Diagnostic] = []
    for address, item in earlier.resources.items():
        if kind_of(address) not in _CATALOGUE:
            continue
        graph = graph_of(address)
        if graph is not None and graph_address(graph) not in state.resources:
            message = f"left out: graph '{graph}' does not exist any more"
            skipped.append(warning("apply_dependency_blocked", address, message))
            continue
        if item.applies_to is not None:
            known = tuple(to for to in item.applies_to if to == "cluster" or to in state.resources)
            if not known:
                message = "left out: none of its graphs exists any more"
                skipped.append(warning("apply_dependency_blocked", address, message))
                continue
            item = replace(item, applies_to=known)
        wanted[address] = item
    changed: dict[str, AppliedResource | None] = {
        address: None for address in state.resources if kind_of(address) in _CATALOGUE
    }
    result = state.with_resources({**changed, **wanted})
    for graph in state.graphs:
        before = earlier.resources.get(graph_address(graph))
        own = result.resources[graph_address(graph)]
        provider = own.embedding_provider if before is None else before.embedding_provider
        provider = provider if provider in result.resources else None
        result = result.with_resources({graph_address(graph): replace(own, embedding_provider=provider)})
        result = result.with_graph_digest(graph)
    # The result is that of no configuration.
    return replace(result, config_digest=None), tuple(skipped)


def find_catalogue_changes(before: ClusterState, after: ClusterState) -> tuple[Change, ...]:
    """Return the differences of two ledgers."""
    found: list[Change] = []
    for address in sorted({*before.resources, *after.resources}, key=sort_key):
        old, new = before.resources.get(address), after.resources.get(address)
        if old == new:
            continue
        found.append(
            Change(
                address,
                "create" if old is None else "delete" if new is None else "update",
                None if old is None else old.digest,
                None if new is None else new.digest,
                "derived" if kind_of(address) == "graph" else "applied",
                binding_change=old is not None and new is not None and old.applies_to != new.applies_to,
            )
        )
    return tuple(found)


def check_catalogue(
    storage: ClusterStorage, target: ClusterState, changes: tuple[Change, ...]
) -> list[Diagnostic]:
    """Return an error for each payload that is gone, and for each query that the live schema does not allow."""
    found: list[Diagnostic] = []
    graphs = {graph for change in changes if (graph := graph_of(change.resource)) is not None}
    lives = {graph: observe_graph(storage, graph) for graph in sorted(graphs)}
    for change in changes:
        if change.operation == "delete" or kind_of(change.resource) not in ("query", "policy"):
            continue
        digest = target.resources[change.resource].digest
        finding = check_payload(storage, change.resource, digest)
        if finding is not None:
            found.append(replace(finding, severity="error"))
            continue
        graph = graph_of(change.resource)
        live = None if graph is None else lives[graph]
        if live is None or live.catalog is None:
            continue
        name = name_of(change.resource)
        source = Source(
            decode(storage.read_payload(change.resource, digest), change.resource), change.resource
        )
        try:
            for query in parse_queries(source).queries:
                if query.name == name:
                    check_query(query, live.catalog.schema, source)
        except LanguageError as failure:
            message = f"it does not type-check with the present schema: {failure.reason}"
            found.append(error("query_typecheck_error", change.resource, message))
    return found

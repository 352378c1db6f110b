"""`cluster import` and `cluster refresh`: bring the ledger to what is in storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

from omnigraph.cluster.addresses import graph_address, kind_of, schema_address
from omnigraph.cluster.applying.live_graphs import LiveGraph, observe_graph
from omnigraph.cluster.applying.recovery import Sweep, sweep_recoveries
from omnigraph.cluster.configuration.model import Configuration
from omnigraph.cluster.diagnostics import ClusterFailure, Diagnostic, error, has_errors, reason, warning
from omnigraph.cluster.digests import digest_of
from omnigraph.cluster.ledger.approvals import read_approvals
from omnigraph.cluster.ledger.history import commit_ledger
from omnigraph.cluster.ledger.intents import read_intents, remove_intents
from omnigraph.cluster.ledger.lock import ClusterLock
from omnigraph.cluster.ledger.state import (
    STATE_KEY,
    AppliedResource,
    ClusterState,
    ResourceStatus,
    StatusName,
)
from omnigraph.cluster.ledger.storage import ClusterStorage
from omnigraph.cluster.reports import StateObservations, StatusReport
from omnigraph.cluster.session import Session, run_command
from omnigraph.errors import NotFound, OmnigraphError

Observing: TypeAlias = Literal["import", "refresh"]
SCHEMA_MISMATCH: Final = "schema_mismatch"
_CONCURRENT_OPENS: Final = 4


@dataclass(frozen=True)
class Observed:
    """The ledger after an observation of storage, and what was found."""

    state: ClusterState
    diagnostics: tuple[Diagnostic, ...] = ()


def import_state(
    folder: str | Path, options: Mapping[str, str] | None = None, *, actor: str | None = None
) -> StatusReport:
    """Create the ledger of a cluster. Graphs that exist at their addresses are adopted with their schema.

    Nothing is written if a graph cannot be read.
    """
    return _observe(folder, options, "import", actor)


def refresh(
    folder: str | Path, options: Mapping[str, str] | None = None, *, actor: str | None = None
) -> StatusReport:
    """Correct the ledger to the graphs and payloads in storage, so that the next plan shows the drift."""
    return _observe(folder, options, "refresh", actor)


def _observe(
    folder: str | Path, options: Mapping[str, str] | None, operation: Observing, actor: str | None
) -> StatusReport:
    def empty(config_dir: str, diagnostics: tuple[Diagnostic, ...]) -> StatusReport:
        return StatusReport(config_dir, diagnostics, operation=operation)

    def work(session: Session) -> StatusReport:
        return session.run_locked(operation, lambda lock: _run(session, operation, actor, lock))

    return run_command(folder, options, empty, work)


def _run(session: Session, operation: Observing, actor: str | None, lock: ClusterLock | None) -> StatusReport:
    storage, configuration = session.storage, session.configuration
    stored = storage.read_state() if operation == "import" else session.require_state()
    if operation == "import" and stored.state is not None:
        message = "there is a ledger already: run `omnigraph cluster refresh` to correct it"
        raise ClusterFailure(error("state_already_exists", storage.path(STATE_KEY), message))
    approvals, _ = read_approvals(storage)
    sweep = sweep_recoveries(storage, configuration, stored.or_empty, read_intents(storage), approvals)
    observed = observe_cluster(storage, configuration, sweep.state, sweep)
    findings = (*sweep.diagnostics, *observed.diagnostics)
    if has_errors(observed.diagnostics) and operation == "import":
        raise ClusterFailure(*findings)
    after = commit_ledger(storage, stored, observed.state, operation, actor)
    return StatusReport(
        session.folder,
        (*findings, *remove_intents(storage, sweep.finished)),
        after.or_empty,
        operation,
        observations=StateObservations(storage, after, acquired=lock),
    )


def observe_cluster(
    storage: ClusterStorage, configuration: Configuration, state: ClusterState, sweep: Sweep | None = None
) -> Observed:
    """Observe every declared graph and every applied payload; return the ledger that says what was found."""
    graphs = sorted({*configuration.graphs, *state.graphs})
    with ThreadPoolExecutor(_CONCURRENT_OPENS) as pool:
        lives = list(pool.map(partial(observe_graph, storage), graphs))
    kept = frozenset[str]() if sweep is None else frozenset(i.graph_id for i in sweep.kept.intents)
    findings = list(() if sweep is None else find_conflicts(sweep.seen, lives))
    for live in lives:
        if live.graph in kept:
            # The sweep has said what is wrong with it.
            continue
        observed = observe_one(storage, configuration, state, live)
        state = observed.state
        findings += observed.diagnostics
    observed = check_payloads(storage, state)
    state = observed.state
    for graph in state.graphs:
        state = state.with_graph_digest(graph)
    return Observed(state, (*findings, *observed.diagnostics))


def find_conflicts(seen: Mapping[str, LiveGraph], lives: Iterable[LiveGraph]) -> list[Diagnostic]:
    """Return an error for each graph whose schema changed between two observations of one command."""
    found: list[Diagnostic] = []
    for live in lives:
        before = seen.get(live.graph)
        if before is not None and (before.presence, before.source) != (live.presence, live.source):
            message = (
                f"the graph was at version {before.version} and is at version {live.version} with another schema: "
                "another process changes it, run the command again"
            )
            found.append(error("conflicting_graph_manifest_observation", graph_address(live.graph), message))
    return found


def observe_one(
    storage: ClusterStorage, configuration: Configuration, state: ClusterState, live: LiveGraph
) -> Observed:
    """Return the ledger with what was found of one graph."""
    graph, schema = graph_address(live.graph), schema_address(live.graph)
    declared = configuration.graphs.get(live.graph)
    file = None if declared is None else declared.schema
    state = replace(state, observations={**state.observations, graph: live.to_observation(storage, file)})
    if live.presence == "absent":
        status: StatusName = "drifted" if graph in state.resources else "pending"
        missing = ResourceStatus(status, ("graph_missing",), "there is no graph in storage")
        removed = state.with_resources({graph: None, schema: None})
        return Observed(removed.with_statuses({graph: missing, schema: missing}))
    if live.presence != "open":
        failed = ResourceStatus("error", ("graph_observation_error",), live.error)
        finding = error("graph_observation_error", graph, live.error or live.presence)
        return Observed(state.with_statuses({graph: failed}), (finding,))
    digest = live.schema_digest(file)
    assert digest is not None
    own = state.resources.get(graph, AppliedResource(""))
    state = state.with_resources({graph: own, schema: AppliedResource(digest)}).with_graph_digest(live.graph)
    if file is not None and digest != file.digest:
        drifted = ResourceStatus(
            "drifted", (SCHEMA_MISMATCH,), "the schema of the graph differs from the declared one"
        )
        return Observed(state.with_statuses({graph: drifted, schema: drifted}))
    applied = ResourceStatus("applied")
    return Observed(state.with_statuses({graph: applied, schema: applied}))


def check_payloads(storage: ClusterStorage, state: ClusterState) -> Observed:
    """Return the ledger without the queries and policies whose payload is missing or altered."""
    findings: list[Diagnostic] = []
    for address, item in state.resources.items():
        if kind_of(address) not in ("query", "policy"):
            continue
        finding = check_payload(storage, address, item.digest)
        if finding is None:
            continue
        findings.append(finding)
        if finding.severity == "warning":
            status = ResourceStatus("drifted", ("payload_missing",), finding.message)
            state = state.with_resources({address: None}).with_statuses({address: status})
    return Observed(state, tuple(findings))


def check_payload(storage: ClusterStorage, address: str, digest: str) -> Diagnostic | None:
    """Return what is wrong with the payload of a query or policy, or None."""
    try:
        data = storage.read_payload(address, digest)
    except NotFound:
        message = "its payload is missing in storage: refresh and apply store it again"
        return warning("catalog_payload_missing", address, message)
    except OmnigraphError as failure:
        return error("catalog_payload_read_error", address, reason(failure))
    if digest_of(data) != digest:
        message = "its payload in storage is altered: refresh and apply store it again"
        return warning("catalog_payload_mismatch", address, message)
    return None

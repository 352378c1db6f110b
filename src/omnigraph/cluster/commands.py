"""The commands that read a cluster or remove its lock: validate, plan, status, force-unlock, history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from omnigraph.cluster.addresses import graph_address, kind_of
from omnigraph.cluster.applying.observe import check_payload, observe_cluster
from omnigraph.cluster.applying.prepare_plan import prepare_plan
from omnigraph.cluster.configuration.read_configuration import load_configuration
from omnigraph.cluster.diagnostics import ClusterFailure, Diagnostic, warning
from omnigraph.cluster.ledger.history import read_history
from omnigraph.cluster.ledger.intents import PendingIntents, read_intents
from omnigraph.cluster.ledger.lock import ClusterLock, read_lock, remove_lock
from omnigraph.cluster.ledger.state import STATE_KEY
from omnigraph.cluster.reports import (
    HistoryReport,
    PlanReport,
    StateObservations,
    StatusReport,
    UnlockReport,
    ValidateReport,
)
from omnigraph.cluster.session import Session, observe_state, run_command


def validate(folder: str | Path) -> ValidateReport:
    """Check the configuration of a directory. Storage is not accessed."""
    loaded = load_configuration(folder)
    return ValidateReport(str(folder), loaded.diagnostics, str(loaded.config_file), loaded.configuration)


def plan(folder: str | Path, options: Mapping[str, str] | None = None) -> PlanReport:
    """Return the changes that apply would make. A missing ledger counts as empty."""

    def work(session: Session) -> PlanReport:
        return session.run_locked("plan", lambda lock: _plan(session, lock))

    return run_command(folder, options, PlanReport, work)


def _plan(session: Session, lock: ClusterLock | None) -> PlanReport:
    stored = session.storage.read_state()
    pending = read_intents(session.storage)
    prepared = prepare_plan(session.storage, session.configuration, stored.or_empty, pending)
    return PlanReport(
        session.folder,
        (*_explain_pending(pending), *prepared.diagnostics),
        session.configuration,
        prepared.plan,
        observations=StateObservations(session.storage, stored, acquired=lock),
    )


def _explain_pending(pending: PendingIntents) -> tuple[Diagnostic, ...]:
    found = [
        warning(
            "cluster_recovery_pending",
            graph_address(intent.graph_id),
            f"the {intent.kind} of {intent.started_at} was interrupted: the next apply or refresh settles it",
        )
        for intent in pending.intents
    ]
    return (*pending.diagnostics, *found)


def status(
    folder: str | Path, options: Mapping[str, str] | None = None, *, observes: bool = False
) -> StatusReport:
    """Return the ledger with a check of its payloads, without a lock.

    With `observes` the graphs are opened and compared, as `refresh` does; nothing is written.
    """

    def work(session: Session) -> StatusReport:
        storage = session.storage
        stored = storage.read_state()
        findings = [*_explain_pending(read_intents(storage))]
        try:
            held = read_lock(storage)
        except ClusterFailure as failure:
            held, findings = None, [*findings, *failure.diagnostics]
        state = stored.or_empty
        if stored.state is None:
            message = "there is no ledger: run `omnigraph cluster import`"
            findings.append(warning("state_missing", storage.path(STATE_KEY), message))
        if observes:
            observed = observe_cluster(storage, session.configuration, state)
            state = replace(observed.state, state_revision=state.state_revision)
            findings += observed.diagnostics
        else:
            for address, item in state.resources.items():
                finding = None
                if kind_of(address) in ("query", "policy"):
                    finding = check_payload(storage, address, item.digest)
                findings += [] if finding is None else [finding]
        return StatusReport(
            session.folder,
            tuple(findings),
            state,
            observations=StateObservations(storage, stored, held=held),
        )

    return run_command(folder, options, StatusReport, work)


def force_unlock(folder: str | Path, lock_id: str, options: Mapping[str, str] | None = None) -> UnlockReport:
    """Remove the lock with an id, which a killed process has left."""

    def work(session: Session) -> UnlockReport:
        remove_lock(session.storage, lock_id)
        return UnlockReport(session.folder, lock_removed=True, observations=observe_state(session.storage))

    return run_command(folder, options, UnlockReport, work)


def history(folder: str | Path, options: Mapping[str, str] | None = None) -> HistoryReport:
    """Return the ledgers that were written, the newest first."""

    def work(session: Session) -> HistoryReport:
        stored = session.require_state()
        entries = read_history(session.storage, stored.cas)
        return HistoryReport(session.folder, (), [entry.to_json() for entry in entries])

    return run_command(folder, options, HistoryReport, work)

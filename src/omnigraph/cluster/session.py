"""What all commands on a cluster share: its configuration, its storage, and the lock around the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from omnigraph.cluster.configuration.model import Configuration
from omnigraph.cluster.configuration.read_configuration import Loaded, load_configuration
from omnigraph.cluster.diagnostics import ClusterFailure, Diagnostic, error, warning
from omnigraph.cluster.ledger.lock import ClusterLock, acquire_lock, read_lock, release_lock
from omnigraph.cluster.ledger.state import STATE_KEY
from omnigraph.cluster.ledger.storage import ClusterStorage, StoredState
from omnigraph.cluster.reports import Report, StateObservations

R = TypeVar("R", bound=Report)


@dataclass(frozen=True)
class Session:
    """One command on a cluster. `notes` are the warnings of its configuration."""

    folder: str
    configuration: Configuration
    storage: ClusterStorage
    notes: tuple[Diagnostic, ...] = field(default=(), repr=False)

    def run_locked(self, operation: str, work: Callable[[ClusterLock | None], R]) -> R:
        """Run `work` with the lock of the cluster. Raises `ClusterFailure` if another process has it.

        A process that is killed leaves the lock behind.
        """
        if not self.configuration.uses_lock:
            message = (
                "`state.lock` is false: only the compare-and-swap of the ledger protects concurrent commands"
            )
            report = work(None)
            return add(report, warning("state_lock_disabled", "state.lock", message))
        lock = acquire_lock(self.storage, operation)
        try:
            report = work(lock)
        except BaseException:
            release_lock(self.storage, lock)
            raise
        return add(report, *release_lock(self.storage, lock))

    def require_state(self) -> StoredState:
        """Return the ledger. Raises `ClusterFailure` with `state_missing` if there is none."""
        stored = self.storage.read_state()
        if stored.state is None:
            message = "there is no ledger: run `omnigraph cluster import` first"
            raise ClusterFailure(error("state_missing", self.storage.path(STATE_KEY), message))
        return stored


def run_command(
    folder: str | Path,
    options: Mapping[str, str] | None,
    empty: Callable[..., R],
    work: Callable[[Session], R],
) -> R:
    """Run `work` on the cluster of a configuration directory.

    `empty` makes the report of a command that could not run, from `config_dir` and `diagnostics`, and from
    `observations` as far as they are known.
    """
    loaded = load_configuration(folder)
    try:
        session = Session(str(folder), loaded.require(), _storage(loaded, options), loaded.diagnostics)
    except ClusterFailure as failure:
        return empty(config_dir=str(folder), diagnostics=_merged(loaded.diagnostics, failure))
    try:
        report = work(session)
    except ClusterFailure as failure:
        diagnostics = _merged(loaded.diagnostics, failure)
        report = empty(config_dir=str(folder), diagnostics=diagnostics)
        return replace(report, observations=observe_state(session.storage))
    return replace(report, diagnostics=(*loaded.diagnostics, *report.diagnostics))


def observe_state(storage: ClusterStorage) -> StateObservations:
    """Return what can be read of the ledger and of the lock."""
    stored, held = StoredState(), None
    with suppress(ClusterFailure):
        stored = storage.read_state()
    with suppress(ClusterFailure):
        held = read_lock(storage)
    return StateObservations(storage, stored, held=held)


def add(report: R, *diagnostics: Diagnostic) -> R:
    """Return a report with further diagnostics."""
    return replace(report, diagnostics=(*report.diagnostics, *diagnostics))


def _storage(loaded: Loaded, options: Mapping[str, str] | None) -> ClusterStorage:
    return ClusterStorage.at(loaded.require().storage, options)


def _merged(notes: tuple[Diagnostic, ...], failure: ClusterFailure) -> tuple[Diagnostic, ...]:
    return (*notes, *(item for item in failure.diagnostics if item not in notes))

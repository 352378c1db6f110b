"""The results of maintenance: indexes, compaction, recovery and repair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from omnigraph.api.results.commits import Commit, Timestamp
from omnigraph.lang.temporal import EPOCH_TIME

if TYPE_CHECKING:
    from omnigraph.maintain.optimize import TypeOptimization
    from omnigraph.store.manifest.records import RecoveryRecord


@dataclass(frozen=True, slots=True)
class Index:
    """An index on a property, or on ``id``, ``src`` or ``dst``.

    `rows` is the number of rows of the type and `covered` the number of rows in the index. Queries scan the other
    rows, so coverage changes their speed and never their result.
    """

    type: str
    property: str
    kind: str
    rows: int
    covered: int


@dataclass(frozen=True, slots=True)
class Optimized:
    """The result of `Graph.optimize` for each type. `commit` is None if there was nothing to do."""

    commit: Commit | None
    branch: str
    datasets: tuple[TypeOptimization, ...] = ()


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of `Graph.repair`.

    `pending` is the number of interrupted bulk writes before the repair, and `settled` has the outcome of each one
    that was rolled forward or discarded. `graph_manifest_version` is the version of main afterwards. `datasets` has
    the classification and the action for each type, and for each write that affects no type of main. `reset` is the
    reset of a branch, if one was requested: `branch`, `head`, `to`, `lost_commits`, `types` and `commit_id`.
    """

    confirmed: bool
    pending: int
    settled: tuple[Mapping[str, Any], ...] = ()
    graph_manifest_version: int = 0
    datasets: tuple[Mapping[str, Any], ...] = ()
    reset: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """The outcome of one interrupted bulk write: ``rolled_forward``, ``discarded`` or ``orphaned``.

    `actor` is the actor of the write. `commit_id` is the commit that recovery published, if it did.
    """

    id: str
    outcome: str
    branch: str
    operation: str
    actor: str | None
    commit_id: str | None
    reason: str
    created_at: Timestamp

    @classmethod
    def of(cls, record: RecoveryRecord) -> Recovery:
        """Return the outcome of a manifest record."""
        return cls(
            id=record.id,
            outcome=record.outcome,
            branch=record.branch,
            operation=record.operation,
            actor=record.actor,
            commit_id=record.commit_id,
            reason=record.reason,
            created_at=EPOCH_TIME + timedelta(microseconds=record.created_at),
        )

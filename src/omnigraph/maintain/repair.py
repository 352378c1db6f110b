"""Repair: what dead bulk writers left in storage beyond what is published, type by type, and having it settled.

Every open for writing and every write settle the same, so there is nearly always nothing to tell. What remains is
an intent that nobody can read, which stops writers until it is given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from omnigraph.errors import RecoveryRequired
from omnigraph.graph.intents import PREFIX, Intent
from omnigraph.graph.recovery import UNKNOWN_OPERATION
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.write_plan import TableWrite, WritePlan
from omnigraph.store.manifest.records import RecoveryRecord

Classification: TypeAlias = Literal[
    "no_drift", "verified_maintenance", "verified_write", "incomplete", "unverifiable"
]
Action: TypeAlias = Literal["no_op", "preview", "healed", "discarded", "forced", "refused"]

ALIVE = "its writer may be alive, or others were quicker: try again"


@dataclass(frozen=True, slots=True)
class Repaired:
    """One type, or an operation that is not known to concern any: what lies beyond it, and what became of that.

    `head` is the version that is staged for the type, and `version` where nothing is.
    """

    type_key: str
    version: int | None
    head: int | None
    classification: Classification
    action: Action
    operations: tuple[str, ...] = ()
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON form. Versions use all 64 bits, so they are strings."""
        return {
            "type_key": self.type_key,
            "published_dataset_version": None if self.version is None else str(self.version),
            "lance_head_version": None if self.head is None else str(self.head),
            "classification": self.classification,
            "action": self.action,
            "operations": list(self.operations),
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of `repair`.

    `pending` is the number of intents before the repair. `settled` has the recovery record of each intent that was
    rolled forward or discarded. `graph_version` is the version of `main` afterwards.
    """

    pending: int
    settled: tuple[RecoveryRecord, ...]
    graph_version: int
    datasets: tuple[Repaired, ...]


@dataclass(frozen=True, slots=True)
class _Left:
    """An operation whose owner is gone, what became of it, and why. Without an intent it cannot be read."""

    id: str
    intent: Intent | None
    action: Action
    error: str | None
    record: RecoveryRecord | None = None

    @property
    def plan(self) -> WritePlan | None:
        return None if self.intent is None else self.intent.plan

    @property
    def classification(self) -> Classification:
        if self.intent is None:
            return "unverifiable"
        if self.plan is None:
            return "incomplete"
        return "verified_maintenance" if self.plan.operation_class == "maintenance" else "verified_write"

    @property
    def operations(self) -> tuple[str, ...]:
        return () if self.intent is None else (self.intent.operation,)

    def writes(self, state: Snapshot) -> Mapping[str, TableWrite]:
        """What it has staged for the branch of a state, by table."""
        plan = self.plan
        return {} if plan is None or plan.incarnation != state.commit.incarnation else plan.writes


def repair(repository: Repository, *, confirm: bool = False, force: bool = False) -> RepairReport:
    """Report interrupted bulk writes by type. With `confirm` settle them.

    `force` also discards writes whose intent cannot be read.
    A complete write is rolled forward and an incomplete one discarded; both are recorded. A repository that was
    opened with recovery has nothing left to report.
    """
    state = repository.snapshot()
    pending = repository.intents.pending()
    if confirm:
        repository.intents.remove_strays(pending)
    left = list(_left(repository, pending.ids, confirm, force))
    rows = [_row(state, key, left) for key in state.catalog.tables]
    tables = {str(table.id) for table in state.catalog.tables.values()}
    others = [item for item in left if tables.isdisjoint(item.writes(state))]
    rows += [
        Repaired(
            f"{PREFIX}{item.id}", None, None, item.classification, item.action, item.operations, item.error
        )
        for item in others
    ]
    settled = tuple(item.record for item in left if item.record is not None)
    version = repository.snapshot().commit.sequence
    return RepairReport(len(pending.ids), settled, version, tuple(rows))


def _left(repository: Repository, ids: Iterable[str], confirm: bool, force: bool) -> Iterator[_Left]:
    for id_ in ids:
        intent, unread = None, None
        try:
            intent = repository.intents.read(id_)
        except RecoveryRequired as error:
            unread = error.message
        if unread is None and (intent is None or not repository.intents.is_abandoned(intent)):
            continue
        if not confirm:
            yield _Left(id_, intent, "preview", unread)
            continue
        action, reason, record = _settle(repository, id_, force)
        yield _Left(id_, intent, action, reason or unread, record)


def _settle(
    repository: Repository, id_: str, force: bool
) -> tuple[Action, str | None, RecoveryRecord | None]:
    try:
        record = repository.recover_operation(id_, force=force)
    except RecoveryRequired:
        return "refused", None, None
    if record is None:
        left = id_ in repository.intents.pending().ids
        return ("refused", ALIVE, None) if left else ("healed", None, None)
    if record.outcome == "rolled_forward":
        return "healed", None, record
    return ("forced" if record.operation == UNKNOWN_OPERATION else "discarded"), record.reason, record


def _row(state: Snapshot, key: str, left: Sequence[_Left]) -> Repaired:
    version, table = state.pin(key).version, str(state.catalog.tables[key].id)
    mine = [(item, item.writes(state)[table]) for item in left if table in item.writes(state)]
    if not mine:
        return Repaired(key, version, version, "no_drift", "no_op")
    last, write = mine[-1]
    operations = tuple(name for item, _ in mine for name in item.operations)
    return Repaired(key, version, write.version, last.classification, last.action, operations, last.error)

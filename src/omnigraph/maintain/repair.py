"""Repair: report interrupted bulk writes by type, and recover them.

Opening a graph for writing and every write recover the same operations, so there is usually nothing to report. An
intent that cannot be read remains, and blocks writers until it is discarded by force.
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

MAY_BE_ALIVE = "its writer may be alive, or another process is recovering it: try again"


@dataclass(frozen=True, slots=True)
class TypeRepair:
    """The interrupted writes of one type, or an operation without a known type, and the action taken.

    `version` is the number of the published version of the type. `head` is the number that a staged version will
    have, or equal to `version` if there is none.
    """

    type_key: str
    version: int | None
    head: int | None
    classification: Classification
    action: Action
    operations: tuple[str, ...] = ()
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "type_key": self.type_key,
            "published_dataset_version": self.version,
            "lance_head_version": self.head,
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
    datasets: tuple[TypeRepair, ...]


@dataclass(frozen=True, slots=True)
class _InterruptedWrite:
    """An operation whose owner is dead, the action taken, and the reason. `intent` is None if it cannot be read."""

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

    def writes(self, snapshot: Snapshot) -> Mapping[str, TableWrite]:
        """Return the staged tables if the operation belongs to the branch of a snapshot."""
        plan = self.plan
        return {} if plan is None or plan.incarnation != snapshot.commit.incarnation else plan.writes


def repair(repository: Repository, *, confirm: bool = False, force: bool = False) -> RepairReport:
    """Report interrupted bulk writes by type. With `confirm` recover them.

    A complete write is rolled forward and an incomplete one discarded, each with a recovery record. `force` also
    discards writes whose intent cannot be read. A repository that was opened with recovery has nothing left to
    report.
    """
    snapshot = repository.snapshot()
    pending = repository.intents.pending()
    if confirm:
        repository.intents.remove_strays(pending)
    interrupted = list(_interrupted_writes(repository, pending.ids, confirm, force))
    rows = [_row(snapshot, key, interrupted) for key in snapshot.catalog.tables]
    tables = {str(table.id) for table in snapshot.catalog.tables.values()}
    others = [item for item in interrupted if tables.isdisjoint(item.writes(snapshot))]
    rows += [
        TypeRepair(
            f"{PREFIX}{item.id}", None, None, item.classification, item.action, item.operations, item.error
        )
        for item in others
    ]
    settled = tuple(item.record for item in interrupted if item.record is not None)
    version = repository.snapshot().commit.sequence
    return RepairReport(len(pending.ids), settled, version, tuple(rows))


def _interrupted_writes(
    repository: Repository, ids: Iterable[str], confirm: bool, force: bool
) -> Iterator[_InterruptedWrite]:
    for id_ in ids:
        intent, unreadable = None, None
        try:
            intent = repository.intents.read(id_)
        except RecoveryRequired as error:
            unreadable = error.message
        if unreadable is None and (intent is None or not repository.intents.is_abandoned(intent)):
            continue
        if not confirm:
            yield _InterruptedWrite(id_, intent, "preview", unreadable)
            continue
        action, reason, record = _recover(repository, id_, force)
        yield _InterruptedWrite(id_, intent, action, reason or unreadable, record)


def _recover(
    repository: Repository, id_: str, force: bool
) -> tuple[Action, str | None, RecoveryRecord | None]:
    try:
        record = repository.recover_operation(id_, force=force)
    except RecoveryRequired:
        return "refused", None, None
    if record is None:
        pending = id_ in repository.intents.pending().ids
        return ("refused", MAY_BE_ALIVE, None) if pending else ("healed", None, None)
    if record.outcome == "rolled_forward":
        return "healed", None, record
    return ("forced" if record.operation == UNKNOWN_OPERATION else "discarded"), record.reason, record


def _row(snapshot: Snapshot, key: str, interrupted: Sequence[_InterruptedWrite]) -> TypeRepair:
    version, table = snapshot.pin(key).number, str(snapshot.catalog.tables[key].id)
    matching = [item for item in interrupted if table in item.writes(snapshot)]
    if not matching:
        return TypeRepair(key, version, version, "no_drift", "no_op")
    last = matching[-1]
    operations = tuple(name for item in matching for name in item.operations)
    return TypeRepair(key, version, version + 1, last.classification, last.action, operations, last.error)

"""Repair: report interrupted bulk writes and damage by type, recover the writes, and reset damaged branches.

Opening a graph for writing and every write recover the same operations, so there is usually nothing to report. An
intent that cannot be read remains, and blocks writers until it is discarded by force. A type whose files are
missing or have another size is reported as damaged; only a reset of the branch changes that. Damaged indexes are
built again from the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from omnigraph.errors import RecoveryRequired, StorageError
from omnigraph.graph.branch_names import MAIN
from omnigraph.graph.recovery.intents import PREFIX, Intent
from omnigraph.graph.recovery.interrupted_writes import UNKNOWN_OPERATION
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.write_plan import TableWrite, WritePlan
from omnigraph.maintain.index_repair import IndexRepair, repair_indexes
from omnigraph.maintain.manifest_repair import ManifestRepair, repair_manifest
from omnigraph.maintain.reset_branch import BranchReset, ResetType, reset_branch
from omnigraph.maintain.verification.verify import verify
from omnigraph.maintain.verification.verify_options import VerifyOptions
from omnigraph.store.manifest.records import RecoveryRecord

Classification: TypeAlias = Literal[
    "no_drift", "verified_maintenance", "verified_write", "incomplete", "unverifiable", "damaged"
]
Action: TypeAlias = Literal[
    "no_op", "preview", "healed", "discarded", "forced", "refused", "rebuilt", "reset"
]

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
    rolled forward or discarded. `graph_version` is the version of `main` afterwards, 0 if its head cannot be read.
    `reset` is the reset of a branch, if one was requested.
    """

    pending: int
    settled: tuple[RecoveryRecord, ...]
    graph_version: int
    datasets: tuple[TypeRepair, ...]
    reset: BranchReset | None = None


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


def repair(
    repository: Repository,
    *,
    confirm: bool = False,
    force: bool = False,
    actor: str | None = None,
    may_change: Callable[[str], bool] = lambda _: True,
) -> RepairReport:
    """Report interrupted bulk writes by type. With `confirm` recover them.

    A complete write is rolled forward and an incomplete one discarded, each with a recovery record. `force` also
    discards writes whose intent cannot be read. A repository that was opened with recovery has nothing left to
    report. Damage of `main` and of `__manifest` is reported too, by the existence and the size of files. With
    `confirm` the newest version of `__manifest` and its registry are rebuilt if they cannot be read, and damaged
    indexes are built again, at the head of every branch that `may_change` selects, as commits of `actor`.
    """
    rebuilt = repair_manifest(repository.tables.root, repository.objects, confirm=confirm)
    parts = [manifest_row(item, confirm) for item in rebuilt]
    pending = repository.intents.pending()
    try:
        snapshot = repository.snapshot()
    except StorageError as error:
        if error.is_refusal or not parts:
            raise
        return RepairReport(len(pending.ids), (), 0, tuple(parts))
    damage = _damage_by_type(repository)
    if confirm:
        repository.intents.remove_strays(pending)
    interrupted = list(_interrupted_writes(repository, pending.ids, confirm, force))
    indexes = _repair_indexes(repository, filter(may_change, repository.branches()), confirm, actor)
    own = {item.type_key: item for item in indexes if item.branch == snapshot.branch}
    rows = [
        _row(snapshot, key, interrupted, damage.get(key), own.get(key), confirm)
        for key in snapshot.catalog.tables
    ]
    rows += [_index_row(item, confirm) for item in indexes if item.branch != snapshot.branch]
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
    return RepairReport(len(pending.ids), settled, version, (*parts, *rows))


def repair_branch(
    repository: Repository,
    branch: str,
    to: str | None = None,
    *,
    confirm: bool = False,
    actor: str | None = None,
) -> RepairReport:
    """Reset a branch to a commit of its history, by default to its newest intact commit. See `reset_branch`."""
    result = reset_branch(repository, branch, to, confirm=confirm, actor=actor)
    rows = tuple(_reset_row(item, confirm) for item in result.types)
    try:
        version = repository.snapshot().commit.sequence
    except StorageError:
        version = 0
    return RepairReport(len(repository.intents.pending().ids), (), version, rows, result)


def manifest_row(item: ManifestRepair, confirm: bool) -> TypeRepair:
    """Return the row of a damaged part of `__manifest`."""
    action: Action = (
        "rebuilt" if item.rebuilt else "refused" if confirm or not item.can_rebuild else "preview"
    )
    return TypeRepair(item.part, None, None, "damaged", action, (), item.problem)


def _reset_row(item: ResetType, confirm: bool) -> TypeRepair:
    moves = item.number_before != item.number_after
    action: Action = ("reset" if confirm else "preview") if moves else "no_op"
    classification: Classification = "damaged" if item.damaged else "no_drift"
    return TypeRepair(item.type_key, item.number_before, item.number_after, classification, action)


def _damage_by_type(repository: Repository) -> dict[str, str]:
    """Return the first damage of each type of `main`, by the existence and the size of files."""
    options = VerifyOptions(quick=True, branch=MAIN, engine="local")
    report = verify(repository.tables.root, repository.objects, options)
    damage: dict[str, str] = {}
    for item in report.damage:
        is_index = item.file is not None and "/_indices/" in item.file
        if item.type_key is not None and item.blocks_reads and not is_index:
            damage.setdefault(item.type_key, f"{item.file}: {item.problem}; run `omnigraph verify`")
    return damage


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


def _repair_indexes(
    repository: Repository, branches: Iterable[str], confirm: bool, actor: str | None
) -> list[IndexRepair]:
    found: list[IndexRepair] = []
    for branch in branches:
        try:
            found += repair_indexes(repository, branch, confirm=confirm, actor=actor)
        except StorageError as error:
            # The head of the branch cannot be read, which has a row of its own.
            if error.is_refusal:
                raise
    return found


def _index_row(item: IndexRepair, confirm: bool) -> TypeRepair:
    names = ", ".join(item.properties)
    place = "" if item.branch == MAIN else f"branch '{item.branch}': "
    action: Action = "rebuilt" if item.rebuilt is not None else "refused" if confirm else "preview"
    head = item.version + 1 if item.rebuilt is None else item.rebuilt
    error = f"{place}index on {names}: {item.problem}"
    return TypeRepair(item.type_key, item.version, head, "damaged", action, (), error)


def _row(
    snapshot: Snapshot,
    key: str,
    interrupted: Sequence[_InterruptedWrite],
    damage: str | None,
    index: IndexRepair | None,
    confirm: bool,
) -> TypeRepair:
    version, table = snapshot.pin(key).number, str(snapshot.catalog.tables[key].id)
    matching = [item for item in interrupted if table in item.writes(snapshot)]
    operations = tuple(name for item in matching for name in item.operations)
    if damage is not None:
        return TypeRepair(key, version, version, "damaged", "refused", operations, damage)
    if index is not None:
        return replace(_index_row(index, confirm), operations=operations)
    if not matching:
        return TypeRepair(key, version, version, "no_drift", "no_op")
    last = matching[-1]
    return TypeRepair(key, version, version + 1, last.classification, last.action, operations, last.error)

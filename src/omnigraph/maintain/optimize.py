"""Optimize: small and worn fragments rewritten, indexes brought up to date, for all types in at most one commit.

Rows stay the same, so that others may go on meanwhile: what they commit is taken in, and they take in what is
committed here. Interrupted anywhere, it leaves files that nothing names; complete work is published by whoever
opens the graph next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.engine.engine_choice import Engine, RunTasks
from omnigraph.errors import Conflict, OmnigraphError
from omnigraph.graph.branch_names import MAIN
from omnigraph.graph.progress import Progress
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.lang.schema import Index, Key, Unique
from omnigraph.lang.types import Scalar
from omnigraph.maintain.table_upkeep import Indexing, Rewriting, TableUpkeep
from omnigraph.maintain.task_runner import TaskRunner
from omnigraph.store.manifest.records import CommitRecord

KIND = "BTREE"
FAILED, BUSY = "Failed", "Busy"
# A table that others have changed so often under this work is left to a quieter hour, for the sake of the rest.
PATIENCE = 8

EXACT_VECTORS = "vectors are compared exactly, without an index"
# What a row adds to an index: a guess for whether the work is one for Spark.
_BYTES_PER_ENTRY = 32


@dataclass(frozen=True, slots=True)
class TypeOptimization:
    """What optimize did for one type.

    `indexes` are the properties whose index was built or extended, `pending_indexes` those that are declared and
    not complete, each with the reason. `skipped` is ``Failed``, with the `error`, or ``Busy``: others kept
    changing the type.
    """

    type_key: str
    fragments_removed: int = 0
    fragments_added: int = 0
    committed: bool = False
    skipped: str | None = None
    error: str | None = None
    version: int = 0
    indexes: tuple[str, ...] = ()
    pending_indexes: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The JSON form. Versions use all 64 bits, so they are strings."""
        return {
            "type_key": self.type_key,
            "fragments_removed": self.fragments_removed,
            "fragments_added": self.fragments_added,
            "committed": self.committed,
            "skipped": self.skipped,
            "published_dataset_version": str(self.version),
            # No table ever has a version ahead of the one that is published.
            "lance_head_version": str(self.version),
            "indexes": list(self.indexes),
            "pending_indexes": [{"property": name, "reason": why} for name, why in self.pending_indexes],
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class OptimizeReport:
    """What optimize did; `commit` is None when there was nothing to do."""

    commit: CommitRecord | None
    datasets: tuple[TypeOptimization, ...]


def optimize(
    repository: Repository,
    *,
    branch: str = MAIN,
    engine: Engine = "auto",
    run_on_spark: RunTasks | None = None,
    progress: Progress | None = None,
    actor: str | None = None,
    message: str | None = None,
) -> OptimizeReport:
    """Rewrite what is small or worn, and complete the indexes, of every type of a branch.

    A type that fails, or that others do not stop changing, is reported and does not stop the others. What of a
    type was done counts even if an index could not be built.
    """
    work = _Optimize(TaskRunner(repository, engine, run_on_spark, progress))
    request = WriteRequest("optimize", actor=actor, message=message, bulk=True)
    try:
        done, works = repository.write(branch, request, work.prepare)
    except Conflict as error:
        # Nothing is visible, and nothing is wrong: others were quicker all the time.
        return OptimizeReport(None, work.given_up(error))
    assert works is not None, "optimize has no idempotency key, so it is always prepared"
    commit = None if done is None else done.commit
    return OptimizeReport(commit, tuple(_report(item, commit) for item in works))


@dataclass
class _Work:
    """One type in one attempt."""

    table: Table
    upkeep: TableUpkeep
    version: int
    skipped: str | None = None
    error: str | None = None
    indexes: list[str] = field(default_factory=list)
    pending: dict[str, str] = field(default_factory=dict)

    def fail(self, error: OmnigraphError) -> None:
        self.skipped, self.error = FAILED, error.message


@dataclass
class _Seen:
    """What is known of a table from earlier attempts."""

    upkeep: TableUpkeep = field(default_factory=TableUpkeep)
    version: int | None = None
    moves: int = 0


class _Optimize:
    def __init__(self, runner: TaskRunner) -> None:
        self._runner = runner
        self._seen: dict[str, _Seen] = {}
        self._works: list[_Work] = []

    def prepare(self, transaction: Transaction) -> Prepared[Sequence[_Work]]:
        """Stage the rewrites and indexes of every type."""
        self._works = [self._begin(transaction, table) for table in transaction.base.catalog.tables.values()]
        self._compact(transaction)
        self._index(transaction)
        return Prepared(None if transaction.is_empty else "maintenance", self._works)

    def _begin(self, transaction: Transaction, table: Table) -> _Work:
        pin = transaction.pin(table.key)
        seen = self._seen.setdefault(pin.path, _Seen())
        if seen.version not in (None, pin.version):
            seen.moves += 1
        seen.version = pin.version
        return _Work(table, seen.upkeep, pin.version, BUSY if seen.moves >= PATIENCE else None)

    # --- rows --------------------------------------------------------------------------------------------

    def _compact(self, transaction: Transaction) -> None:
        tables = transaction.base.tables
        wanted: list[tuple[_Work, Rewriting]] = []
        for work in self._open():
            try:
                found = work.upkeep.plan_rewrites(tables, transaction.pin(work.table.key))
                wanted += [(work, item) for item in found]
            except OmnigraphError as error:
                work.fail(error)
        pieces = [item for _, item in wanted]
        made = self._runner.run("compact", pieces, sum(item.nbytes for item in pieces))
        for (work, item), text in zip(wanted, made, strict=True):
            if isinstance(text, OmnigraphError):
                work.fail(text)
            else:
                work.upkeep.rewritten.append((item, text))
        for work in self._open():
            try:
                pin = transaction.pin(work.table.key)
                staged = work.upkeep.stage_compaction(tables, pin)
                if staged.version != pin.version:
                    transaction.write(work.table.key, staged)
            except OmnigraphError as error:
                work.fail(error)

    # --- indexes -----------------------------------------------------------------------------------------

    def _index(self, transaction: Transaction) -> None:
        tables = transaction.base.tables
        wanted: list[tuple[_Work, Indexing]] = []
        for work in self._open():
            names = _names_to_index(transaction.base.catalog, work)
            try:
                pin = transaction.pin(work.table.key)
                columns = [work.table.physical(name) for name in names]
                found = work.upkeep.plan_segments(tables, pin, columns, KIND)
                wanted += [(work, item) for item in found]
            except OmnigraphError as error:
                work.pending.update(dict.fromkeys(names, error.message))
        pieces = [item for _, item in wanted]
        made = self._runner.run("index", pieces, sum(_BYTES_PER_ENTRY * item.rows for item in pieces))
        for (work, item), segment in zip(wanted, made, strict=True):
            if isinstance(segment, OmnigraphError):
                work.pending[_logical(work.table, item.column)] = segment.message
            else:
                work.upkeep.built.append((item, segment))
        for work in self._open():
            self._stage_segments(transaction, work)

    def _stage_segments(self, transaction: Transaction, work: _Work) -> None:
        pin = transaction.pin(work.table.key)
        names = sorted({_logical(work.table, item.column) for item, _ in work.upkeep.built})
        try:
            staged = work.upkeep.stage_segments(transaction.base.tables, pin)
            if staged.version != pin.version:
                transaction.write(work.table.key, staged)
                work.indexes = names
        except OmnigraphError as error:
            work.pending.update(dict.fromkeys(names, error.message))

    # --- telling -----------------------------------------------------------------------------------------

    def _open(self) -> Iterator[_Work]:
        return (work for work in self._works if work.skipped is None)

    def given_up(self, error: Conflict) -> tuple[TypeOptimization, ...]:
        """What is to be said when nothing was committed though there was something to do."""
        return tuple(
            TypeOptimization(
                work.table.key,
                skipped=work.skipped or BUSY,
                error=work.error or error.message,
                version=work.version,
            )
            for work in self._works
        )


def _report(work: _Work, commit: CommitRecord | None) -> TypeOptimization:
    table, upkeep = work.table, work.upkeep
    pending = tuple(sorted(work.pending.items()))
    if work.skipped is not None or commit is None:
        return TypeOptimization(
            table.key,
            skipped=work.skipped,
            error=work.error,
            version=work.version,
            pending_indexes=pending,
        )
    return TypeOptimization(
        table.key,
        fragments_removed=sum(len(item.group) for item, _ in upkeep.rewritten),
        fragments_added=len(upkeep.rewritten),
        committed=str(table.id) in commit.touched,
        version=commit.tables[str(table.id)].version,
        indexes=tuple(work.indexes),
        pending_indexes=pending,
    )


def _names_to_index(catalog: Catalog, work: _Work) -> list[str]:
    """The columns of a type that are to have an index: what finds rows and edges, and what the schema names."""
    table = work.table
    schema = catalog.schema
    entity = schema.node(table.name) if table.kind == "node" else schema.edge(table.name)
    declared = {
        name
        for item in (() if entity is None else entity.effective_constraints)
        if isinstance(item, Key | Unique | Index)
        for name in item.columns
    }
    found = []
    for column in table.columns:
        if column.property_id is not None and column.name not in declared:
            continue
        if column.type.scalar is Scalar.VECTOR:
            work.pending[column.name] = EXACT_VECTORS
        else:
            found.append(column.name)
    return found


def _logical(table: Table, physical: str) -> str:
    return next(column.name for column in table.columns if column.physical == physical)

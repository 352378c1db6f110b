"""Optimize: compact small and sparse fragments and complete the indexes, for all types in one commit.

The rows do not change, so writers may commit concurrently. After an interruption only unreferenced files remain, or
recovery publishes the work if it was complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar

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
from omnigraph.maintain.table_maintenance import RewriteTask, SegmentTask, TableMaintenance, WantedIndex
from omnigraph.maintain.task_runner import TaskRunner
from omnigraph.maintain.text_indexes import obsolete_text_indexes, wanted_text_indexes
from omnigraph.maintain.vector_indexes import obsolete_vector_indexes, wanted_vector_indexes
from omnigraph.store.manifest.records import CommitRecord
from omnigraph.store.tables.vector_indexes import MIN_TABLE_ROWS

KIND: Final = "BTREE"
FAILED, BUSY = "Failed", "Busy"
# A table that changed this often during the call is skipped, so that the other tables can be committed.
MAX_TABLE_CHANGES = 8

EXACT_VECTORS: Final = (
    f"tables with fewer than {MIN_TABLE_ROWS:,} rows are searched exactly, without an index"
)


@dataclass(frozen=True, slots=True)
class TypeOptimization:
    """The result of optimize for one type.

    `indexes` has the properties whose index was built or extended. `pending_indexes` has those whose declared
    index is not complete, each with the reason. `skipped` is ``Failed``, with the `error`, or ``Busy`` if
    concurrent writers changed the type too often. `version` is the number of the published version.
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
        """Return the JSON form."""
        return {
            "type_key": self.type_key,
            "fragments_removed": self.fragments_removed,
            "fragments_added": self.fragments_added,
            "committed": self.committed,
            "skipped": self.skipped,
            "published_dataset_version": self.version,
            # The HEAD of a table never moves, so it is never ahead of the published version.
            "lance_head_version": self.version,
            "indexes": list(self.indexes),
            "pending_indexes": [
                {"property": name, "reason": reason} for name, reason in self.pending_indexes
            ],
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class OptimizeReport:
    """The result of optimize; `commit` is None if there was nothing to do."""

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
    max_rows: int | None = None,
) -> OptimizeReport:
    """Compact small and sparse fragments and complete the indexes of every type of a branch.

    A type that fails, or that concurrent writers change too often, is reported and does not stop the others. The
    compaction of a type is committed even if one of its indexes could not be built. With `max_rows` at most so many
    rows are rewritten, and at most so many are indexed; the rest is left for the next call.
    """
    runner = TaskRunner(repository.tables.root, engine, run_on_spark, progress)
    optimization = _Optimization(runner, max_rows)
    request = WriteRequest("optimize", actor=actor, message=message, bulk=True, background=True)
    try:
        receipt, states = repository.write(branch, request, optimization.prepare)
    except Conflict as error:
        # Concurrent writers won every attempt. Nothing is visible.
        return OptimizeReport(None, optimization.busy_reports(error))
    assert states is not None, "optimize has no idempotency key, so it is always prepared"
    commit = None if receipt is None else receipt.commit
    return OptimizeReport(commit, tuple(_report(item, commit) for item in states))


@dataclass(frozen=True, slots=True)
class _TypeState:
    """One type in one attempt. `pending` has the reason for each index that is not complete."""

    table: Table
    maintenance: TableMaintenance
    version: int
    skipped: str | None = None
    error: str | None = None
    indexes: tuple[str, ...] = ()
    pending: Mapping[str, str] = field(default_factory=dict)


_States: TypeAlias = tuple[_TypeState, ...]


@dataclass
class _TableHistory:
    """The results and the observed changes of a table over all attempts."""

    maintenance: TableMaintenance = field(default_factory=TableMaintenance)
    version: int | None = None
    changes: int = 0


class _Optimization:
    """The attempts of one call. Results of an earlier attempt that still apply are used again."""

    def __init__(self, runner: TaskRunner, max_rows: int | None = None) -> None:
        self._runner = runner
        self._max_rows = max_rows
        self._history: dict[str, _TableHistory] = {}
        self._last_attempt: _States = ()

    def prepare(self, transaction: Transaction) -> Prepared[_States]:
        """Stage the compaction and the indexes of every type."""
        started = tuple(self._begin(transaction, table) for table in transaction.base.catalog.tables.values())
        compacted = self._compact(transaction, started)
        self._last_attempt = self._index(transaction, compacted)
        return Prepared(None if transaction.is_empty else "maintenance", self._last_attempt)

    def _begin(self, transaction: Transaction, table: Table) -> _TypeState:
        pin = transaction.pin(table.key)
        history = self._history.setdefault(pin.path, _TableHistory())
        if history.version not in (None, pin.version):
            history.changes += 1
        history.version = pin.version
        skipped = BUSY if history.changes >= MAX_TABLE_CHANGES else None
        return _TypeState(table, history.maintenance, pin.number, skipped)

    def _compact(self, transaction: Transaction, states: _States) -> _States:
        """Rewrite fragments and stage them. A type that fails is skipped."""
        tables = transaction.base.tables
        failed: dict[str, str] = {}
        planned: list[tuple[_TypeState, RewriteTask]] = []
        for state in _active(states):
            with _collecting(failed, state.table.key):
                rewrites = state.maintenance.plan_rewrites(tables, transaction.pin(state.table.key))
                planned += [(state, task) for task in rewrites]
        planned = _within(planned, self._max_rows)
        tasks = [task for _, task in planned]
        results = self._runner.run("compact", tasks, sum(task.nbytes for task in tasks))
        for (state, task), new in zip(planned, results, strict=True):
            if isinstance(new, OmnigraphError):
                failed[state.table.key] = new.message
            else:
                state.maintenance.rewritten.append((task, new))
        for state in _active(states):
            if state.table.key in failed:
                continue
            with _collecting(failed, state.table.key):
                pin = transaction.pin(state.table.key)
                staged = state.maintenance.stage_compaction(tables, pin)
                if staged.version != pin.version:
                    transaction.write(state.table.key, staged)
        return tuple(
            replace(state, skipped=FAILED, error=failed[state.table.key])
            if state.table.key in failed
            else state
            for state in states
        )

    def _index(self, transaction: Transaction, states: _States) -> _States:
        """Build index segments and stage them. An index that fails is pending, and the type is not skipped."""
        pending: dict[str, dict[str, str]] = {state.table.key: {} for state in states}
        planned: list[tuple[_TypeState, SegmentTask]] = []
        for state in _active(states):
            names, vectors = _names_to_index(transaction.base.catalog, state.table)
            reasons = pending[state.table.key]
            with _collecting(reasons, *names, *vectors):
                tables, pin = transaction.base.tables, transaction.pin(state.table.key)
                wanted = [WantedIndex(state.table.physical(name), KIND) for name in names]
                declared = wanted_vector_indexes(transaction.base.catalog, state.table, vectors)
                texts = wanted_text_indexes(tables, pin, transaction.base.catalog, state.table)
                wanted += texts.values()
                obsolete = [
                    *obsolete_vector_indexes(tables, pin, declared.values()),
                    *obsolete_text_indexes(tables, pin, texts.values()),
                ]
                for name, index in declared.items():
                    if pin.rows < MIN_TABLE_ROWS:
                        reasons[name] = EXACT_VECTORS
                    else:
                        wanted.append(index)
                segments = state.maintenance.plan_segments(tables, pin, wanted, obsolete)
                planned += [(state, task) for task in segments]
        planned = self._without_large_indexes(planned)
        tasks = [task for _, task in planned]
        results = self._runner.run("index", tasks, sum(task.nbytes for task in tasks))
        for (state, task), segment in zip(planned, results, strict=True):
            if isinstance(segment, OmnigraphError):
                pending[state.table.key][_logical(state.table, task.index.column)] = segment.message
            else:
                state.maintenance.built.append((task, segment))
        staged = {
            state.table.key: _stage_segments(transaction, state, pending[state.table.key])
            for state in _active(states)
        }
        return tuple(
            replace(state, indexes=staged.get(state.table.key, ()), pending=pending[state.table.key])
            for state in states
        )

    def _without_large_indexes(
        self, planned: list[tuple[_TypeState, SegmentTask]]
    ) -> list[tuple[_TypeState, SegmentTask]]:
        """Return the tasks of the types whose indexes can be completed within the limit of rows."""
        chosen = {id(task) for _, task in _within(planned, self._max_rows)}
        left = {state.table.key: state for state, task in planned if id(task) not in chosen}
        for state in left.values():
            # Segments are removed only if those that replace them are built.
            state.maintenance.built, state.maintenance.removed = [], []
        return [(state, task) for state, task in planned if state.table.key not in left]

    def busy_reports(self, error: Conflict) -> tuple[TypeOptimization, ...]:
        """Return the reports of a run that could not commit because of concurrent writers."""
        return tuple(
            TypeOptimization(
                state.table.key,
                skipped=state.skipped or BUSY,
                error=state.error or error.message,
                version=state.version,
            )
            for state in self._last_attempt
        )


_Task = TypeVar("_Task", RewriteTask, SegmentTask)


def _within(planned: list[tuple[_TypeState, _Task]], max_rows: int | None) -> list[tuple[_TypeState, _Task]]:
    """Return the tasks with the fewest rows that have at most `max_rows` rows together."""
    if max_rows is None:
        return planned
    chosen, rows = [], 0
    for state, task in sorted(planned, key=lambda pair: pair[1].rows):
        rows += task.rows
        if rows > max_rows:
            break
        chosen.append((state, task))
    return chosen


def _active(states: _States) -> Iterator[_TypeState]:
    return (state for state in states if state.skipped is None)


@contextmanager
def _collecting(reasons: dict[str, str], *keys: str) -> Iterator[None]:
    """Record the message of an error under each key instead of raising it."""
    try:
        yield
    except OmnigraphError as error:
        reasons.update(dict.fromkeys(keys, error.message))


def _stage_segments(transaction: Transaction, state: _TypeState, pending: dict[str, str]) -> tuple[str, ...]:
    """Stage the built segments of a type; return the properties whose index changed."""
    pin = transaction.pin(state.table.key)
    names = sorted({_logical(state.table, task.index.column) for task, _ in state.maintenance.built})
    with _collecting(pending, *names):
        staged = state.maintenance.stage_segments(transaction.base.tables, pin)
        if staged.version != pin.version:
            transaction.write(state.table.key, staged)
            return tuple(names)
    return ()


def _report(state: _TypeState, commit: CommitRecord | None) -> TypeOptimization:
    table, maintenance = state.table, state.maintenance
    pending = tuple(sorted(state.pending.items()))
    if state.skipped is not None or commit is None:
        return TypeOptimization(
            table.key,
            skipped=state.skipped,
            error=state.error,
            version=state.version,
            pending_indexes=pending,
        )
    return TypeOptimization(
        table.key,
        fragments_removed=sum(len(task.group) for task, _ in maintenance.rewritten),
        fragments_added=len(maintenance.rewritten),
        committed=str(table.id) in commit.touched,
        version=commit.tables[str(table.id)].number,
        indexes=state.indexes,
        pending_indexes=pending,
    )


def _names_to_index(catalog: Catalog, table: Table) -> tuple[list[str], list[str]]:
    """Return the columns of a type to index, and the vector columns with a declared index, which have none.

    Indexed are the columns that identify rows and edges, and those in a key, unique or index constraint.
    """
    schema = catalog.schema
    entity = schema.node(table.name) if table.kind == "node" else schema.edge(table.name)
    declared = {
        name
        for item in (() if entity is None else entity.effective_constraints)
        if isinstance(item, Key | Unique | Index)
        for name in item.columns
    }
    names: list[str] = []
    vectors: list[str] = []
    for column in table.columns:
        if column.property_id is None or column.name in declared:
            (vectors if column.type.scalar is Scalar.VECTOR else names).append(column.name)
    return names, vectors


def _logical(table: Table, physical: str) -> str:
    return next(column.name for column in table.columns if column.physical == physical)

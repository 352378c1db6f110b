"""Loads: records of an input become rows, validated whole, as one commit.

A load that fits in memory looks up what it needs in the committed tables; a larger one runs the same rules as
queries over keys (`bulk`). Which of the two it is changes the cost, never the graph nor what is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.columns import arrow_schema
from omnigraph.engine.committed_rows import CommittedRows
from omnigraph.engine.table_rows import last_of_each_id
from omnigraph.errors import Conflict
from omnigraph.graph.progress import Progress
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import OperationClass, Prepared
from omnigraph.load.spool import Spool, stored
from omnigraph.rules.delta import TableDelta
from omnigraph.rules.load_mode import LoadMode
from omnigraph.rules.set_rules import (
    complete_tuples,
    duplicate_tuples,
    entity_of,
    existing_ids,
    record_identity,
)
from omnigraph.rules.validate import set_violations
from omnigraph.rules.violations import Violation, Violations, origin_details, raise_violations
from omnigraph.sources.row_batch import PLACE, SOURCE
from omnigraph.store.tables.row_addresses import ROW_ADDRESS

# Where a record is from: its place, and the name of the input.
Place: TypeAlias = tuple[int, str | None]
# Violations of these rules are about the record whose id they bear.
_OF_A_RECORD = ("unique", "key", "endpoint")


@dataclass(frozen=True)
class LoadResult:
    """The effect of a load: records per type, rows per table, records left out, and the seconds of each stage.

    `nodes` and `edges` count the records that became rows. `superseded` counts the records of a merge that a later
    record with the same id replaced, `rejected` the records that broke a row rule and were left out. `prepared_at`
    is the monotonic time at which staging ended.
    """

    nodes: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, int] = field(default_factory=dict)
    affected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rejected: int = 0
    superseded: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    prepared_at: float | None = field(default=None, compare=False)


@dataclass(frozen=True)
class LoadInput:
    """The counts of an input that has been read: records per table, rejected records, and the seconds it took."""

    records: Mapping[str, int]
    rejected: int
    seconds: float


class Work(Protocol):
    """One way of checking and storing what a spool holds."""

    superseded: dict[str, int]
    seconds: dict[str, float]

    def violations(self) -> Iterator[Violations]:
        """What each stage of the rules between rows finds, in order and one at a time."""
        ...

    def places(self, key: str, ids: Sequence[str]) -> Mapping[str, Place]:
        """Where the last record of each of these ids is from; ids that no record has are left out."""
        ...

    def stage(self, *, dry: bool = False) -> dict[str, dict[str, int]]:
        """Store everything as detached versions; per table what was inserted, updated and deleted.

        With `dry` nothing is stored, and the same is told.
        """
        ...


def prepare_load(
    transaction: Transaction,
    spool: Spool,
    mode: LoadMode,
    *,
    progress: Progress | None = None,
    dry: bool = False,
) -> Prepared[LoadResult]:
    """Check the rows of a spool against a branch and stage them.

    Append inserts, merge replaces rows by id, overwrite replaces all rows of the types that the input names. A load
    without rows makes a commit too. A `dry` load checks and counts, and stages nothing. A constraint that fails
    raises before anything is staged. The caller closes the spool after the write.
    """
    if transaction.base.catalog.fingerprint != spool.catalog.fingerprint:
        raise schema_changed(transaction)
    given = LoadInput(spool.counts, spool.rejected, spool.seconds)
    result = check_and_stage(_open(transaction, spool, mode), given, progress, dry=dry)
    return Prepared(load_class(mode, dry=dry), result)


def load_class(mode: LoadMode, *, dry: bool) -> OperationClass | None:
    """Return the operation class of a load; None for a dry run, which commits nothing."""
    if dry:
        return None
    # An overwrite replaces rows that it has read, so a change of those rows is a conflict.
    return "strict" if mode == "overwrite" else "insert"


def schema_changed(transaction: Transaction) -> Conflict:
    """The error of a load that was read under a schema that the branch no longer has."""
    return Conflict(
        "the schema changed while the load was being read",
        details={"branch": transaction.head.branch},
        hint="load again",
    )


@contextmanager
def _open(transaction: Transaction, spool: Spool, mode: LoadMode) -> Iterator[Work]:
    # An overwrite looks at everything that it replaces.
    replaced = (transaction.pin(key).rows for key in spool.counts) if mode == "overwrite" else ()
    if spool.is_bulk or sum(replaced) > spool.limits.rows:
        # A small load does without the database, which takes longer to import than to load.
        from omnigraph.load.spilling_load import open_bulk

        with open_bulk(transaction, spool, mode) as work:
            yield work
    else:
        yield MemoryLoad(transaction, spool, mode)


def check_and_stage(
    opened: AbstractContextManager[Work],
    given: LoadInput,
    progress: Progress | None,
    *,
    dry: bool = False,
) -> LoadResult:
    """Check the rules between rows and stage the rows. A broken rule raises `ConstraintViolation`."""
    began = time.monotonic()
    total = sum(given.records.values())
    if progress is not None:
        progress("check", total)
    with opened as work:
        for found in work.violations():
            raise_violations(_placed(found, work))
        checked = time.monotonic()
        if progress is not None:
            progress("stage", total)
        affected = work.stage(dry=dry)
    staging = time.monotonic() - checked - sum(work.seconds.values())
    counts = {key: count - work.superseded[key] for key, count in given.records.items()}
    return LoadResult(
        nodes=_of_kind("node:", counts),
        edges=_of_kind("edge:", counts),
        affected=affected,
        rejected=given.rejected,
        superseded=sum(work.superseded.values()),
        seconds={"read": given.seconds, "check": checked - began, "stage": staging, **work.seconds},
        prepared_at=time.monotonic(),
    )


def _of_kind(prefix: str, counts: Mapping[str, int]) -> dict[str, int]:
    return {key.removeprefix(prefix): count for key, count in counts.items() if key.startswith(prefix)}


def _placed(found: Violations, work: Work) -> Violations:
    """The violations with the places of the records that they are about."""
    ids: dict[str, dict[str, None]] = {}
    for item in found:
        if item.rule in _OF_A_RECORD and item.id is not None:
            ids.setdefault(item.table_key, {})[item.id] = None
    places = {key: work.places(key, list(wanted)) for key, wanted in ids.items()}

    def placed(item: Violation) -> Violation:
        place = places.get(item.table_key, {}).get(item.id or "") if item.rule in _OF_A_RECORD else None
        return item if place is None else replace(item, details={**item.details, **origin_details(*place)})

    return Violations(tuple(map(placed, found)), found.total)


class MemoryLoad:
    """A load whose rows are in memory. It asks the committed tables for what its rows touch, and no more."""

    def __init__(self, transaction: Transaction, spool: Spool, mode: LoadMode) -> None:
        self._transaction = transaction
        self._catalog = transaction.base.catalog
        self._spool = spool
        self._mode = mode
        self._committed = CommittedRows(transaction.base, transaction.read)
        self._rows: dict[str, pa.Table] = {}
        self._replaced: dict[str, pa.Table] = {}
        self.superseded: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        for key, count in spool.counts.items():
            rows = spool.table(key)
            self._rows[key] = last_of_each_id(rows) if mode == "merge" else rows
            self.superseded[key] = count - self._rows[key].num_rows
            self._replaced[key] = self._before(key, self._rows[key])

    def _before(self, key: str, rows: pa.Table) -> pa.Table:
        """The committed rows that have an id of the load's rows; for an overwrite all of them."""
        columns = ["id", "src"] if self._catalog.tables[key].kind == "edge" else ["id"]
        if self._mode == "overwrite":
            parts = list(self._committed.parts(key, columns))
            return (
                pa.concat_tables(parts)
                if parts
                else self._committed.find(key, "id", pa.array([], pa.string()), columns)
            )
        return self._committed.find(key, "id", rows["id"].combine_chunks(), [*columns, ROW_ADDRESS])

    def violations(self) -> Iterator[Violations]:
        """What each stage finds."""
        deltas = {key: self._delta(key) for key in self._rows}
        stages = set_violations(self._catalog, deltas, self._committed)
        yield Violations.merge([*self._identities(), next(stages)])
        yield from stages

    def _identities(self) -> Iterator[Violations]:
        """Records that are to be rows of their own and are not: of one key or id, or there already."""
        for key, rows in self._rows.items():
            table = self._catalog.tables[key]
            entity = entity_of(self._catalog, table)
            columns = record_identity(entity)
            if self._mode != "merge" and columns not in entity.uniques:
                yield duplicate_tuples(table, columns, complete_tuples(table, columns, rows))
            if self._mode == "append":
                yield existing_ids(table, rows["id"], self._replaced[key]["id"])

    def _delta(self, key: str) -> TableDelta:
        rows, before = self._rows[key], self._replaced[key]
        table = self._catalog.tables[key]
        none = pa.array([], pa.string())
        if self._mode == "append":
            return TableDelta(table, rows, none, none, none if table.kind == "edge" else None)
        shadowed = before["id"].combine_chunks()
        deleted = shadowed.filter(pc.invert(pc.is_in(shadowed, value_set=rows["id"].combine_chunks())))
        vacated = before["src"].combine_chunks() if table.kind == "edge" else None
        return TableDelta(table, rows, shadowed, deleted, vacated)

    def places(self, key: str, ids: Sequence[str]) -> Mapping[str, Place]:
        """Where records are from."""
        rows = self._rows[key].select(["id", PLACE, SOURCE])
        found = rows.filter(pc.is_in(rows["id"], value_set=pa.array(ids, pa.string())))
        columns = (column.to_pylist() for column in found.columns)
        return {
            id_: (place, self._spool.sources[source]) for id_, place, source in zip(*columns, strict=True)
        }

    def stage(self, *, dry: bool = False) -> dict[str, dict[str, int]]:
        """Store everything."""
        affected = {}
        for key, rows in self._rows.items():
            before = self._replaced[key]
            if not dry:
                self._store(key, rows, before)
            updated = int(pc.sum(pc.is_in(before["id"], value_set=rows["id"])).as_py() or 0)
            gone = before.num_rows - updated
            affected[key] = {"inserted": rows.num_rows - updated, "updated": updated, "deleted": gone}
        return affected

    def _store(self, key: str, rows: pa.Table, before: pa.Table) -> None:
        table, pin = self._catalog.tables[key], self._transaction.pin(key)
        tables = self._transaction.base.tables
        schema = arrow_schema(table, physical=True)
        batches = [stored(table, batch) for batch in rows.to_batches()]
        if self._mode == "overwrite" and pin.rows + rows.num_rows:
            self._transaction.write(key, tables.stage_overwrite(pin, batches, schema))
        elif rows.num_rows:
            addresses = before[ROW_ADDRESS].to_numpy() if before.num_rows else np.empty(0, np.uint64)
            self._transaction.write(key, tables.stage_rows(pin, batches, schema, addresses))

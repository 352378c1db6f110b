"""Loads: records of an input become rows, validated whole, as one commit.

A load that fits in memory looks up what it needs in the committed tables; a larger one runs the same rules as
queries over keys (`bulk`). Which of the two it is changes the cost, never the graph nor what is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.columns import arrow_schema
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import Conflict
from omnigraph.graph.progress import Progress
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import OperationClass
from omnigraph.load.spool import Spool, stored
from omnigraph.mutate.overlay import ADDRESS, Overlay, last_of_each
from omnigraph.rules.delta import TableDelta, Violation
from omnigraph.rules.load_mode import LoadMode
from omnigraph.rules.set_rules import entity_of, record_identity, repeated, taken, tuples
from omnigraph.rules.validate import set_findings
from omnigraph.rules.violations import Findings, origin_details, refuse
from omnigraph.sources.row_batch import PLACE, SOURCE

# Where a record is from: its place, and the name of the input.
Place: TypeAlias = tuple[int, str | None]
# Violations of these rules are about the record whose id they bear.
_OF_A_RECORD = ("unique", "key", "endpoint")


@dataclass
class LoadOutcome:
    """What a load did: records per type, rows per table, records left out, and how long each stage took.

    `nodes` and `edges` count the records that became rows. `superseded` are those of a merge that a later record
    of the same id replaced, `rejected` those that broke a rule of their own and were handed over. `prepared` is
    when everything was ready, by the clock that only ever goes forward.
    """

    mode: LoadMode
    nodes: dict[str, int] = field(default_factory=dict)
    edges: dict[str, int] = field(default_factory=dict)
    affected: dict[str, dict[str, int]] = field(default_factory=dict)
    rejected: int = 0
    superseded: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    prepared: float | None = field(default=None, compare=False)


class Work(Protocol):
    """One way of checking and storing what a spool holds."""

    superseded: dict[str, int]
    seconds: dict[str, float]

    def findings(self) -> Iterator[Findings]:
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
    spool: Spool,
    mode: LoadMode,
    outcome: LoadOutcome,
    *,
    progress: Progress | None = None,
    dry: bool = False,
) -> Callable[[Transaction], OperationClass | None]:
    """The work of a load, to be run on a transaction, again if it must be; fills `outcome` each time.

    Append inserts, merge replaces rows by id, overwrite replaces all rows of the types that the input names. It
    commits also when there are no rows, and never when it is `dry`: then everything is checked and nothing stored.
    A constraint that fails raises, and nothing has been staged. The spool stays open until the write is done, and
    is the caller's to close.
    """

    def prepare(transaction: Transaction) -> OperationClass | None:
        if transaction.base.catalog.fingerprint != spool.catalog.fingerprint:
            raise schema_changed(transaction)
        outcome.rejected, outcome.seconds = spool.rejected, {"read": spool.seconds}
        carry_out(_open(transaction, spool, mode), spool.counts, outcome, progress, dry=dry)
        if dry:
            return None
        # What replaces everything has decided on what was there; the others can be decided again.
        return "strict" if mode == "overwrite" else "insert"

    return prepare


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


def carry_out(
    opened: AbstractContextManager[Work],
    given: Mapping[str, int],
    outcome: LoadOutcome,
    progress: Progress | None,
    *,
    dry: bool = False,
) -> None:
    """Check and stage a load whose records per table are counted in `given`; refuse it by its first broken rule."""
    began = time.monotonic()
    total = sum(given.values())
    if progress is not None:
        progress("check", total)
    with opened as work:
        for found in work.findings():
            refuse(_placed(found, work))
        checked = time.monotonic()
        if progress is not None:
            progress("stage", total)
        outcome.affected = work.stage(dry=dry)
    staging = time.monotonic() - checked - sum(work.seconds.values())
    outcome.seconds |= {"check": checked - began, "stage": staging, **work.seconds}
    counts = {key: count - work.superseded[key] for key, count in given.items()}
    outcome.nodes = _of_kind("node:", counts)
    outcome.edges = _of_kind("edge:", counts)
    outcome.superseded = sum(work.superseded.values())
    outcome.prepared = time.monotonic()


def _of_kind(prefix: str, counts: Mapping[str, int]) -> dict[str, int]:
    return {key.removeprefix(prefix): count for key, count in counts.items() if key.startswith(prefix)}


def _placed(found: Findings, work: Work) -> Findings:
    """The findings with the places of the records that they are about."""
    ids: dict[str, dict[str, None]] = {}
    for item in found:
        if item.rule in _OF_A_RECORD and item.id is not None:
            ids.setdefault(item.table_key, {})[item.id] = None
    places = {key: work.places(key, list(wanted)) for key, wanted in ids.items()}

    def placed(item: Violation) -> Violation:
        place = places.get(item.table_key, {}).get(item.id or "") if item.rule in _OF_A_RECORD else None
        return item if place is None else replace(item, details={**item.details, **origin_details(*place)})

    return Findings(tuple(map(placed, found)), found.total)


class MemoryLoad:
    """A load whose rows are in memory. It asks the committed tables for what its rows touch, and no more."""

    def __init__(self, transaction: Transaction, spool: Spool, mode: LoadMode) -> None:
        self._transaction = transaction
        self._catalog = transaction.base.catalog
        self._spool = spool
        self._mode = mode
        self._overlay = Overlay(transaction, Bindings())
        self._rows: dict[str, pa.Table] = {}
        self._committed: dict[str, pa.Table] = {}
        self.superseded: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        for key, count in spool.counts.items():
            rows = spool.table(key)
            self._rows[key] = last_of_each(rows) if mode == "merge" else rows
            self.superseded[key] = count - self._rows[key].num_rows
            self._committed[key] = self._before(key, self._rows[key])

    def _before(self, key: str, rows: pa.Table) -> pa.Table:
        """The committed rows that have an id of the load's rows; for an overwrite all of them."""
        columns = ["id", "src"] if self._catalog.tables[key].kind == "edge" else ["id"]
        if self._mode == "overwrite":
            parts = list(self._overlay.committed_parts(key, columns))
            return (
                pa.concat_tables(parts)
                if parts
                else self._overlay.find(key, "id", pa.array([], pa.string()), columns)
            )
        return self._overlay.find(key, "id", rows["id"].combine_chunks(), [*columns, ADDRESS])

    def findings(self) -> Iterator[Findings]:
        """What each stage finds."""
        deltas = {key: self._delta(key) for key in self._rows}
        stages = set_findings(self._catalog, deltas, self._overlay)
        yield Findings.merge([*self._identities(), next(stages)])
        yield from stages

    def _identities(self) -> Iterator[Findings]:
        """Records that are to be rows of their own and are not: of one key or id, or there already."""
        for key, rows in self._rows.items():
            table = self._catalog.tables[key]
            entity = entity_of(self._catalog, table)
            columns = record_identity(entity)
            if self._mode != "merge" and columns not in entity.uniques:
                yield repeated(table, columns, tuples(table, columns, rows))
            if self._mode == "append":
                yield taken(table, rows["id"], self._committed[key]["id"])

    def _delta(self, key: str) -> TableDelta:
        rows, before = self._rows[key], self._committed[key]
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
            before = self._committed[key]
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
            addresses = before[ADDRESS].to_numpy() if before.num_rows else np.empty(0, np.uint64)
            self._transaction.write(key, tables.stage_rows(pin, batches, schema, addresses))

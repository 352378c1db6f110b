"""Schema changes: the steps of a migration plan are applied to a branch as one commit.

Most steps change only the schema. A new type gets an empty table. New columns are added without rewriting rows; a
backfill writes only those columns. A hard drop of a property copies rows, and a new key of an edge type rewrites
its edges with their new ids.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.columns import INDEXED_COLUMNS, arrow_schema
from omnigraph.catalog.keys import table_id_key
from omnigraph.catalog.migration.evolve import evolve
from omnigraph.catalog.migration.planner import plan_migration
from omnigraph.catalog.migration.steps import MigrationPlan
from omnigraph.engine.edge_ids import EdgeRekeying
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.lang.schema import Schema
from omnigraph.schema.backfill_rules import check_backfill
from omnigraph.schema.backfill_values import TableBackfill, read_backfills, stored_field
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.staged_table import StagedTable


@dataclass(frozen=True)
class SchemaChange:
    """A desired schema and its options. `backfill` has values and expressions by ``Type.property``."""

    desired: Schema
    source: str
    allow_data_loss: bool = False
    backfill: Mapping[str, Any] = field(default_factory=dict)

    def plan(self, accepted: Catalog) -> MigrationPlan:
        """Return the steps from an accepted schema.

        Without steps the backfills are ignored, so that a change can be applied again.
        """
        found = plan_migration(accepted, self.desired, allow_data_loss=self.allow_data_loss)
        if not found.steps or not self.backfill:
            return found
        return plan_migration(
            accepted, self.desired, allow_data_loss=self.allow_data_loss, backfills=self.backfill
        )

    def evolve(self, accepted: Catalog, plan: MigrationPlan, reserve: Callable[[int, int], int]) -> Catalog:
        """Return the schema after a plan. New elements get identities that no branch has used."""
        after = evolve(accepted, self.desired, self.source, plan, backfills=self.backfill)
        count = after.next_id - accepted.next_id
        if not count:
            return after
        first = reserve(count, accepted.next_id)
        return evolve(accepted, self.desired, self.source, plan, counter=first, backfills=self.backfill)


@dataclass(frozen=True)
class SchemaResult:
    """The effect of a schema change: its plan, and the paths of tables whose earlier versions are to be purged.

    `before` is the schema of the commit that the change was prepared on, `sequence` the number of that commit.
    """

    plan: MigrationPlan
    before: Catalog
    sequence: int
    purged: frozenset[str] = frozenset()


def prepare_schema(
    transaction: Transaction, change: SchemaChange, reserve: Callable[[int, int], int]
) -> Prepared[SchemaResult]:
    """Stage a schema change. There is nothing to commit when the branch has the schema already.

    `reserve` returns the first of a number of new identities. An unsupported plan raises `InvalidInput`, a backfill
    that breaks a rule `ConstraintViolation`; nothing is visible then.
    """
    accepted, sequence = transaction.base.catalog, transaction.base.commit.sequence
    plan = change.plan(accepted)
    if not plan.steps:
        return Prepared(None, SchemaResult(plan, accepted, sequence))
    catalog = change.evolve(accepted, plan, reserve)
    now = time.time_ns() // 1_000_000
    fillings = dict(read_backfills(accepted, catalog, change.backfill, now))
    for filling in fillings.values():
        check_backfill(transaction, catalog, filling)
    transaction.evolve(catalog)
    purged = _TableChanges(transaction, catalog, fillings, change.allow_data_loss).stage()
    return Prepared("strict", SchemaResult(plan, accepted, sequence, purged))


@dataclass(frozen=True)
class _TableChanges:
    """Stages the changes of a schema change to the tables of one transaction."""

    transaction: Transaction
    catalog: Catalog
    fillings: Mapping[int, TableBackfill]
    hard: bool

    def stage(self) -> frozenset[str]:
        """Stage all tables; return the paths of tables that a hard drop abandons."""
        before = {table.id: table for table in self.transaction.base.catalog.tables.values()}
        left: set[str] = set()
        for table in self.catalog.tables.values():
            stored = before.pop(table.id, None)
            if stored is None:
                self._adopt(table, self._create(table))
            elif self._change(stored, table):
                left.add(self.transaction.base.pin(stored.key).path)
        for table in before.values():
            self.transaction.drop(table)
            left.add(self.transaction.base.pin(table.key).path)
        return frozenset(left) if self.hard else frozenset()

    def _adopt(self, table: Table, staged: StagedTable) -> None:
        self.transaction.adopt(table, self._pin(staged), staged.files)

    def _create(self, table: Table) -> StagedTable:
        # A unique path: a table of a concurrent or interrupted writer is never reused.
        path = f"{table.path}-{new_id()}"
        return self.transaction.base.tables.create(path, arrow_schema(table, physical=True))

    def _change(self, stored: Table, table: Table) -> bool:
        """Add and drop the columns of a table; return whether its rows were copied to a new path."""
        known = {item.physical for item in stored.columns}
        wanted = {item.physical for item in table.columns}
        staged = StagedTable.unchanged(self.transaction.base.pin(stored.key))
        if wanted - known:
            staged = self._widen(table, staged, known)
        rekeyed = self._has_new_key(stored, table) and staged.rows > 0
        if rekeyed:
            staged = self._rekey(table, staged)
        moves = self.hard and bool(known - wanted)
        if moves:
            staged = self._copy(table, self._pin(staged))
        if moves or rekeyed or wanted - known:
            self._adopt(table, staged)
        return moves

    def _has_new_key(self, stored: Table, table: Table) -> bool:
        """Whether the ids of the edges of a table must be derived from a key that they were not derived from."""
        before = table_id_key(self.transaction.base.catalog, stored)
        after = table_id_key(self.catalog, table)
        if table.kind != "edge" or after is None:
            return False
        return before is None or [item.physical for item in before.columns] != [
            item.physical for item in after.columns
        ]

    def _rekey(self, table: Table, staged: StagedTable) -> StagedTable:
        key = table_id_key(self.catalog, table)
        assert key is not None
        rekeying = EdgeRekeying(self.transaction.base.tables, table, key)
        rekeying.check(self._pin(staged))
        self.transaction.begin_intent()
        return staged.followed_by(rekeying.stage(self._pin(staged)))

    def _widen(self, table: Table, staged: StagedTable, known: set[str]) -> StagedTable:
        tables = self.transaction.base.tables
        filling = self.fillings.get(table.id)
        filled = set() if filling is None else set(filling.columns)
        empty = [
            stored_field(item)
            for item in table.columns
            if item.physical not in known and item.name not in filled
        ]
        if empty:
            pin = self._pin(staged)
            wider = pa.schema([*tables.schema(pin), *empty])
            staged = staged.followed_by(tables.stage_columns(pin, wider))
        if filling is not None:
            if staged.rows:
                self.transaction.begin_intent()
            staged = staged.followed_by(
                tables.stage_computed_columns(self._pin(staged), filling.reads, filling.schema, filling.fill)
            )
        return staged

    def _copy(self, table: Table, pin: TablePin) -> StagedTable:
        """Copy the rows to a new table without the dropped columns, with the indexes of a load."""
        tables = self.transaction.base.tables
        copy = self._create(table)
        if not pin.rows:
            return copy
        self.transaction.begin_intent()
        schema = arrow_schema(table, physical=True)
        rows = (batch.cast(schema) for batch in tables.scan_batches(pin, schema.names))
        copy = copy.followed_by(tables.stage_rows(self._pin(copy), rows, schema))
        for column in INDEXED_COLUMNS[table.kind]:
            index = tables.stage_index(self._pin(copy), table.physical(column), "BTREE")
            copy = copy.followed_by(index)
        return copy

    def _pin(self, staged: StagedTable) -> TablePin:
        return staged.pin(self.transaction.commit_id)

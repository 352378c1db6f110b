"""Loads in bounded memory: keys in a DuckDB database on disk, rows streamed from the spool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import arrow_schema
from omnigraph.engine.database_limits import DatabaseLimits
from omnigraph.engine.duckdb import Workspace
from omnigraph.graph.transaction import Transaction
from omnigraph.load.key_checks import KeyCheckedLoad
from omnigraph.load.keys import empty_keys, key_columns, key_rows
from omnigraph.load.load_strategy import Positions
from omnigraph.load.spool import Spool, to_physical
from omnigraph.rules import set_queries as queries
from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.set_rules import entity_of
from omnigraph.sources.row_batch import PLACE, SOURCE
from omnigraph.store.tables.staged_table import StagedTable

_NONE: Positions = np.empty(0, np.int64)


@contextmanager
def open_spilling_load(
    transaction: Transaction,
    spool: Spool,
    mode: WriteMode,
    removed: Mapping[str, pa.Table] | None = None,
    *,
    index_later: bool = False,
) -> Iterator[SpillingLoad]:
    """Open a load with its key tables in the directory of the spool; they are deleted when the context ends."""
    limits = DatabaseLimits(memory=f"{spool.limits.memory}B")
    with Workspace(spool.directory(), limits) as workspace:
        yield SpillingLoad(transaction, spool, mode, workspace, removed, index_later=index_later)


class SpillingLoad(KeyCheckedLoad):
    """A load that reads its rows from the spool, batch by batch."""

    def __init__(
        self,
        transaction: Transaction,
        spool: Spool,
        mode: WriteMode,
        workspace: Workspace,
        removed: Mapping[str, pa.Table] | None = None,
        *,
        index_later: bool = False,
    ) -> None:
        # The ids of resolved rows are not generated: rows with operations may repeat an id.
        generated = spool.generated_ids if removed is None else frozenset()
        super().__init__(transaction, mode, workspace, list(spool.counts), generated, removed)
        self._workspace = workspace
        self._index_later = index_later
        self._spool = spool
        self._sources = spool.sources
        self._superseded = {key: self._find_superseded(table) for key, table in self._loaded.items()}
        self.superseded = {key: len(positions) for key, positions in self._superseded.items()}
        for table in self._loaded.values():
            self._fill_new_keys(table)
        self._fill_committed_keys()

    # --- keys --------------------------------------------------------------------------------------------

    def _find_superseded(self, table: Table) -> np.ndarray[Any, Any]:
        """Return the positions of records that a later record replaces; there are some only in a merge."""
        if not self._supersedes(table):
            return np.empty(0, np.int64)
        columns = list(dict.fromkeys(["id", *chain(*entity_of(self._catalog, table).uniques)]))
        self._keys.append(queries.input_keys(table.id), self._keys_of(table, columns, superseded=True))
        return self._query_column(queries.superseded_positions(table.id))

    def _fill_new_keys(self, table: Table) -> None:
        columns = key_columns(table, entity_of(self._catalog, table))
        self._keys.append(queries.new_keys(table.id), self._keys_of(table, columns, superseded=False))

    def _keys_of(self, table: Table, columns: Sequence[str], *, superseded: bool) -> Iterator[pa.RecordBatch]:
        """Yield the keys of the input records, with or without superseded ones; the first batch is empty."""
        yield empty_keys(table, columns)
        left_out = self._rejected.get(table.key, _NONE) if superseded else self._excluded(table.key)
        for first, batch in self._numbered_batches(table, [*columns, PLACE, SOURCE]):
            mask = _kept(left_out, first, batch.num_rows)
            positions = _positions(first, batch.num_rows)
            if mask is not None:
                batch, positions = batch.filter(mask), positions.filter(mask)
            yield key_rows(table, columns, batch, [batch.column(PLACE), batch.column(SOURCE), positions])

    # --- quarantine --------------------------------------------------------------------------------------

    def _leave_out_keys(self, table: Table, offenders: Sequence[str]) -> None:
        """Remove offenders from the keys of a table, and find the superseded records anew."""
        if self._supersedes(table):
            self._remove_keys(queries.input_keys(table.id), offenders)
            found = self._query_column(queries.superseded_positions(table.id))
            self._superseded[table.key], self.superseded[table.key] = found, len(found)
            self._workspace.drop(queries.new_keys(table.id))
            self._fill_new_keys(table)
        else:
            self._remove_keys(queries.new_keys(table.id), offenders)

    def rows_at(self, key: str, positions: Positions) -> Iterator[pa.Table]:
        """Yield the rows of records at these positions, in order."""
        table = self._loaded[key]
        for first, batch in self._numbered_batches(table, [item.name for item in table.columns]):
            low, high = np.searchsorted(positions, (first, first + batch.num_rows))
            if low < high:
                yield pa.Table.from_batches([batch.take(pa.array(positions[low:high] - first))])

    # --- staging -----------------------------------------------------------------------------------------

    def stage(self, *, dry_run: bool = False) -> dict[str, dict[str, int]]:
        """Stage the rows as detached versions, with indexes on ids and endpoints."""
        affected = {key: self._stage_table(table, dry_run=dry_run) for key, table in self._loaded.items()}
        self.unchanged = not dry_run and self._changes_nothing(affected)
        return affected

    def _stage_table(self, table: Table, *, dry_run: bool) -> dict[str, int]:
        tables, pin = self._transaction.base.tables, self._transaction.pin(table.key)
        schema = arrow_schema(table, physical=True)
        inserted = self._spool.counts[table.key] - len(self._excluded(table.key))
        affected, replaced = self._affected(table, inserted)
        if dry_run:
            return affected
        if self._mode == "overwrite":
            if pin.rows + inserted:
                self._write(table, tables.stage_overwrite(pin, self._stored_rows(table), schema))
        elif inserted or len(replaced):
            self._write(table, tables.stage_rows(pin, self._stored_rows(table), schema, replaced))
        return affected

    def _write(self, table: Table, staged: StagedTable) -> None:
        if self._index_later:
            self._transaction.write(table.key, staged)
        else:
            self._write_indexed(table, staged)

    def _stored_rows(self, table: Table) -> Iterator[pa.RecordBatch]:
        left_out = self._excluded(table.key)
        for first, batch in self._numbered_batches(table, None):
            mask = _kept(left_out, first, batch.num_rows)
            kept = batch if mask is None else batch.filter(mask)
            if kept.num_rows:
                yield to_physical(table, kept)

    def _numbered_batches(
        self, table: Table, columns: Sequence[str] | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the batches of the spool, each with the position of its first record."""
        first = 0
        for batch in self._spool.batches(table.key, columns):
            yield first, batch
            first += batch.num_rows


def _kept(left_out: Positions, first: int, count: int) -> pa.Array | None:
    """Return the mask of the records from a position on that are not left out; None if all of them are kept."""
    low, high = np.searchsorted(left_out, (first, first + count))
    if low == high:
        return None
    mask = np.ones(count, bool)
    mask[left_out[low:high] - first] = False
    return pa.array(mask)


def _positions(first: int, count: int) -> pa.Array:
    return pa.array(np.arange(first, first + count, dtype=np.int64))

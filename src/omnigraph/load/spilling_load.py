"""Loads in bounded memory: keys to a database on disk, rows streamed from the spool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import arrow_schema
from omnigraph.engine.duckdb import DatabaseLimits, Workspace
from omnigraph.graph.transaction import Transaction
from omnigraph.load.key_checks import KeyedWork, key_columns, key_rows, no_keys
from omnigraph.load.spool import Spool, stored
from omnigraph.rules import set_queries as queries
from omnigraph.rules.load_mode import LoadMode
from omnigraph.rules.set_rules import entity_of
from omnigraph.sources.row_batch import PLACE, SOURCE


@contextmanager
def open_bulk(transaction: Transaction, spool: Spool, mode: LoadMode) -> Iterator[BulkLoad]:
    """The bulk work of a load. Its keys are on disk beside the spool and are gone when the context ends."""
    limits = DatabaseLimits(memory=f"{spool.limits.memory}B")
    with Workspace(spool.directory(), limits) as workspace:
        yield BulkLoad(transaction, spool, mode, workspace)


class BulkLoad(KeyedWork):
    """A load whose rows stay in the spool."""

    def __init__(self, transaction: Transaction, spool: Spool, mode: LoadMode, workspace: Workspace) -> None:
        super().__init__(transaction, mode, workspace, list(spool.counts), spool.made)
        self._spool = spool
        self._sources = spool.sources
        self._gone = {key: self._superseded(table) for key, table in self._loaded.items()}
        self.superseded = {key: len(gone) for key, gone in self._gone.items()}
        for table in self._loaded.values():
            self._bring_new(table)
        self._bring_committed()

    # --- keys --------------------------------------------------------------------------------------------

    def _superseded(self, table: Table) -> np.ndarray[Any, Any]:
        """The positions of records that a later one replaces, which only a merge allows."""
        if self._mode != "merge" or table.key in self._made:
            return np.empty(0, np.int64)

        def ids() -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict(
                {"id": pa.array([], pa.string()), queries.POSITION: _counted(0, 0)}
            )
            for first, batch in self._numbered(table, ["id"]):
                numbers = _counted(first, batch.num_rows)
                yield pa.RecordBatch.from_arrays([batch.column("id"), numbers], ["id", queries.POSITION])

        self._append(queries.input_keys(table.id), ids())
        return self._numbers(queries.superseded_positions(table.id))

    def _bring_new(self, table: Table) -> None:
        columns = key_columns(table, entity_of(self._catalog, table))

        def keys() -> Iterator[pa.RecordBatch]:
            yield no_keys(table, columns)
            for first, batch in self._numbered(table, [*columns, PLACE, SOURCE]):
                kept = self._kept(table, first, batch)
                origin = [kept.column(PLACE), kept.column(SOURCE), _counted(first, kept.num_rows)]
                yield key_rows(table, columns, kept, origin)

        self._append(queries.new_keys(table.id), keys())

    # --- staging -----------------------------------------------------------------------------------------

    def stage(self, *, dry: bool = False) -> dict[str, dict[str, int]]:
        """Store everything as detached versions, with indexes of the ids and ends."""
        return {key: self._stage(table, dry=dry) for key, table in self._loaded.items()}

    def _stage(self, table: Table, *, dry: bool) -> dict[str, int]:
        tables, pin = self._transaction.base.tables, self._transaction.pin(table.key)
        schema = arrow_schema(table, physical=True)
        inserted = self._spool.counts[table.key] - self.superseded[table.key]
        affected, replaced = self._affected(table, inserted)
        if dry:
            return affected
        if self._mode == "overwrite":
            if pin.rows + inserted:
                self._take(table, tables.stage_overwrite(pin, self._stored(table), schema))
        elif inserted:
            self._take(table, tables.stage_rows(pin, self._stored(table), schema, replaced))
        return affected

    def _stored(self, table: Table) -> Iterator[pa.RecordBatch]:
        for first, batch in self._numbered(table, None):
            kept = self._kept(table, first, batch)
            if kept.num_rows:
                yield stored(table, kept)

    def _numbered(self, table: Table, columns: Sequence[str] | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batches of the spool with the position of the first record of each."""
        first = 0
        for batch in self._spool.batches(table.key, columns):
            yield first, batch
            first += batch.num_rows

    def _kept(self, table: Table, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        gone = self._gone[table.key]
        low, high = np.searchsorted(gone, (first, first + batch.num_rows))
        if low == high:
            return batch
        mask = np.ones(batch.num_rows, bool)
        mask[gone[low:high] - first] = False
        return batch.filter(pa.array(mask))


def _counted(first: int, count: int) -> pa.Array:
    return pa.array(np.arange(first, first + count, dtype=np.int64))

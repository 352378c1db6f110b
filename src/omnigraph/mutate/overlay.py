"""The overlay of a mutation: committed rows with the pending rows of its statements applied.

Every statement reads through the overlay and writes into it, so it sees the effect of the statements before it.
Nothing is staged until the whole mutation has been validated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.arrow_expressions import matches
from omnigraph.engine.committed_rows import CommittedRows, RowAddressCache
from omnigraph.engine.parameters import Bindings
from omnigraph.engine.row_equality import has_same_rows
from omnigraph.engine.table_rows import TableRows, last_of_each_id
from omnigraph.errors import OmnigraphError
from omnigraph.graph.transaction import Transaction
from omnigraph.lang import ir
from omnigraph.mutate.pending_rows import PendingRows, without_ids
from omnigraph.rules.delta import TableDelta
from omnigraph.store.request_counts import propagate_context

# Comparisons at the same time: one for each mutation that is being prepared.
_COMPARISONS = 8


class _Unread(NamedTuple):
    """Committed rows to read: their ids, and their addresses where the cache knows them."""

    ids: list[str]
    addresses: list[int] | None


class Overlay:
    """The tables as one mutation sees them."""

    def __init__(
        self, transaction: Transaction, bindings: Bindings, cache: RowAddressCache | None = None
    ) -> None:
        self.catalog: Catalog = transaction.base.catalog
        self.bindings = bindings
        self.committed = CommittedRows(transaction.base, transaction.read, cache)
        self._transaction = transaction
        self._cache = cache
        self._pending: dict[str, PendingRows] = {}
        # Addresses that were looked up to compare rows, for staging: by table, with the ids.
        self._known: dict[str, tuple[list[str], dict[str, int] | None]] = {}

    # --- statements --------------------------------------------------------------------------------------

    def select(self, key: str, predicate: ir.Predicate) -> pa.Table:
        """Return the rows of a table that match."""
        pending = self._of(key)
        candidates = self.committed.candidates(key, predicate, self.bindings)
        parts = [without_ids(candidates, pending.shadowed), pending.rows]
        return pa.concat_tables(
            [rows.filter(matches(predicate, TableRows(rows), self.bindings)) for rows in parts]
        )

    def incident(self, edge: str, ends: Sequence[str], ids: pa.Array) -> pa.Table:
        """Return the edges of a type that have one of these nodes at one of the ends."""
        pending = self._of(edge)
        parts = []
        for end, committed in zip(ends, self.committed.find_at_ends(edge, ends, ids), strict=True):
            parts.append(without_ids(committed, pending.shadowed))
            parts.append(pending.rows.filter(pc.is_in(pending.rows[end], ids)))
        return last_of_each_id(pa.concat_tables(parts))

    def put(self, key: str, rows: pa.Table, *, fresh: bool = False) -> None:
        """Insert rows, replacing rows with the same ids. The ids of `fresh` rows were generated just now."""
        self._of(key).put(rows, fresh=fresh)

    def update(self, key: str, rows: pa.Table, updated: pa.Table) -> None:
        """Replace rows that `select` returned. If all are equal to the updated ones, nothing is replaced."""
        if not has_same_rows(updated, rows):
            self._of(key).replace(rows, updated)

    def remove(self, key: str, rows: pa.Table) -> None:
        """Delete rows that `select` or `incident` returned."""
        self._of(key).remove(rows)

    def _of(self, key: str) -> PendingRows:
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = PendingRows(self._transaction.base.table(key))
        return pending

    # --- the end of the mutation -------------------------------------------------------------------------

    def deltas(self) -> dict[str, TableDelta]:
        """Return the change of each table that the mutation touched."""
        return {
            key: pending.delta(self._vacated(key, pending))
            for key, pending in self._pending.items()
            if pending.shadowed
        }

    def _vacated(self, key: str, pending: PendingRows) -> Iterable[str]:
        """Return the sources that lost an edge: those of deleted edges, and the earlier ones of moved edges."""
        edge = self.catalog.schema.edge(pending.table.name) if pending.table.kind == "edge" else None
        if edge is None or not edge.cardinality.min:
            # A source that lost an edge can only break a minimum.
            return pending.vacated
        rewritten = pa.array(pending.rewritten_ids, pa.string())
        earlier = self.committed.find(key, "id", rewritten, ["src"])["src"].to_pylist()
        return dict.fromkeys([*pending.vacated, *earlier])

    @contextmanager
    def comparing(self) -> Iterator[Callable[[], bool]]:
        """Compare pending rows with the committed rows that they replace, while the body of the context runs.

        Yields a function that waits for the result: whether all rows are equal, so that the mutation changes
        nothing. Rows that a statement has selected are compared without another read, and committed rows are read
        only if each pending row replaces one. Rows that cannot be read count as different, so that they can be
        replaced.
        """
        touched = {key: pending for key, pending in self._pending.items() if pending.shadowed}
        unread = {key: self._unread(key, pending) for key, pending in touched.items()}
        if any(item is None for item in unread.values()):
            yield lambda: False
            return
        to_read = {key: item for key, item in unread.items() if item is not None and item.ids}
        if not to_read:
            yield lambda: True
            return

        def pending_rows(key: str) -> pa.Table:
            rows = touched[key].rows
            ids = to_read[key].ids
            if len(ids) == rows.num_rows:
                return rows
            return rows.filter(pc.is_in(rows["id"], pa.array(ids, pa.string())))

        def is_equal(key: str) -> bool:
            ids, addresses = to_read[key]
            if addresses is not None:
                committed = self.committed.take(key, np.array(addresses, np.uint64))
            else:
                committed = self.committed.find(key, "id", pa.array(ids, pa.string()), None)
            return has_same_rows(pending_rows(key), committed)

        def compare() -> bool:
            try:
                return all(map(is_equal, to_read))
            except OmnigraphError:
                return False

        cached = {key: self._take_cached(key, item) for key, item in to_read.items()}
        if all(rows is not None for rows in cached.values()):
            same = all(has_same_rows(pending_rows(key), rows) for key, rows in cached.items())
            yield lambda: same
            return
        # In another thread, because each read is a round trip on an object store and so are the writes.
        comparison = _executor(os.getpid()).submit(propagate_context(compare))
        try:
            yield comparison.result
        finally:
            wait([comparison])

    def _take_cached(self, key: str, unread: _Unread) -> pa.Table | None:
        if unread.addresses is None:
            return None
        return self.committed.take_cached(key, np.array(unread.addresses, np.uint64))

    def _unread(self, key: str, pending: PendingRows) -> _Unread | None:
        """Return the committed rows to compare with; None if the mutation is known to change the table."""
        ids = pending.unread_ids()
        if not ids:
            return None if ids is None else _Unread([], None)
        known = self._addresses(key, ids)
        if known is None:
            return _Unread(ids, None)
        # A row that was put and deleted again must not be committed, every other one must be.
        if any((id_ in known) == (id_ in pending.deleted) for id_ in ids):
            return None
        return _Unread(list(known), list(known.values()))

    def _addresses(self, key: str, ids: list[str]) -> dict[str, int] | None:
        """Return the addresses of committed rows, as `CommittedRows.addresses` does, looked up once."""
        asked, known = self._known.get(key, ([], None))
        if asked != ids or not ids:
            known = self.committed.addresses(key, ids)
            self._known[key] = (ids, known)
        return known

    def stage(self) -> dict[str, dict[str, int]]:
        """Stage every change as a detached version; return the inserted, updated and deleted rows by table."""
        return {key: self._stage(key, pending) for key, pending in self._pending.items() if pending.shadowed}

    def _stage(self, key: str, pending: PendingRows) -> dict[str, int]:
        insert, ids = pending.stored_rows(), pending.replaceable_ids
        # Addresses of the base hold in the version that is staged on: nothing else stages into this transaction.
        addresses = self._addresses(key, ids)
        base = self._transaction.pin(key)
        if addresses is None:
            staged = self._transaction.stage(key, delete_ids=ids, insert=insert)
        else:
            staged = self._transaction.stage(key, delete_addresses=list(addresses.values()), insert=insert)
        if self._cache is not None:
            deleted_rows = None if addresses is None else addresses.values()
            pin = self._transaction.pin(key)
            self._cache.learn(self._transaction.base.tables, base, pin, deleted_rows, insert)
        deleted = self._count_deleted(key, pending)
        updated = staged.deleted - deleted
        return {"inserted": staged.inserted - updated, "updated": updated, "deleted": deleted}

    def _count_deleted(self, key: str, pending: PendingRows) -> int:
        unknown = pending.deleted_pending_ids
        found = 0
        if unknown:
            found = self.committed.find(key, "id", pa.array(unknown, pa.string()), ["id"]).num_rows
        return len(pending.deleted_committed_ids) + found


@lru_cache(maxsize=1)
def _executor(pid: int) -> ThreadPoolExecutor:  # noqa: ARG001 - threads do not survive a fork: a child process needs its own pool
    return ThreadPoolExecutor(_COMPARISONS, thread_name_prefix="omnigraph-compare")

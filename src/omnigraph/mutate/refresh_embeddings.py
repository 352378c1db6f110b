"""Refresh of stored embeddings: the vectors of some rows are computed again, as one commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.engine.committed_rows import CommittedRows
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import Conflict, OmnigraphError
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.lang.schema import EmbeddedProperty
from omnigraph.mutate.overlay import Overlay
from omnigraph.rules.validate import validate
from omnigraph.search.embeddings.embedding_records import EmbeddingState, embedding_record, state_of
from omnigraph.search.embeddings.row_embeddings import embedded_properties, located, vector_array
from omnigraph.search.embeddings.vector_computation import VectorComputation


@dataclass(frozen=True, slots=True)
class RefreshedRows:
    """The vectors that a refresh computed, and those of rows without a text that it removed."""

    computed: int = 0
    removed: int = 0

    def __add__(self, other: RefreshedRows) -> RefreshedRows:
        """Return the sums."""
        return RefreshedRows(self.computed + other.computed, self.removed + other.removed)


@dataclass(frozen=True)
class EmbeddingRefresh:
    """A refresh of one property in the rows with some ids, with the vectors of the texts that they had.

    Vectors without a record are computed again only with `unrecorded`. Stale vectors of rows without a text cannot
    be computed; they are removed only with `remove`.
    """

    key: str
    name: str
    ids: Sequence[str]
    vectors: VectorComputation
    unrecorded: bool = False
    remove: bool = False

    def compute(self, snapshot: Snapshot) -> None:
        """Compute the vectors of the rows in a snapshot into the cache, so that no other write waits for them."""
        table = snapshot.catalog.tables[self.key]
        item = _property(embedded_properties(snapshot.catalog, table), self.name)
        if item is not None:
            rows = CommittedRows(snapshot).find(self.key, "id", pa.array(self.ids, pa.string()), None)
            refresh_rows(self.vectors, table, item, rows, unrecorded=self.unrecorded, remove=self.remove)

    def prepare(self, transaction: Transaction) -> Prepared[RefreshedRows]:
        """Compute the vectors of the rows that still need one, and stage the rows. Nothing is staged if none does.

        A row that has changed since it was found is judged by its present text. A row that was deleted is left out.
        """
        catalog = transaction.base.catalog
        table = catalog.tables.get(self.key)
        item = None if table is None else _property(embedded_properties(catalog, table), self.name)
        if table is None or item is None:
            raise Conflict(
                f"'{self.key}.{self.name}' is no longer computed: the schema changed during the refresh",
                hint="refresh again",
            )
        overlay = Overlay(transaction, Bindings())
        transaction.read(self.key)
        rows = overlay.committed.find(self.key, "id", pa.array(self.ids, pa.string()), None)
        updated, done = refresh_rows(
            self.vectors, table, item, rows, unrecorded=self.unrecorded, remove=self.remove
        )
        if updated is None:
            return Prepared(None, done)
        overlay.update(self.key, rows, updated)
        deltas = overlay.deltas()
        if not deltas:
            return Prepared(None, RefreshedRows())
        validate(catalog, deltas, overlay.committed)
        overlay.stage()
        return Prepared("strict", done)


def refresh_rows(
    vectors: VectorComputation,
    table: Table,
    item: EmbeddedProperty,
    rows: pa.Table,
    *,
    unrecorded: bool = False,
    remove: bool = False,
) -> tuple[pa.Table | None, RefreshedRows]:
    """Return rows with current vectors, and what was done; None instead of the rows if nothing was to do."""
    texts = rows[item.embed.source].to_pylist()
    wanted = _wanted(item, rows, unrecorded=unrecorded)
    computed = np.array([at for at in wanted if texts[at] is not None], np.int64)
    removed = np.array([at for at in wanted if texts[at] is None], np.int64)
    if not (remove and item.vector.type.nullable):
        removed = removed[:0]
    if not len(computed) and not len(removed):
        return None, RefreshedRows()
    chosen = [texts[at] for at in computed.tolist()]
    try:
        found = vectors.compute(item.embed, item.vector.type.dim or 0, chosen)
    except OmnigraphError as error:
        raise located(error, table, item) from error
    records = pa.array([embedding_record(item.embed, text) for text in chosen], pa.string())
    stored = rows[item.name].combine_chunks()
    columns: Mapping[str, pa.Array] = {
        item.name: vector_array(found, stored.type),
        item.record: records,
    }
    for name, values in columns.items():
        column = rows[name].combine_chunks()
        order = np.arange(rows.num_rows)
        order[computed] = rows.num_rows + np.arange(len(computed))
        empty = np.zeros(rows.num_rows, bool)
        empty[removed] = True
        taken = pa.concat_arrays([column, values]).take(pa.array(order, mask=empty))
        rows = rows.set_column(rows.column_names.index(name), name, taken)
    return rows, RefreshedRows(len(computed), len(removed))


def _wanted(item: EmbeddedProperty, rows: pa.Table, *, unrecorded: bool) -> Iterable[int]:
    states = {EmbeddingState.MISSING, EmbeddingState.STALE}
    if unrecorded:
        states.add(EmbeddingState.UNRECORDED)
    columns = (
        rows[item.embed.source].to_pylist(),
        rows[item.record].to_pylist(),
        rows[item.name].is_valid().to_pylist(),
    )
    return [
        at
        for at, (text, record, has_vector) in enumerate(zip(*columns, strict=True))
        if state_of(item.embed, text, record, has_vector=has_vector) in states
    ]


def _property(properties: Sequence[EmbeddedProperty], name: str) -> EmbeddedProperty | None:
    return next((item for item in properties if item.name == name), None)

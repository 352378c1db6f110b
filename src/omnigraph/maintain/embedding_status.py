"""The state of stored embeddings: how many vectors are current, and the rows whose vectors are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Table
from omnigraph.errors import NotFound
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang.schema import EmbeddedProperty
from omnigraph.search.embeddings.embedding_records import EmbeddingState, recorded_model, state_of
from omnigraph.search.embeddings.row_embeddings import embedded_properties

_REFRESHED = frozenset({EmbeddingState.MISSING, EmbeddingState.STALE})


@dataclass(frozen=True, slots=True)
class EmbeddingStatus:
    """The vectors of one property.

    `current` vectors belong to their text and to the model of the schema, `stale` ones do not. `missing` are rows
    with a text and without a vector, `empty` rows without a text. `unrecorded` vectors were stored before the
    property had a provider. `models` counts the vectors with a record by their model.
    """

    type_name: str
    property_name: str
    source: str
    provider: str
    model: str
    dimension: int
    rows: int = 0
    current: int = 0
    stale: int = 0
    missing: int = 0
    unrecorded: int = 0
    empty: int = 0
    models: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "type": self.type_name,
            "property": self.property_name,
            "source": self.source,
            "provider": self.provider,
            "model": self.model,
            "dimension": self.dimension,
            "rows": self.rows,
            "current": self.current,
            "stale": self.stale,
            "missing": self.missing,
            "unrecorded": self.unrecorded,
            "empty": self.empty,
            "models": self.models,
        }


@dataclass(frozen=True)
class EmbeddedColumn:
    """A vector property that writes compute, with its table."""

    table: Table
    item: EmbeddedProperty

    @property
    def key(self) -> str:
        """The key of the table."""
        return self.table.key


def embedded_columns(snapshot: Snapshot, types: Sequence[str] | None = None) -> list[EmbeddedColumn]:
    """Return the computed vector properties of some node types, by default of all of them.

    Raises `NotFound` for a name that is not that of a node type.
    """
    catalog = snapshot.catalog
    for name in types or ():
        if catalog.schema.node(name) is None:
            raise NotFound(f"unknown node type '{name}'")
    return [
        EmbeddedColumn(table, item)
        for table in catalog.tables.values()
        if types is None or table.name in types
        for item in embedded_properties(catalog, table)
    ]


def embedding_status(snapshot: Snapshot, column: EmbeddedColumn) -> EmbeddingStatus:
    """Return the state of the vectors of a property. Reads its texts and records, batch by batch."""
    counts: Counter[EmbeddingState] = Counter()
    models: Counter[str] = Counter()
    for _, states, records in _states(snapshot, column):
        counts.update(states)
        models.update(recorded_model(record) for record in records if record is not None)
    embed, vector = column.item.embed, column.item.vector
    return EmbeddingStatus(
        column.table.name,
        column.item.name,
        embed.source,
        embed.provider or "",
        embed.recorded_model,
        vector.type.dim or 0,
        rows=sum(counts.values()),
        current=counts[EmbeddingState.CURRENT],
        stale=counts[EmbeddingState.STALE],
        missing=counts[EmbeddingState.MISSING],
        unrecorded=counts[EmbeddingState.UNRECORDED],
        empty=counts[EmbeddingState.EMPTY],
        models=dict(sorted(models.items())),
    )


def outdated_ids(
    snapshot: Snapshot, column: EmbeddedColumn, *, unrecorded: bool = False
) -> Iterator[list[str]]:
    """Yield the ids of the rows whose vector is missing or stale, of each batch of rows."""
    wanted = _REFRESHED | ({EmbeddingState.UNRECORDED} if unrecorded else set())
    for ids, states, _ in _states(snapshot, column):
        found = [id_ for id_, state in zip(ids, states, strict=True) if state in wanted]
        if found:
            yield found


def _states(
    snapshot: Snapshot, column: EmbeddedColumn
) -> Iterator[tuple[list[str], list[EmbeddingState], list[str | None]]]:
    """Yield the ids, the states and the records of the rows, batch by batch.

    Vectors are large, and a record is there only with its vector, so only those of rows without a record are read.
    """
    item, table = column.item, column.table
    source, record, vector = (table.physical(name) for name in (item.embed.source, item.record, item.name))
    pin = snapshot.pin(table.key)
    with_records = snapshot.tables.scan_batches(pin, ["id", source, record], f"`{record}` IS NOT NULL")
    for batch in with_records:
        yield _judged(
            item, batch, batch.column(source), batch.column(record), pa.repeat(True, batch.num_rows)
        )
    without = snapshot.tables.scan_batches(pin, ["id", source, vector], f"`{record}` IS NULL")
    for batch in without:
        nothing = pa.nulls(batch.num_rows, pa.string())
        yield _judged(item, batch, batch.column(source), nothing, pc.is_valid(batch.column(vector)))


def _judged(
    item: EmbeddedProperty, batch: pa.RecordBatch, texts: pa.Array, records: pa.Array, present: pa.Array
) -> tuple[list[str], list[EmbeddingState], list[str | None]]:
    known: list[str | None] = records.to_pylist()
    states = [
        state_of(item.embed, text, record, has_vector=has_vector)
        for text, record, has_vector in zip(texts.to_pylist(), known, present.to_pylist(), strict=True)
    ]
    return batch.column("id").to_pylist(), states, known

"""Result columns with whole nodes or edges, built of the columns of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.columns import column_arrow_type
from omnigraph.lang import ir
from omnigraph.lang.types import ColumnType, ObjectType

ResultColumn = tuple[str, ColumnType]


def result_types(query: ir.ReadQuery) -> tuple[ColumnType, ...]:
    """Return the types of the result columns. The outputs of an entity are one column."""
    return tuple(type_ for _, type_ in result_columns(query))


def result_columns(query: ir.ReadQuery) -> Iterator[ResultColumn]:
    """Yield the names and types of the result columns."""
    for entity, outputs in groupby(query.outputs, key=lambda item: item.entity):
        if entity is None:
            yield from ((output.name, output.type) for output in outputs)
        else:
            fields = tuple((output.label, output.type) for output in outputs)
            yield (
                entity.name,
                ObjectType(entity.kind, entity.type_name, fields, entity.nullable, entity.endpoints),
            )


def pack_entities(table: pa.Table, query: ir.ReadQuery) -> pa.Table:
    """Return the table with one struct column for each entity; null where an optional pattern did not match."""
    if all(output.entity is None for output in query.outputs):
        return table
    columns = tuple(result_columns(query))
    schema = pa.schema([(name, column_arrow_type(type_)) for name, type_ in columns])
    batches = (_pack_batch(batch, columns) for batch in table.to_batches())
    return pa.Table.from_batches((pa.record_batch(arrays, schema) for arrays in batches), schema)


def _pack_batch(batch: pa.RecordBatch, columns: Sequence[ResultColumn]) -> list[pa.Array]:
    flat = iter(batch.columns)
    packed: list[pa.Array] = []
    for _, type_ in columns:
        if isinstance(type_, ObjectType):
            fields = [next(flat) for _ in type_.fields]
            # Every entity has an id.
            mask = pc.is_null(fields[0])
            packed.append(
                pa.StructArray.from_arrays(fields, fields=list(column_arrow_type(type_)), mask=mask)
            )
        else:
            packed.append(next(flat))
    return packed

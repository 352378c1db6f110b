"""Columns with whole nodes or edges in the DataFrames of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.catalog.columns import column_spark_type
from omnigraph.lang import ir
from omnigraph.lang.types import ObjectType
from omnigraph.read.entity_columns import result_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def pack_entity_structs(frame: DataFrame, query: ir.ReadQuery) -> DataFrame:
    """Return the frame with one struct column for each entity; null where an optional pattern did not match."""
    if all(output.entity is None for output in query.outputs):
        return frame
    from pyspark.sql import functions as F  # noqa: N812

    flat = iter(frame.columns)
    packed = []
    for name, type_ in result_columns(query):
        if isinstance(type_, ObjectType):
            fields = [F.col(f"`{next(flat)}`").alias(field) for field, _ in type_.fields]
            entity = F.when(fields[0].isNotNull(), F.struct(*fields))
            # A cast, because a field that is never null would make the type depend on the plan.
            packed.append(entity.cast(column_spark_type(type_)).alias(name))
        else:
            packed.append(F.col(f"`{next(flat)}`").alias(name))
    return frame.select(*packed)

"""Reads that Spark runs, as the API offers them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omnigraph.engine.engine_choice import Engine, wants_spark

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.engine.parameters import Bindings
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.lang import ir
    from omnigraph.read.reader import Reader

# Positions of as many rows, eight bytes a variable, fill the memory of one machine; for less, Spark is slower.
SPARK_ROWS = 500_000_000


def is_for_spark(engine: Engine, repository: Repository, snapshot: Snapshot, query: ir.ReadQuery) -> bool:
    """Whether a read is one for Spark: asked for, or over tables that are too large for one process."""
    keys = {snapshot.catalog.table(item.kind, item.type_name).key for item in query.reads}
    large = sum(snapshot.pin(key).rows for key in keys) > SPARK_ROWS
    return wants_spark(engine, in_memory=repository.location.scheme == "memory", large=large)


def spark_frame(
    repository: Repository,
    reader: Reader,
    snapshot: Snapshot,
    query: ir.ReadQuery,
    bindings: Bindings,
    spark: Any = None,
) -> Any:
    """The rows of a read as a DataFrame of Spark. `spark` is a session, the address of a master, or neither."""
    from omnigraph.spark.engine.spark_query import Place, read_on_spark
    from omnigraph.spark.session import session_for

    is_for_spark("spark", repository, snapshot, query)
    reading = replace(reader.session(snapshot), bindings=bindings)
    place = Place(repository.location.uri, repository.objects.options)
    return read_on_spark(reading, reader.plan(snapshot, query), session_for(spark), place)


def spark_rows(
    repository: Repository,
    reader: Reader,
    snapshot: Snapshot,
    query: ir.ReadQuery,
    bindings: Bindings,
    spark: Any = None,
) -> pa.Table:
    """The same rows, collected, with the Arrow types that every engine gives."""
    from omnigraph.spark.engine.spark_query import collect

    return collect(spark_frame(repository, reader, snapshot, query, bindings, spark), query)

"""Read queries of a local graph that run on Spark."""

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

# Row positions take eight bytes per variable, so more rows than this fill the memory of one machine. For fewer rows
# Spark is slower.
SPARK_ROWS = 500_000_000


def is_for_spark(engine: Engine, repository: Repository, snapshot: Snapshot, query: ir.ReadQuery) -> bool:
    """Return whether Spark runs a read: on request, or because its tables are too large for one process."""
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
    """Return the rows of a read as a Spark DataFrame. `spark` is a session, the URL of a master, or None."""
    from omnigraph.spark.engine.entity_structs import pack_entity_structs

    return pack_entity_structs(_flat_frame(repository, reader, snapshot, query, bindings, spark), query)


def _flat_frame(
    repository: Repository,
    reader: Reader,
    snapshot: Snapshot,
    query: ir.ReadQuery,
    bindings: Bindings,
    spark: Any = None,
) -> Any:
    """Return the rows of a read as a Spark DataFrame with a column for each field of an entity."""
    from omnigraph.spark.engine.spark_query import GraphAccess, read_on_spark
    from omnigraph.spark.session import session_for

    # Raises for a graph in memory, which Spark tasks cannot read.
    wants_spark("spark", in_memory=repository.location.scheme == "memory", large=False)
    if repository.read_leases is not None:
        # The frame is evaluated later, and perhaps more than once.
        repository.read_leases.hold(snapshot.commit_id)
    session = replace(reader.session(snapshot), bindings=bindings)
    access = GraphAccess(repository.location.uri, repository.objects.options)
    return read_on_spark(session, reader.plan(snapshot, query), session_for(spark), access)


def spark_rows(
    repository: Repository,
    reader: Reader,
    snapshot: Snapshot,
    query: ir.ReadQuery,
    bindings: Bindings,
    spark: Any = None,
) -> pa.Table:
    """Return the rows of a read, collected from Spark, with the Arrow types of the local engine."""
    from omnigraph.spark.engine.spark_query import collect

    return collect(_flat_frame(repository, reader, snapshot, query, bindings, spark), query)

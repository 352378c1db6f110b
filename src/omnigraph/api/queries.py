"""Reads that Spark runs, as the API offers them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.engine.bindings import Bindings
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.lang import ir
    from omnigraph.read.reader import Reader

QueryEngine: TypeAlias = Literal["auto", "local", "spark"]

# Positions of as many rows, eight bytes a variable, fill the memory of one machine; for less, Spark is slower.
SPARK_ROWS = 500_000_000


def wants_spark(engine: QueryEngine, repository: Repository, snapshot: Snapshot, query: ir.ReadQuery) -> bool:
    """Whether a read is one for Spark: asked for, or over tables that are too large for one process."""
    if engine not in get_args(QueryEngine):
        raise InvalidInput(f"unknown engine '{engine}'", hint=f"one of {', '.join(get_args(QueryEngine))}")
    if engine != "auto":
        return engine == "spark"
    keys = {snapshot.catalog.table(item.kind, item.type_name).key for item in query.reads}
    in_memory = repository.location.scheme == "memory"
    return not in_memory and sum(snapshot.pin(key).rows for key in keys) > SPARK_ROWS


def spark_frame(
    repository: Repository,
    reader: Reader,
    snapshot: Snapshot,
    query: ir.ReadQuery,
    bindings: Bindings,
    spark: Any = None,
) -> Any:
    """The rows of a read as a DataFrame of Spark. `spark` is a session, the address of a master, or neither."""
    from omnigraph.pipeline.session import resolve_session
    from omnigraph.read.on_spark import Place, read_on_spark

    if repository.location.scheme == "memory":
        raise InvalidInput(
            "a graph in the memory of this process is out of reach for Spark's tasks",
            hint="use a path or s3://, or engine='local'",
        )
    master = spark if isinstance(spark, str) else None
    session = resolve_session(None if master is not None else spark, master)
    reading = replace(reader.session(snapshot), bindings=bindings)
    place = Place(repository.location.uri, repository.objects.options)
    return read_on_spark(reading, reader.plan(snapshot, query), session, place)


def collected(frame: Any, query: ir.ReadQuery) -> pa.Table:
    """The rows of such a DataFrame, with the Arrow types that every engine gives."""
    from omnigraph.read.on_spark import collect

    return collect(frame, query)

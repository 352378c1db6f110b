"""Changes between two commits of a graph as typed rows, read in tasks from what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from omnigraph.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.catalog.catalog import Column
    from omnigraph.changes.diff_shares import Share

OPERATION: Final = "op"
# Tasks of one type each read all of its ids, so they should not be small.
_ROWS_PER_TASK: Final = 500_000


def change_frame(
    spark: SparkSession, uri: str, type_name: str, before: str, after: str, storage: Mapping[str, str]
) -> DataFrame:
    """Return the rows of a type that differ between two commits, and `op`: insert, update or delete.

    An inserted or updated row has its values at `after`, a deleted row its values at `before`. Raises `NotFound`
    if garbage collection removed the earlier state.
    """
    from pyspark.sql.types import StructType

    from omnigraph.catalog.columns import spark_type
    from omnigraph.catalog.table_lookup import find_table
    from omnigraph.changes.change_records import ChangeFilter
    from omnigraph.changes.diff_shares import bundle_shares, plan_shares
    from omnigraph.graph.repository import Repository
    from omnigraph.spark.engine.part_frame import part_frame

    with closing(Repository.open(uri, mode="r", options=storage)) as repository:
        new = repository.snapshot_of(repository.commit(after))
        table = find_table(new.catalog, type_name)
        if any(column.name == OPERATION for column in table.columns):
            raise InvalidInput(
                f"type '{table.name}' has a property '{OPERATION}', the name of the column with the operation",
                hint="use `format: omnigraph`, which reads all rows",
            )
        try:
            old = repository.snapshot_of(repository.commit(before))
            wanted = ChangeFilter.of(["edge" if table.kind == "edge" else "node"], [table.name])
            shares = list(plan_shares(old, new, wanted, _ROWS_PER_TASK))
        except NotFound as error:
            raise NotFound(
                f"the state of the last run, commit {before}, is not in the graph any more: {error.message}",
                hint="read everything again with --full-refresh",
            ) from error
    # A deleted row may lack a value that is required today.
    names = [f"`{column.name}` {spark_type(column.type)}" for column in table.columns]
    columns = StructType.fromDDL(", ".join([*names, f"{OPERATION} STRING"]))
    assert isinstance(columns, StructType)
    if not shares:
        return spark.createDataFrame([], columns)
    parts = bundle_shares(shares, _ROWS_PER_TASK)
    read = partial(_read_changes, uri, dict(storage), table.columns, columns.json())
    return part_frame(spark, parts, read, columns, sum(share.rows for share in shares))


def _read_changes(
    uri: str,
    storage: Mapping[str, str],
    columns: Sequence[Column],
    schema_json: str,
    part: tuple[Share, ...],
) -> Iterator[pa.RecordBatch]:
    import json

    import numpy as np
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from omnigraph.changes.diff import OPS
    from omnigraph.engine.diff.table_diff import DELETE
    from omnigraph.spark.engine.table_read import to_spark
    from omnigraph.store.lance.lance_root import LanceRoot
    from omnigraph.store.location import Location
    from omnigraph.store.tables.tables import Tables

    schema = to_arrow_schema(StructType.fromJson(json.loads(schema_json)), timezone="UTC")
    tables = Tables(LanceRoot.at(Location.parse(uri), storage, "full"))
    for share in part:
        for batch in share.changes(tables):
            # Both images have the same columns, so the row of each change is taken from one of them.
            both = pa.concat_tables([batch.before, batch.after])
            places = np.arange(len(batch)) + np.where(batch.ops == DELETE, 0, len(batch))
            rows = both.take(pa.array(places)).combine_chunks()
            arrays = [
                to_spark(rows[column.physical].combine_chunks(), column, schema.field(at).type)
                for at, column in enumerate(columns)
            ]
            ops = pa.array([OPS[number] for number in batch.ops.tolist()], pa.string())
            yield pa.RecordBatch.from_arrays([*arrays, ops], schema=schema)

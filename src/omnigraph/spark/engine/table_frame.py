"""A planned read of a table as a DataFrame, without the data source.

Spark plans a Python data source in a separate process, which opens the graph again. With a snapshot at hand the
read is already planned, and only its partitions have to be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from omnigraph.spark.engine.part_frame import part_frame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.spark.engine.table_read import Partition, TableRead

# Up to this many rows are smaller than the task that would fetch them.
SMALL_ROWS: Final = 1_000


def table_frame(spark: SparkSession, read: TableRead, small_rows: int = SMALL_ROWS) -> DataFrame:
    """Return the rows of a read, with its columns in order.

    A table of up to `small_rows` rows is read immediately and becomes part of the plan. Tasks read larger tables,
    whenever the rows are needed.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(read.ddl)
    assert isinstance(schema, StructType)
    batches = partial(_read_part, read, to_arrow_schema(schema))
    parts = read.partitions()
    if read.pin.rows > small_rows:
        return part_frame(spark, parts, batches, schema, read.pin.rows)
    found = [batch for part in parts for batch in batches(part)]
    if not found:
        return spark.createDataFrame([], schema)
    return spark.createDataFrame(pa.Table.from_batches(found), schema)


def _read_part(read: TableRead, schema: pa.Schema, part: Partition) -> Iterable[pa.RecordBatch]:
    return read.batches(part, schema)

"""Convert a local result to a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.catalog.columns import column_spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.lang.types import ColumnType


def result_frame(spark: SparkSession, table: pa.Table, types: Sequence[ColumnType]) -> DataFrame:
    """Return a result as a DataFrame with the column types of a query on Spark. The rows are part of the plan."""
    from pyspark.sql.types import StructType

    ddl = ", ".join(
        f"`{name}` {column_spark_type(kind)}" for name, kind in zip(table.column_names, types, strict=True)
    )
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    if not table.num_rows:
        # PySpark cannot convert a nested column without chunks.
        empty = [pa.array([], field.type) for field in table.schema]
        table = pa.Table.from_arrays(empty, schema=table.schema)
    return spark.createDataFrame(table, schema)

"""Graphs as a Spark data source, ``format("omnigraph")``.

The driver resolves the state of the graph once and pins it: tasks get the version of one Lance table, the
fragments of their partition and a filter, and read nothing else, so a commit made meanwhile is never seen.

There is no `pushFilters` here on purpose. Spark 4.3 keeps what it leads to with the source and not with the
scan, so that a DataFrame that was filtered once shows only those rows to every later use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from omnigraph.pipeline.table_read import ExactFilter, TableRead, plan_read

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

FORMAT: Final = "omnigraph"


def data_source(exact_filter: ExactFilter) -> type[DataSource]:
    """The class to register with a session. It travels to other processes by value, the function by its name."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class GraphReader(DataSourceReader):
        def __init__(self, read: TableRead, schema: StructType) -> None:
            self._read = read
            self._schema = schema

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(fragments) for fragments in self._read.partitions()]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            from pyspark.sql.pandas.types import to_arrow_schema

            # Where there are no partitions Spark makes one of its own, without a value.
            if partition.value:
                yield from self._read.batches(partition.value, to_arrow_schema(self._schema))

    class GraphSource(DataSource):
        _plan: TableRead | None = None

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            # Spark keeps this object, so everything that is read through it later is of the same commit.
            self._plan = plan_read(self.options, exact_filter)
            return self._plan.ddl

        def reader(self, schema: StructType) -> DataSourceReader:
            plan = self._plan or plan_read(self.options, exact_filter)
            return GraphReader(plan.selecting(schema), schema)

    return GraphSource

"""Graphs as a Spark data source, ``format("omnigraph")``.

The driver resolves the state of the graph once and pins it: tasks get the version of one Lance table, the
fragments of their partition and a filter, and read nothing else, so a commit made meanwhile is never seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from omnigraph.catalog.catalog import Table
from omnigraph.lang import ir
from omnigraph.pipeline.filters import predicate_of
from omnigraph.pipeline.table_read import TableRead, plan_read

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, Filter
    from pyspark.sql.types import StructType

FORMAT: Final = "omnigraph"

# The SQL that selects exactly the rows a predicate is true of, or None when it cannot be said.
ExactFilter: TypeAlias = Callable[[ir.Predicate, Table], str | None]


def data_source(exact_filter: ExactFilter) -> type[DataSource]:
    """The class to register with a session. It travels to other processes by value, the function by its name."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class GraphReader(DataSourceReader):
        def __init__(self, read: TableRead, schema: StructType) -> None:
            self._read = read
            self._schema = schema

        def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
            pushed, left = [], []
            for item in filters:
                predicate = predicate_of(item, self._read.table)
                sql = None if predicate is None else exact_filter(predicate, self._read.table)
                if sql is None:
                    left.append(item)
                else:
                    pushed.append(sql)
            self._read = self._read.filtered(pushed)
            return left

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
            self._plan = plan_read(self.options)
            return self._plan.ddl

        def reader(self, schema: StructType) -> DataSourceReader:
            plan = self._plan or plan_read(self.options)
            return GraphReader(plan.selecting(schema), schema)

    return GraphSource

"""Spark readers of changes: of a branch's change feed in micro-batches, and of the difference between two states.

Both use a source that plans and reads. The driver requests the partitions of a batch, and tasks read them
independently.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from omnigraph.spark.datasource.change_options import CHANGE_COLUMNS, FEED_COLUMNS, check_schema
from omnigraph.spark.datasource.spark_errors import raise_readable_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from omnigraph.spark.datasource.change_sources import DiffSource, FeedSource


def diff_reader(diff: DiffSource, schema: StructType) -> DataSourceReader:
    """Return the reader of a difference in the columns of a schema."""
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    check_schema(schema, CHANGE_COLUMNS)

    class DiffReader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            with raise_readable_errors():
                return [InputPartition(part) for part in diff.partitions()]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            # If there are no partitions, Spark creates one without a value.
            if partition.value:
                with raise_readable_errors():
                    yield from diff.read(partition.value, _arrow_schema(schema))

    return DiffReader()


def feed_reader(feed: FeedSource, schema: StructType, max_commits: int) -> DataSourceStreamReader:
    """Return the reader of a change feed in the columns of a schema. `max_commits` limits a batch. Requires Spark
    4.2.
    """
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow

    check_schema(schema, FEED_COLUMNS)

    class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        _last: int | None = None

        def initialOffset(self) -> dict[str, str]:  # noqa: N802
            with raise_readable_errors():
                return feed.first()

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            # Of Spark's limits, the one that counts items with any number of rows.
            return ReadMaxFiles(max_commits)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            with raise_readable_errors():
                self._last = feed.newest()

        def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
            with raise_readable_errors():
                return feed.next(start, self._last, everything=isinstance(limit, ReadAllAvailable))

        def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
            with raise_readable_errors():
                return [InputPartition(part) for part in feed.partitions(start, end)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            with raise_readable_errors():
                yield from feed.read(partition.value, _arrow_schema(schema))

        def stop(self) -> None:
            feed.close()

    return FeedReader()


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema that Spark's worker compares batches with."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")

"""Readers of changes for Spark: of the feed of a branch in micro-batches, and of the difference of two states.

Both are made of a source that plans and reads. The driver asks it for the parts of a batch, which tasks read apart
from one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from omnigraph.spark.datasource.change_options import CHANGE_COLUMNS, FEED_COLUMNS, check_schema
from omnigraph.spark.datasource.spark_errors import told_in_words

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from omnigraph.spark.datasource.change_sources import DiffSource, FeedSource


def diff_reader(diff: DiffSource, schema: StructType) -> DataSourceReader:
    """The reader of a difference in the columns of a schema."""
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    check_schema(schema, CHANGE_COLUMNS)

    class DiffReader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            with told_in_words():
                return [InputPartition(part) for part in diff.partitions()]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            # Where there are no partitions Spark makes one of its own, without a value.
            if partition.value:
                with told_in_words():
                    yield from diff.read(partition.value, _arrow_schema(schema))

    return DiffReader()


def feed_reader(feed: FeedSource, schema: StructType, max_commits: int) -> DataSourceStreamReader:
    """The reader of a feed in the columns of a schema, so many commits at a time. It needs a Spark 4.2 or newer."""
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow

    check_schema(schema, FEED_COLUMNS)

    class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        _last: int | None = None

        def initialOffset(self) -> dict[str, str]:  # noqa: N802
            with told_in_words():
                return feed.first()

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            # Of the limits that Spark knows, the one of things with any number of rows.
            return ReadMaxFiles(max_commits)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            with told_in_words():
                self._last = feed.newest()

        def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
            with told_in_words():
                return feed.next(start, self._last, everything=isinstance(limit, ReadAllAvailable))

        def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
            with told_in_words():
                return [InputPartition(part) for part in feed.partitions(start, end)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            with told_in_words():
                yield from feed.read(partition.value, _arrow_schema(schema))

        def stop(self) -> None:
            feed.close()

    return FeedReader()


def _arrow_schema(schema: StructType) -> pa.Schema:
    """The very schema that Spark's worker compares batches with."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")

"""The Spark data source ``format("omnigraph")``.

The driver resolves the state of the graph once and pins it. Tasks receive the version of one Lance table, the
fragments of their partition and a filter, and read nothing else. Later commits are never visible to them.

`pushFilters` is deliberately not implemented. Spark 4.3 stores pushed filters with the source and not with the
scan, so a DataFrame that was filtered once would return only those rows to every later use.

Writers are created, run and committed in different processes. They share a sink, which is pickled with them, and
the reports of tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from omnigraph.errors import InvalidInput
from omnigraph.spark.datasource.change_options import (
    change_ddl,
    content_of,
    diff_options,
    feed_options,
)
from omnigraph.spark.datasource.change_readers import diff_reader, feed_reader
from omnigraph.spark.datasource.read_plan import plan_table_read
from omnigraph.spark.datasource.source_options import stream_options, write_options
from omnigraph.spark.datasource.spark_errors import raise_readable_errors
from omnigraph.spark.engine.table_read import TableRead

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from omnigraph.load.sink import Sink, SinkStream
    from omnigraph.spark.datasource.change_sources import DiffSource

FORMAT: Final = "omnigraph"
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


def data_source() -> type[DataSource]:
    """Return the class to register with a session. Spark pickles the class by value and the functions it calls by
    name.

    Methods import modules that load Lance when they run, because Spark starts a Python process just to look up
    the class.
    """
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        InputPartition,
        WriterCommitMessage,
    )

    class GraphReader(DataSourceReader):
        def __init__(self, read: TableRead, schema: StructType) -> None:
            self._read = read
            self._schema = schema

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(fragments) for fragments in self._read.partitions()]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            from pyspark.sql.pandas.types import to_arrow_schema

            # If there are no partitions, Spark creates one without a value.
            if partition.value:
                yield from self._read.batches(partition.value, to_arrow_schema(self._schema))

    @dataclass
    class Staged(WriterCommitMessage):
        part: Any

    class GraphWriter(DataSourceArrowWriter):
        def __init__(self, sink: Sink) -> None:
            self._sink = sink

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return Staged(self._sink.stage(_task().partitionId(), iterator))

        def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
            with raise_readable_errors():
                self._sink.commit(_all_parts(messages))

        def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
            self._sink.abort(_parts(messages))

    class GraphStreamWriter(DataSourceStreamArrowWriter):
        def __init__(self, stream: SinkStream) -> None:
            self._stream = stream

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            task = _task()
            query, batch = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
            if query is None or batch is None:
                raise _continuous_processing()
            return Staged(self._stream.stage(query, int(batch), task.partitionId(), iterator))

        def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
            with raise_readable_errors():
                self._stream.commit(batchId, _all_parts(messages))

        def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
            self._stream.abort(batchId, _parts(messages))

    class GraphSource(DataSource):
        _plan: TableRead | None = None
        _diff: DiffSource | None = None

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            # Spark keeps this object, so all later reads through it use the same commits.
            match content_of(self.options):
                case "changes":
                    return change_ddl(feed_options(self.options).columns)
                case "diff":
                    wanted = diff_options(self.options)
                    from omnigraph.spark.datasource.change_sources import open_diff

                    self._diff = open_diff(wanted)
                    return change_ddl(wanted.columns)
                case "table":
                    self._plan = plan_table_read(self.options)
                    return self._plan.ddl

        def reader(self, schema: StructType) -> DataSourceReader:
            match content_of(self.options):
                case "changes":
                    raise InvalidInput(
                        "use readStream to read the changes of a branch",
                        hint="use the option 'diff' for the changes between two states",
                    )
                case "diff":
                    from omnigraph.spark.datasource.change_sources import open_diff

                    return diff_reader(self._diff or open_diff(diff_options(self.options)), schema)
                case "table":
                    plan = self._plan or plan_table_read(self.options)
                    return GraphReader(plan.selecting(schema), schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            if content_of(self.options) != "changes":
                raise InvalidInput(
                    "only changes can be read as a stream", hint="set the option 'changes' to true"
                )
            from omnigraph.spark.datasource.change_sources import FeedSource

            wanted = feed_options(self.options)
            return feed_reader(FeedSource(wanted), schema, wanted.max_commits)

        def writer(self, schema: StructType, overwrite: bool) -> GraphWriter:
            from omnigraph.load.sink import open_sink

            with raise_readable_errors():
                wanted = write_options(self.options, overwrite=overwrite)
                return GraphWriter(open_sink(wanted, schema.fieldNames()))

        def streamWriter(self, schema: StructType, overwrite: bool) -> GraphStreamWriter:  # noqa: N802
            from omnigraph.load.sink import open_stream

            # Spark creates one writer before each batch, and another one to commit it.
            with raise_readable_errors():
                wanted = stream_options(self.options, overwrite=overwrite)
                return GraphStreamWriter(open_stream(wanted, schema.fieldNames()))

    return GraphSource


def _task() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "this runs in a task"
    return context


def _parts(messages: Sequence[Any]) -> list[Any]:
    """Return the reports of tasks. Failed tasks have none."""
    return [message.part for message in messages if message is not None]


def _all_parts(messages: Sequence[Any]) -> list[Any]:
    if None in messages:
        raise _continuous_processing()
    return _parts(messages)


def _continuous_processing() -> InvalidInput:
    return InvalidInput(
        "graphs do not support continuous processing",
        hint='use a micro-batch trigger, such as processingTime="1 second"',
    )

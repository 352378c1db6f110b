"""The input of a run: what each source has that no earlier run has read, and the state after it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.maintain.retention import parse_duration
from omnigraph.pipelines.definition import (
    ChangesSource,
    ColumnIncrement,
    FileSource,
    GraphSource,
    JdbcSource,
    KafkaSource,
    Source,
    SparkSource,
    TableSource,
)
from omnigraph.pipelines.file_inputs import find_new_files
from omnigraph.pipelines.run_record import SourceLineage, SourceState
from omnigraph.store.storage_options import resolve_options

if TYPE_CHECKING:
    from omnigraph.pipelines.pipeline_file import Pipeline
    from omnigraph.spark.pipelines.column_ranges import Watermark

# Databases that quote names with backticks instead of double quotes.
_BACKTICKS = ("jdbc:mysql:", "jdbc:mariadb:")

# Returns the session; it is started at the first call.
GetSession: TypeAlias = Callable[[], Any]


@dataclass(frozen=True)
class SourceInput:
    """The input of one source.

    `has_rows` is False if an earlier run has read everything. `state` is the state after this run. It is equal to
    the earlier state for a source that has none, such as a table that every run reads. `frame` returns the rows.
    """

    has_rows: bool
    state: SourceState | None
    lineage: SourceLineage
    frame: Callable[[], Any] = field(repr=False)


def find_input(pipeline: Pipeline, name: str, state: SourceState | None, session: GetSession) -> SourceInput:
    """Return what a source has to read. Files and graphs are listed without a Spark session."""
    source = pipeline.definition.sources[name]
    match source:
        case FileSource():
            return _files(pipeline, source, state, session)
        case GraphSource() | ChangesSource():
            return _graph(pipeline, source, state, session)
        case KafkaSource():
            return _kafka(source, state, session)
    return _relation(source, pipeline, state, session)


def _files(
    pipeline: Pipeline, source: FileSource, state: SourceState | None, session: GetSession
) -> SourceInput:
    options = resolve_options(None)
    found = find_new_files(source, pipeline.resolve(source.path), pipeline.folder, state, options)

    def frame() -> Any:
        from omnigraph.spark.pipelines.file_frames import FileRead, file_frame

        example = found.listed[0] if found.listed else None
        # A source without a new file takes part in joins as a whole only if it is not incremental.
        files = found.new if source.incremental is not None else found.listed
        read = FileRead(found.form, source.columns, source.null, pipeline.folder, options)
        return file_frame(session(), files, example, read)

    return SourceInput(bool(found.new), found.state, found.lineage, frame)


def _graph(
    pipeline: Pipeline, source: GraphSource | ChangesSource, state: SourceState | None, session: GetSession
) -> SourceInput:
    from omnigraph.api import entry

    uri = pipeline.resolve(source.graph)
    with entry.open(uri, mode="r") as graph:
        head = graph.commits(source.branch, limit=1)[0].id
        absolute = graph.uri
    before = None if state is None or state["kind"] != "commit" else str(state["commit"])

    def frame() -> Any:
        from omnigraph.spark.pipelines.source_frames import changes_frame, graph_frame

        if isinstance(source, ChangesSource):
            return changes_frame(session(), absolute, source.type, before, head)
        return graph_frame(session(), absolute, source.type, head)

    after = {"kind": "commit", "commit": head}
    return SourceInput(before != head, after, SourceLineage("commits", start=before, stop=head), frame)


def _kafka(source: KafkaSource, state: SourceState | None, session: GetSession) -> SourceInput:
    from omnigraph.spark.pipelines.kafka_frames import (
        Topic,
        check_kafka,
        find_ends,
        has_messages,
        kafka_range,
    )

    spark = session()
    check_kafka(spark)
    start = None if state is None or state["kind"] != "offsets" else state["offsets"]
    topic = Topic(source.topic, source.servers, source.options)
    # The ends are fixed first, so that every use of the frame reads the same messages.
    stop = find_ends(spark, topic, start)
    if stop is None:
        # A topic without messages has no offsets to continue from.
        every = kafka_range(topic.name, start, None)
        return SourceInput(False, None, SourceLineage("offsets"), lambda: topic.frame(spark, every).limit(0))

    def frame() -> Any:
        return topic.frame(spark, kafka_range(topic.name, start, stop))

    is_new = has_messages(start, stop)
    lineage = SourceLineage("offsets", start=str(start), stop=str(stop))
    return SourceInput(is_new, {"kind": "offsets", "offsets": stop if is_new else start}, lineage, frame)


# --- databases and tables ---------------------------------------------------------------------------------


def _relation(
    source: Source, pipeline: Pipeline, state: SourceState | None, session: GetSession
) -> SourceInput:
    from omnigraph.spark.pipelines.column_ranges import Watermark, find_column, greatest_value, rows_between

    assert isinstance(source, JdbcSource | TableSource | SparkSource)
    spark = session()
    increment = source.incremental
    if increment is None:
        # Whether the rows have changed is unknown, so every run reads them.
        return SourceInput(True, None, SourceLineage("all"), lambda: _relation_frame(source, pipeline, spark))
    frame = _relation_frame(source, pipeline, spark)
    high = greatest_value(_greatest_frame(source, spark, increment, frame), increment.column)
    low = None
    if state is not None and state["kind"] == "column" and state["column"] == increment.column:
        low = Watermark(state["value"], state["type"])
    lineage = SourceLineage("column", start=_text(low), stop=_text(high))
    if high is None:
        return SourceInput(False, state, lineage, lambda: frame.limit(0))
    # The database may return the greatest value with another type than the column has.
    high = Watermark(high.value, find_column(frame, increment.column).dataType.simpleString())
    after = {"kind": "column", "column": increment.column, "value": high.value, "type": high.type}
    lag = None if increment.lag is None else _lag(increment.lag)
    # With a lag, rows may have appeared below the greatest value.
    has_rows = low != high or bool(lag)
    return SourceInput(
        has_rows, after, lineage, lambda: rows_between(frame, increment.column, low, high, lag)
    )


def _text(mark: Watermark | None) -> str | None:
    return None if mark is None else mark.value


def _lag(lag: str | int) -> timedelta | int:
    return parse_duration(lag) if isinstance(lag, str) else lag


def _relation_frame(source: JdbcSource | TableSource | SparkSource, pipeline: Pipeline, spark: Any) -> Any:
    from omnigraph.spark.pipelines.source_frames import any_frame, jdbc_frame

    match source:
        case JdbcSource():
            relation = _relation_text(source)
            return jdbc_frame(spark, _jdbc_options(source), relation)
        case TableSource():
            return spark.table(source.table)
        case SparkSource():
            path = None if source.path is None else pipeline.resolve(source.path)
            return any_frame(spark, source.reader, path, source.options)


def _greatest_frame(
    source: JdbcSource | TableSource | SparkSource, spark: Any, increment: ColumnIncrement, frame: Any
) -> Any:
    """Return a frame with the greatest value of the column. A database computes it itself."""
    from omnigraph.spark.pipelines.column_ranges import find_column
    from omnigraph.spark.pipelines.source_frames import jdbc_frame

    if not isinstance(source, JdbcSource):
        return frame
    relation = _relation_text(source)
    # The name as the database has it: quoted names are case-sensitive.
    column = find_column(frame, increment.column).name
    mark = "`" if source.url.startswith(_BACKTICKS) else '"'
    quoted = f"{mark}{column.replace(mark, mark * 2)}{mark}"
    greatest = f"(select max({quoted}) as {quoted} from {relation}) greatest_value"
    return jdbc_frame(spark, _jdbc_options(source), greatest)


def _relation_text(source: JdbcSource) -> str:
    # Some databases reserve short names such as `input`.
    return source.table if source.table is not None else f"({source.query}) omnigraph_input"


def _jdbc_options(source: JdbcSource) -> Mapping[str, str]:
    named = {"url": source.url, "user": source.user, "password": source.password, "driver": source.driver}
    return {**source.options, **{name: value for name, value in named.items() if value is not None}}

"""DataFrames of sources that Spark reads: databases, tables, graphs, changes of graphs, and Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KAFKA: Final = "kafka"


def jdbc_frame(spark: SparkSession, options: Mapping[str, str], relation: str) -> DataFrame:
    """Return a relation of a database: the name of a table, or a query in parentheses with a name."""
    reader = spark.read.format("jdbc").options(**options)
    return reader.option("dbtable", relation).load()


def any_frame(spark: SparkSession, reader: str, path: str | None, options: Mapping[str, str]) -> DataFrame:
    """Return what a reader of the session reads."""
    opened = spark.read.format(reader).options(**options)
    return opened.load() if path is None else opened.load(path)


def graph_frame(spark: SparkSession, uri: str, type_name: str, commit: str) -> DataFrame:
    """Return the rows of a type of a graph at a commit."""
    from omnigraph.spark.registration import register

    register(spark)
    return spark.read.format("omnigraph").options(uri=uri, type=type_name, commit=commit).load()


def changes_frame(spark: SparkSession, uri: str, type_name: str, before: str | None, after: str) -> DataFrame:
    """Return the changes of a type between two commits: its columns, and `op`, which is insert, update or delete.

    Without an earlier commit all rows are inserts. A deleted row has only its `id`; its other columns are null.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    rows = graph_frame(spark, uri, type_name, after)
    if before is None:
        return rows.withColumn("op", F.lit("insert"))
    diff = spark.read.format("omnigraph").options(uri=uri, type=type_name, diff=f"{before}..{after}").load()
    images = diff.select("id", "op")
    current = rows.withColumnRenamed("id", "__id")
    joined = images.join(current, images["id"] == current["__id"], "left")
    return joined.select(*[F.col(f"`{name}`") for name in rows.columns], "op")


def kafka_frame(
    spark: SparkSession, servers: str, topic: str, options: Mapping[str, str], start: Any, stop: Any
) -> DataFrame:
    """Return the messages of a topic in a range of offsets, which are JSON of Spark's Kafka source."""
    reader = spark.read.format(_KAFKA).options(**options)
    reader = reader.option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    begin = "earliest" if start is None else json.dumps(start)
    end = "latest" if stop is None else json.dumps(stop)
    return reader.option("startingOffsets", begin).option("endingOffsets", end).load()


def kafka_ends(frame: DataFrame, topic: str, start: Any) -> dict[str, dict[str, int]]:
    """Return the offsets after the messages of a frame. Only one row per partition travels to the driver."""
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    ends: dict[str, int] = dict((start or {}).get(topic, {}))
    for row in frame.groupBy("partition").agg(F.max("offset").alias("last")).collect():
        ends[str(row["partition"])] = int(row["last"]) + 1
    return {topic: ends}


def check_kafka(spark: SparkSession) -> None:
    """Raise `InvalidInput` if the session has no Kafka source."""
    from pyspark import __version__
    from pyspark.errors import PySparkException

    try:
        spark.read.format(_KAFKA).load()
    except PySparkException as error:
        if "Failed to find" in str(error) or "DATA_SOURCE_NOT_FOUND" in str(error):
            raise InvalidInput(
                "the Spark session has no Kafka source",
                hint=f"set spark.jars.packages to org.apache.spark:spark-sql-kafka-0-10_2.13:{__version__}",
            ) from None


@contextmanager
def isolated_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield a session with the same cluster and catalog, and with temporary views of its own.

    The session that was active before is active again afterwards: `createDataFrame` activates its own session, and
    Spark looks data sources up in the active session, where those of the caller would be missing.
    """
    active = _active_session(spark)
    try:
        yield spark.newSession()
    finally:
        if active is not None:
            _activate(active)


def _active_session(spark: Any) -> Any:
    """Return the active session of the thread, or `spark` if there is none; None for Spark Connect."""
    from pyspark.sql import SparkSession

    # Spark Connect looks data sources up in the session of the request.
    return (SparkSession.getActiveSession() or spark) if isinstance(spark, SparkSession) else None


def _activate(spark: Any) -> None:
    # As `createDataFrame` does it; PySpark has no public call.
    type(spark)._activeSession = spark  # noqa: SLF001
    sessions = type(spark)._get_j_spark_session_class(spark._jvm)  # noqa: SLF001
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001


def first_reason(error: Exception) -> str:
    """Return the first line of an error of Spark that says why, without a stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for number, text in enumerate(lines):
        if text.startswith("omnigraph.errors."):
            return text.partition(": ")[2] or text
        if text.startswith("Traceback (most recent call last)"):
            # The exception follows the frames, which are indented.
            raw = str(error).splitlines()
            start = next(index for index, line in enumerate(raw) if line.strip() == text)
            following = (line for line in raw[start + 1 :] if line and not line[0].isspace())
            found = next(following, lines[number])
            return found.partition("omnigraph.errors.")[2].partition(": ")[2] or found
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        # The name of the exception of the JVM precedes its message.
        return lines[1].lstrip(": ").partition("Exception: ")[2] or lines[1].lstrip(": ")
    return lines[0] if lines else type(error).__name__

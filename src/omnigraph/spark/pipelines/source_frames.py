"""DataFrames of sources that Spark reads: databases, tables, graphs and changes of graphs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def jdbc_frame(spark: SparkSession, options: Mapping[str, str], relation: str) -> DataFrame:
    """Return a relation of a database: the name of a table, or a query in parentheses with a name."""
    reader = spark.read.format("jdbc").options(**options).option("dbtable", relation)
    try:
        return reader.load()
    # Py4J raises an error for an exception of the driver, and PySpark one for a failed connection.
    except Exception as error:
        text = str(error)
        if "No suitable driver" in text or "ClassNotFoundException" in text:
            named = f" {options['driver']}" if "driver" in options else ""
            raise InvalidInput(
                f"the JDBC driver{named} is not on the class path of Spark",
                hint="set `driver`, and start Spark with spark.jars or spark.jars.packages, such as "
                "org.postgresql:postgresql:42.7.8",
            ) from None
        if "FAILED_JDBC.CONNECTION" in text:
            raise InvalidInput(
                "cannot connect to the database", hint="check its address, that it runs, and the credentials"
            ) from None
        raise


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

    Without an earlier commit all rows are inserts. A deleted row has the values that it had before.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    from omnigraph.spark.pipelines.change_frames import OPERATION, change_frame
    from omnigraph.store.storage_options import resolve_options

    if before is None:
        return graph_frame(spark, uri, type_name, after).withColumn(OPERATION, F.lit("insert"))
    return change_frame(spark, uri, type_name, before, after, resolve_options(None))


@contextmanager
def isolated_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield a session with the same cluster and catalog, and with temporary views of its own.

    It is the active session meanwhile, because Spark registers data sources in the active session and looks them up
    there. The session that was active before is active again afterwards. PySpark does not log errors, which it also
    raises, as JSON meanwhile.
    """
    active = _active_session(spark)
    isolated = spark.newSession()
    loggers = _error_loggers()
    enabled = [logger for logger in loggers if not logger.disabled]
    try:
        for logger in enabled:
            logger.disabled = True
        if active is not None:
            _activate(isolated)
        yield isolated
    finally:
        for logger in enabled:
            logger.disabled = False
        if active is not None:
            _activate(active)


def _error_loggers() -> list[logging.Logger]:
    from pyspark.logger import PySparkLogger

    names = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
    return [PySparkLogger.getLogger(name) for name in names]


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

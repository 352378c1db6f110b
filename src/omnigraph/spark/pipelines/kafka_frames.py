"""Messages of a Kafka topic as DataFrames, in ranges of offsets that every use of a DataFrame reads alike."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The next offset of each partition of a topic; `_EARLIEST` for a partition that never had a message.
Offsets: TypeAlias = Mapping[str, Mapping[str, int]]

_KAFKA: Final = "kafka"
# As Spark writes the earliest offset.
_EARLIEST: Final = -2


@dataclass(frozen=True)
class Topic:
    """A topic, the servers that have it, and the options of Spark's Kafka source."""

    name: str
    servers: str
    options: Mapping[str, str]

    def frame(self, spark: SparkSession, offsets: Mapping[str, str]) -> DataFrame:
        """Return the messages in a range of offsets, see `kafka_range`."""
        reader = spark.read.format(_KAFKA).options(**self.options).options(**offsets)
        return reader.option("kafka.bootstrap.servers", self.servers).load()


def kafka_range(topic: str, start: Offsets | None, stop: Offsets | None) -> dict[str, str]:
    """Return the options of Spark's Kafka source for the messages from `start`, up to `stop` or the newest.

    With an end only the partitions that have messages are read, because Spark wants the offsets of every partition
    that it reads.

    >>> kafka_range("t", {"t": {"0": 5}}, {"t": {"0": 7, "1": 2, "2": -2}})["startingOffsets"]
    '{"t": {"0": 5, "1": -2}}'
    """
    if stop is None:
        begin = "earliest" if start is None else json.dumps(start)
        return {"subscribe": topic, "startingOffsets": begin, "endingOffsets": "latest"}
    known = (start or {}).get(topic, {})
    ends = {number: end for number, end in stop[topic].items() if end >= 0}
    begins = {number: known.get(number, _EARLIEST) for number in ends}
    return {
        "assign": json.dumps({topic: [int(number) for number in ends]}),
        "startingOffsets": json.dumps({topic: begins}),
        "endingOffsets": json.dumps({topic: ends}),
    }


def find_ends(spark: SparkSession, topic: Topic, start: Offsets | None) -> Offsets | None:
    """Return the offsets after the newest messages, None if there never was a message.

    Spark wants the offsets of all partitions, and those of new partitions are unknown. Its error names them.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return kafka_ends(topic.frame(spark, kafka_range(topic.name, start, None)), topic.name, start)
    except (PySparkException, Py4JJavaError) as error:
        complete = with_partitions(start, topic.name, str(error))
        if complete == start:
            raise
    return kafka_ends(topic.frame(spark, kafka_range(topic.name, complete, None)), topic.name, complete)


def with_partitions(start: Offsets | None, topic: str, message: str) -> Offsets | None:
    """Return offsets with the partitions that an error of Spark names in addition, which are read from their start.

    >>> with_partitions({"a.b": {"0": 5}}, "a.b", "specified: Set(a.b-0) assigned: Set(a.b-0, a.b-1, xa.b-2)")
    {'a.b': {'0': 5, '1': -2}}
    """
    if start is None:
        return None
    named = re.findall(rf"(?<![\w.-]){re.escape(topic)}-(\d+)\b", message)
    return {topic: {**dict.fromkeys(sorted(named), _EARLIEST), **start[topic]}}


def has_messages(start: Offsets | None, stop: Offsets) -> bool:
    """Return whether there are messages between offsets. A partition without messages adds none.

    >>> has_messages({"t": {"0": 5}}, {"t": {"0": 5, "1": -2}}), has_messages(None, {"t": {"0": 5}})
    (False, True)
    """
    before = start or {}
    return any(
        end >= 0 and end != before.get(topic, {}).get(number)
        for topic, ends in stop.items()
        for number, end in ends.items()
    )


def kafka_ends(frame: DataFrame, topic: str, start: Offsets | None) -> Offsets | None:
    """Return the offsets after the messages of a frame, None if there never was a message. Only one row for each
    partition travels to the driver.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    ends: dict[str, int] = dict((start or {}).get(topic, {}))
    for row in frame.groupBy("partition").agg(F.max("offset").alias("last")).collect():
        ends[str(row["partition"])] = int(row["last"]) + 1
    return {topic: ends} if ends else None


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

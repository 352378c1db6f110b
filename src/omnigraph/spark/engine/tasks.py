"""A function run over many items by Spark, each result small.

Items and results travel; the rows that a task works on never do. Spark runs a task again when its process dies, or
twice when it is slow, and reports one of the attempts: a function must leave nothing behind that counts unless its
result arrives.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.engine.engine_choice import RunTasks
from omnigraph.errors import InvalidInput
from omnigraph.spark.session import session_for

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")
_RESULT = "n long, result binary"


def run_tasks(spark: SparkSession, items: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """The result of the function for every item, in their order; one task each."""
    if not items:
        return []
    frame = spark.range(0, len(items), 1, len(items)).mapInArrow(_runner(items, work), _RESULT)
    found = _results(frame)
    return [found[number] for number in range(len(items))]


def spark_tasks(spark: Any) -> RunTasks:
    """`run_tasks` on the session that `spark` names; the session starts with the first call."""

    def run(items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        return run_tasks(session_for(spark), items, work)

    return run


def run_partitions(frame: DataFrame, work: Callable[[int, Iterator[pa.RecordBatch]], R]) -> list[R]:
    """The result of the function for every partition of a DataFrame, given its number and rows; in their order."""
    found = _results(frame.mapInArrow(_partition_runner(work), _RESULT))
    return [found[number] for number in sorted(found)]


def _results(frame: DataFrame) -> dict[int, Any]:
    from pyspark.errors import PySparkException

    try:
        # What comes back is what tasks say about their work, never the rows they worked on.
        rows = frame.collect()
    except PySparkException as error:
        if "No module named 'omnigraph'" not in str(error):
            raise
        raise InvalidInput(
            "Spark's workers run a Python that has no omnigraph",
            hint="install it for them, or set PYSPARK_PYTHON to one that has it before the session is started",
        ) from error
    return {row["n"]: pickle.loads(bytes(row["result"])) for row in rows}


def _runner(
    items: Sequence[T], work: Callable[[T], R]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _batch(number, work(items[number]))

    return run


def _partition_runner(
    work: Callable[[int, Iterator[pa.RecordBatch]], R],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "this runs in a task"
        number = context.partitionId()
        yield _batch(number, work(number, batches))

    return run


def _batch(number: int, result: Any) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict(
        {"n": pa.array([number], pa.int64()), "result": pa.array([pickle.dumps(result)], pa.binary())}
    )

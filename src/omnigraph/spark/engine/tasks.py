"""Run a function over many items in Spark tasks.

Only items and results are transferred, never the rows that a task processes. Spark may run a task again after a
failure, or twice if it is slow, and uses the result of one attempt. A function must therefore have no effect that
counts unless its result is used.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.engine.engine_choice import RunTasks
from omnigraph.spark.engine.task_errors import raise_task_errors
from omnigraph.spark.session import session_for

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")
_RESULT = "n long, result binary"


def run_tasks(spark: SparkSession, items: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """Return the result of the function for every item, in order, with one task per item."""
    if not items:
        return []
    frame = spark.range(0, len(items), 1, len(items)).mapInArrow(_runner(items, work), _RESULT)
    found = _results(frame)
    return [found[number] for number in range(len(items))]


def spark_tasks(spark: Any) -> RunTasks:
    """Return `run_tasks` on the session that `spark` names. The session is started at the first call."""

    def run(items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        return run_tasks(session_for(spark), items, work)

    return run


def run_partitions(frame: DataFrame, work: Callable[[int, Iterator[pa.RecordBatch]], R]) -> list[R]:
    """Return the result of the function for every partition of a DataFrame, in order.

    The function receives the number and the batches of the partition.
    """
    found = _results(frame.mapInArrow(_partition_runner(work), _RESULT))
    return [found[number] for number in sorted(found)]


def _results(frame: DataFrame) -> dict[int, Any]:
    with raise_task_errors():
        # The results are reports of the tasks, never the rows that they processed.
        rows = frame.collect()
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

"""A function run over many items by Spark, each result small.

Items and results travel; the rows that a task works on never do. Spark runs a task again when its process dies, or
twice when it is slow, and reports one of the attempts: a function must leave nothing behind that counts unless its
result arrives.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


def run_tasks(spark: SparkSession, items: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """The result of the function for every item, in their order; one task each."""
    if not items:
        return []
    frame = spark.range(0, len(items), 1, len(items)).mapInArrow(
        _runner(items, work), "n long, result binary"
    )
    # What comes back is what tasks say about their work, never the rows they worked on.
    found = {row["n"]: pickle.loads(bytes(row["result"])) for row in frame.collect()}
    return [found[number] for number in range(len(items))]


def _runner(
    items: Sequence[T], work: Callable[[T], R]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps(work(items[number]))
                yield pa.RecordBatch.from_pydict(
                    {"n": pa.array([number], pa.int64()), "result": pa.array([result], pa.binary())}
                )

    return run

"""A DataFrame of what a function reads from each of some parts, in tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")


def part_frame(
    spark: SparkSession,
    parts: Sequence[T],
    read: Callable[[T], Iterable[pa.RecordBatch]],
    schema: StructType,
    rows: int,
) -> DataFrame:
    """The rows of all parts, lazily, one task a part; `rows` is about how many there are.

    Batches have the columns of the schema in its order and are cast to its types. The function travels to the
    tasks, and is called again whenever the rows are needed again.

    Spark believes that a function in Python makes as many bytes as it is given, and would broadcast a table of any
    size. So the frame begins with as many rows of the same width as there will be; the function gets one of them
    for each part, and none of the others is ever more than a number.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

    share = max(1, -(-rows // max(1, len(parts))))
    numbers = spark.range(0, len(parts) * share, 1, max(1, len(parts)))
    firsts = numbers.where(F.col("id") % share == 0).select("id", F.lit(None).cast(schema))
    return firsts.mapInArrow(_reader(parts, read, share, schema), schema)


def _reader(
    parts: Sequence[T], read: Callable[[T], Iterable[pa.RecordBatch]], share: int, schema: StructType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        wanted = to_arrow_schema(schema)
        for batch in batches:
            for first in batch.column(0).to_pylist():
                for found in read(parts[first // share]):
                    arrays = [found.column(at).cast(item.type) for at, item in enumerate(wanted)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=wanted)

    return run

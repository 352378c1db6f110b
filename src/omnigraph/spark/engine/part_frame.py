"""A DataFrame of the rows that a function reads from parts, in tasks."""

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
    """Return a lazy DataFrame of the rows of all parts, with one task per part. `rows` is their approximate
    number.

    Batches must have the columns of the schema in order, and are cast to its types. The function is sent to the
    tasks, and is called again whenever the rows are needed again.

    Spark assumes that a Python function returns as many bytes as it receives, and would broadcast a table of any
    size. The DataFrame therefore starts with as many rows of the same width as there will be. The function
    receives one of them for each part, and the others are never materialized.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

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

        wanted = to_arrow_schema(schema, timezone="UTC")
        for batch in batches:
            for first in batch.column(0).to_pylist():
                for found in read(parts[first // share]):
                    arrays = [found.column(at).cast(item.type) for at, item in enumerate(wanted)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=wanted)

    return run

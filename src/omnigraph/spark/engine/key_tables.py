"""Key tables that tasks read, and joins over them on Spark. Only the results are returned to this process.

Spark partitions rows by a 32-bit hash and compares the values themselves, so hash collisions are harmless.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from sqlglot import exp

from omnigraph.spark.engine.part_frame import part_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
_PACKED = "batch binary"
# Spark has no unsigned integers.
_WIDER = {pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


class SparkKeys:
    """Temporary tables in a session that others use too.

    The tables have unique names while the context is open. When it ends, also by an error, the tables and the
    data that executors have persisted are removed.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._prefix = f"omnigraph_{uuid.uuid4().hex}_"
        self._tables: dict[str, DataFrame] = {}
        self._persisted: list[DataFrame] = []

    def __enter__(self) -> SparkKeys:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self._tables:
            self._spark.catalog.dropTempView(self._prefix + name)
        for frame in self._persisted:
            frame.unpersist()

    def append(self, name: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Add rows of this process to a table and return their number. The rows are part of the plan and should
        be few.

        The first batch defines the columns of the table, even if it has no rows.
        """
        rows = pa.Table.from_batches(batches)
        parts = [rows.to_batches()] if rows.num_rows else []
        self.gather(name, rows.schema, parts, iter, rows.num_rows)
        return int(rows.num_rows)

    def gather(
        self,
        name: str,
        schema: pa.Schema,
        parts: Sequence[T],
        read: Callable[[T], Iterable[pa.RecordBatch]],
        rows: int,
    ) -> None:
        """Add rows that tasks read from parts whenever a query needs them. `rows` is their approximate number."""
        frame = part_frame(self._spark, parts, read, _spark_schema(schema), rows)
        before = self._tables.get(name)
        self._register(name, frame if before is None else before.unionAll(frame))

    def derive(self, name: str, expression: exp.Query) -> None:
        """Persist the rows of a query as a table, in the memory and on the disks of the executors."""
        frame = self._run(expression).persist()
        self._persisted.append(frame)
        self._register(name, frame)

    def replace(self, name: str, expression: exp.Query) -> None:
        """Persist the rows of a query, which may read the table of this name, in its place."""
        # The plan of the new table refers to the plan of the old one, and not to its name.
        self.derive(name, expression)

    def stream(self, expression: exp.Query) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query in batches. Memory holds one partition at a time."""
        packed = self._run(expression).mapInArrow(_pack, _PACKED)
        for row in packed.toLocalIterator():
            with pa.ipc.open_stream(bytes(row[0])) as reader:
                yield from reader

    def _register(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(self._prefix + name)
        self._tables[name] = frame

    def _run(self, expression: exp.Query) -> DataFrame:
        query = expression.copy()
        for table in query.find_all(exp.Table):
            table.set("this", exp.to_identifier(self._prefix + table.name))
        # Spark substitutes session settings for ${...} anywhere in the text of a query, so texts are passed as
        # arguments.
        texts: dict[str, str] = {}
        for literal in [item for item in query.find_all(exp.Literal) if item.is_string]:
            name = f"text{len(texts)}"
            texts[name] = literal.name
            literal.replace(exp.Placeholder(this=name))
        return self._spark.sql(query.sql("spark", identify=True), args=texts)


def _spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    wider = [pa.field(item.name, _WIDER.get(item.type, item.type)) for item in schema]
    return from_arrow_schema(pa.schema(wider))


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Serialize each batch to one binary value, which Spark transfers at almost no cost."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        packed = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([packed], ["batch"])

"""Tables of keys that tasks read, and queries over them as joins of Spark: nothing of them comes here but answers.

Spark places rows by a hash of 32 bits and compares the values themselves: two keys of one hash are two keys.
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
# Spark has no unsigned numbers.
_WIDER = {pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


class SparkKeys:
    """Tables in a session that others use too.

    They have names that nobody else has, for as long as the context is open. At its end, also by an error, they are
    gone, and so is what executors keep of them.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._prefix = f"omnigraph_{uuid.uuid4().hex}_"
        self._tables: dict[str, DataFrame] = {}
        self._kept: list[DataFrame] = []

    def __enter__(self) -> SparkKeys:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self._tables:
            self._spark.catalog.dropTempView(self._prefix + name)
        for frame in self._kept:
            frame.unpersist()

    def append(self, name: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Add rows that are here to a table and say how many. They travel with the plan, so let them be few.

        The first batch gives the table its columns, also when it has no rows.
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
        """Add about so many rows to a table, which tasks read from parts whenever a query asks for them."""
        frame = part_frame(self._spark, parts, read, _spark_schema(schema), rows)
        before = self._tables.get(name)
        self._name(name, frame if before is None else before.unionAll(frame))

    def derive(self, name: str, expression: exp.Query) -> None:
        """Keep the rows of a query as a table, in the memory and on the disks of the executors."""
        frame = self._run(expression).persist()
        self._kept.append(frame)
        self._name(name, frame)

    def stream(self, expression: exp.Query) -> Iterator[pa.RecordBatch]:
        """The rows of a query over the tables, a batch at a time. What is held here is one partition of them."""
        packed = self._run(expression).mapInArrow(_pack, _PACKED)
        for row in packed.toLocalIterator():
            with pa.ipc.open_stream(bytes(row[0])) as reader:
                yield from reader

    def _name(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(self._prefix + name)
        self._tables[name] = frame

    def _run(self, expression: exp.Query) -> DataFrame:
        query = expression.copy()
        for table in query.find_all(exp.Table):
            table.set("this", exp.to_identifier(self._prefix + table.name))
        # Spark puts settings of its session in the place of ${...} wherever that is in the text of a query.
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
    """Each batch as one value, which costs Spark next to nothing to bring here."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        packed = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([packed], ["batch"])

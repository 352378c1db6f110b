"""A read of one table, pinned to a commit and split into partitions that processes read independently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from omnigraph.catalog.catalog import Column, Table
from omnigraph.catalog.columns import spark_ddl, spark_type
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.lang.types import Scalar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from omnigraph.store.manifest.records import CommitRecord, TablePin
    from omnigraph.store.tables.tables import Tables

ROWS_PER_PARTITION: Final = 1_000_000

# A Blob may be several megabytes, and a batch of them must fit into memory several times.
_BLOBS_PER_BATCH = 64


@dataclass(frozen=True)
class Partition:
    """The fragments of a partition, or a range of the rows of one fragment: `limit` rows from `offset` on."""

    fragments: tuple[int, ...]
    offset: int = 0
    limit: int | None = None

    @property
    def range(self) -> dict[str, int]:
        """The arguments of a scan for the range of rows."""
        return {} if self.limit is None else {"offset": self.offset, "limit": self.limit}


@dataclass(frozen=True)
class TableRead:
    """Some columns and rows of one table at one commit: all that a process needs to read its partition."""

    uri: str
    commit: CommitRecord
    table: Table
    pin: TablePin
    columns: tuple[Column, ...]
    rows_per_partition: int
    storage: Mapping[str, str] = field(repr=False)
    where: str | None = None

    @property
    def ddl(self) -> str:
        """The schema as Spark DDL."""
        return spark_ddl(replace(self.table, columns=self.columns))

    def selecting(self, schema: StructType) -> TableRead:
        """Return the read with the columns of a schema; raise `InvalidInput` if a type differs from the table's."""
        columns = select_columns(self.table, schema.fieldNames())
        for column, item in zip(columns, schema.fields, strict=True):
            expected, actual = spark_type(column.type).lower().replace(" ", ""), item.dataType.simpleString()
            if expected != actual or (column.type.nullable and not item.nullable):
                raise InvalidInput(
                    f"column '{item.name}' of {self.table.kind} type '{self.table.name}': "
                    f"expected {_type_text(spark_type(column.type), column.type.nullable)}, "
                    f"got {_type_text(actual.upper(), item.nullable)}",
                    hint="read the column with its own type and cast it afterwards",
                )
        return replace(self, columns=columns)

    def partitions(self) -> list[Partition]:
        """Return the partitions: consecutive fragments, or a part of one, with up to `rows_per_partition` rows.

        Raises `NotFound` if garbage collection removed the data of the commit.
        """
        from omnigraph.store.tables.table_fragments import list_fragments

        tables = self._tables()
        with self._reading(tables):
            fragments = list_fragments(tables, self.pin)
        groups: list[list[int]] = []
        parts: list[Partition] = []
        room = 0
        for fragment in fragments:
            # A scan with a filter cannot count the rows that it skips.
            if fragment.rows > self.rows_per_partition and self.where is None:
                starts = range(0, fragment.rows, self.rows_per_partition)
                parts += [Partition((fragment.id,), start, self.rows_per_partition) for start in starts]
                room = 0
                continue
            if not groups or fragment.rows > room:
                groups.append([])
                room = self.rows_per_partition
            groups[-1].append(fragment.id)
            room -= fragment.rows
        return [*(Partition(tuple(group)) for group in groups), *parts]

    def batches(self, partition: Partition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, in the types of a schema that has the columns of the read.

        Raises `NotFound` if garbage collection removed the data of the commit.
        """
        import pyarrow as pa

        from omnigraph.store.lance.lance_errors import translate_lance_errors
        from omnigraph.store.lance.lance_files import get_fragment

        blobs = any(column.type.scalar is Scalar.BLOB for column in self.columns)
        fragments = partition.fragments
        tables = self._tables(fragments)
        with self._reading(tables), translate_lance_errors(f"read {self.pin.path}"):
            dataset = tables.open(self.pin.path, self.pin.version)
            batches = tables.indexes.read_batches(
                self.pin.path,
                dataset,
                columns=[column.physical for column in self.columns],
                filter=self.where,
                fragments=[get_fragment(dataset, id_) for id_ in fragments],
                batch_size=_BLOBS_PER_BATCH if blobs else None,
                # A part of a fragment is a range of its rows in order.
                scan_in_order=partition.limit is not None,
                **partition.range,
            )
            for batch in batches:
                arrays = [
                    to_spark(batch.column(column.physical), column, item.type)
                    for column, item in zip(self.columns, schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _reading(self, tables: Tables) -> AbstractContextManager[None]:
        from omnigraph.graph.damage import CommitState, reading

        return reading(CommitState(tables, self.commit, [self.table]))

    def _tables(self, fragments: Sequence[int] | None = None) -> Tables:
        """Return the tables of the graph. A process that reads only some fragments checks only their files."""
        from omnigraph.store.lance.lance_root import LanceRoot
        from omnigraph.store.location import Location
        from omnigraph.store.tables.read_checks import ReadChecks
        from omnigraph.store.tables.tables import Tables

        root = LanceRoot.at(Location.parse(self.uri), self.storage, "full")
        return Tables(root, ReadChecks(root, fragments=fragments))


def to_spark(values: pa.Array, column: Column, kind: pa.DataType) -> pa.Array:
    """Convert stored values to the Arrow type that Spark uses for the column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    converted = values.cast(kind)
    if column.type.scalar is not Scalar.BLOB or column.type.is_list:
        return converted
    # A Blob with two null fields is null; in Spark only a null struct is.
    data, uri = converted.flatten()
    absent = pc.and_(pc.is_null(data), pc.is_null(uri))
    return pa.StructArray.from_arrays([data, uri], fields=list(kind), mask=absent)


def select_columns(table: Table, names: Sequence[str]) -> tuple[Column, ...]:
    """Return columns by name. Raises `NotFound` for an unknown name and `InvalidInput` for a repeated one."""
    known = {column.name: column for column in table.columns}
    for place, name in enumerate(names):
        if name not in known:
            raise NotFound(
                f"{table.kind} type '{table.name}' has no column '{name}'{did_you_mean(name, sorted(known))}",
                details={"column": name, "columns": sorted(known)},
            )
        if name in names[:place]:
            raise InvalidInput(f"column '{name}' is selected twice")
    return tuple(known[name] for name in names)


def _type_text(kind: str, nullable: bool) -> str:
    return kind if nullable else f"{kind} NOT NULL"

"""Reading one table of a graph in many processes: planned once, pinned to one commit, cut into partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from omnigraph.catalog.catalog import Catalog, Column, Table
from omnigraph.catalog.columns import ENDPOINT_COLUMNS, spark_ddl, spark_type
from omnigraph.catalog.table_lookup import find_table
from omnigraph.engine.parameters import Bindings
from omnigraph.engine.pushdown import push_down
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.lang import ir
from omnigraph.lang.source import Source
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.lang.temporal import parse_moment
from omnigraph.lang.types import Scalar
from omnigraph.spark.datasource.source_options import (
    READ_OPTIONS,
    graph_location,
    known_options,
    positive,
    required,
    storage_options,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from omnigraph.graph.repository import Repository
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.store.manifest.records import CommitRecord, TablePin
    from omnigraph.store.tables.tables import Tables

ROWS_PER_PARTITION: Final = 1_000_000


# Blobs may be megabytes each, and a batch of them has to fit into memory several times over.
_BLOBS_PER_BATCH = 64


@dataclass(frozen=True)
class TableRead:
    """Some columns and rows of one table at one commit: all that a process needs to know to read its part."""

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
        """The schema in Spark's terms."""
        return spark_ddl(replace(self.table, columns=self.columns))

    def selecting(self, schema: StructType) -> TableRead:
        """The same read with the columns of a schema, whose types must be those of the table."""
        columns = _named(self.table, schema.fieldNames())
        for column, item in zip(columns, schema.fields, strict=True):
            expected, given = spark_type(column.type).lower().replace(" ", ""), item.dataType.simpleString()
            if expected != given or (column.type.nullable and not item.nullable):
                raise InvalidInput(
                    f"column '{item.name}' of {self.table.kind} type '{self.table.name}' is "
                    f"{_described(spark_type(column.type), column.type.nullable)}, "
                    f"not {_described(given.upper(), item.nullable)}",
                    hint="read it as it is and cast afterwards",
                )
        return replace(self, columns=columns)

    def partitions(self) -> list[tuple[int, ...]]:
        """The fragments of every partition: neighbours, up to the number of rows that was asked for."""
        from omnigraph.graph.snapshot import reclaimed_error
        from omnigraph.store.tables.table_fragments import list_fragments

        try:
            parts = list_fragments(self._tables(), self.pin)
        except NotFound as error:
            raise reclaimed_error(self.commit) from error
        groups: list[list[int]] = []
        room = 0
        for part in parts:
            if not groups or part.rows > room:
                groups.append([])
                room = self.rows_per_partition
            groups[-1].append(part.id)
            room -= part.rows
        return [tuple(group) for group in groups]

    def batches(self, fragments: Sequence[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of some fragments, in the types of a schema that has the read's columns."""
        import pyarrow as pa

        from omnigraph.graph.snapshot import reclaimed_error
        from omnigraph.store.lance.lance_errors import translate_lance_errors
        from omnigraph.store.lance.lance_files import get_fragment

        blobs = any(column.type.scalar is Scalar.BLOB for column in self.columns)
        try:
            with translate_lance_errors(f"read {self.pin.path}"):
                dataset = self._tables().open(self.pin.path, self.pin.version)
                scanner = dataset.scanner(
                    columns=[column.physical for column in self.columns],
                    filter=self.where,
                    fragments=[get_fragment(dataset, id_) for id_ in fragments],
                    batch_size=_BLOBS_PER_BATCH if blobs else None,
                    scan_in_order=False,
                )
                for batch in scanner.to_batches():
                    arrays = [
                        _as_spark_has_it(batch.column(column.physical), column, item.type)
                        for column, item in zip(self.columns, schema, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except NotFound as error:
            raise reclaimed_error(self.commit) from error

    def _tables(self) -> Tables:
        from omnigraph.store.lance.lance_root import LanceRoot
        from omnigraph.store.location import Location
        from omnigraph.store.tables.tables import Tables

        return Tables(LanceRoot.at(Location.parse(self.uri), self.storage, "full"))


def plan_read(options: Mapping[str, str]) -> TableRead:
    """What the options of a read ask for, pinned to the commit that they mean now."""
    from omnigraph.graph.repository import Repository

    given = known_options(options, READ_OPTIONS)
    storage = storage_options(given)
    location = graph_location(given)
    name = required(given, "type")
    rows = positive(given, "rowsPerPartition", ROWS_PER_PARTITION)
    repository = Repository.open(location.uri, mode="r", options=storage)
    try:
        snapshot = _find_snapshot(repository, given)
    finally:
        repository.close()
    table = find_table(snapshot.catalog, name)
    columns = given.get("columns")
    return TableRead(
        uri=location.uri,
        commit=snapshot.commit,
        table=table,
        pin=snapshot.pin(table.key),
        columns=table.columns
        if columns is None
        else _named(table, [item.strip() for item in columns.split(",")]),
        rows_per_partition=rows,
        storage=storage,
        where=None if "where" not in given else _filter(given["where"], snapshot.catalog, table),
    )


def _as_spark_has_it(values: pa.Array, column: Column, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = values.cast(kind)
    if column.type.scalar is not Scalar.BLOB or column.type.is_list:
        return found
    # A Blob of two nulls is absent, and for Spark only a null struct is.
    data, uri = found.flatten()
    absent = pc.and_(pc.is_null(data), pc.is_null(uri))
    return pa.StructArray.from_arrays([data, uri], fields=list(kind), mask=absent)


def _find_snapshot(repository: Repository, given: Mapping[str, str]) -> Snapshot:
    chosen = [name for name in ("commit", "snapshot", "timestamp") if name in given]
    if "branch" in given and chosen != ["timestamp"]:
        chosen.insert(0, "branch")
    if len(chosen) > 1:
        raise InvalidInput(f"the options {' and '.join(chosen)} each name a state; give one of them")
    branch = given.get("branch", "main")
    if "timestamp" not in given:
        return repository.snapshot(branch, given.get("commit", given.get("snapshot")))
    moment = parse_moment(given["timestamp"])
    if moment is None:
        raise InvalidInput(
            f"'{given['timestamp']}' is not a time",
            hint="write an ISO-8601 time such as 2026-05-04T12:00:00Z",
        )
    return repository.snapshot(branch, moment)


def _named(table: Table, names: Sequence[str]) -> tuple[Column, ...]:
    known = {column.name: column for column in table.columns}
    for place, name in enumerate(names):
        if name not in known:
            raise NotFound(
                f"{table.kind} type '{table.name}' has no column '{name}'{did_you_mean(name, sorted(known))}",
                details={"column": name, "columns": sorted(known)},
            )
        if name in names[:place]:
            raise InvalidInput(f"column '{name}' is asked for twice")
    return tuple(known[name] for name in names)


def _filter(text: str, catalog: Catalog, table: Table) -> str:
    """The filter of a condition as it stands after the `where` of a mutation."""
    from omnigraph.lang.gq.check import check_query
    from omnigraph.lang.gq.query_parser import parse_queries

    source = Source(f"query read() {{ delete {table.name} where\n{text}\n}}", "where")
    queries = parse_queries(source).queries
    checked = check_query(queries[0], catalog.schema, source)
    statements = checked.statements if isinstance(checked, ir.MutationQuery) and len(queries) == 1 else ()
    kind = ir.DeleteNode if table.kind == "node" else ir.DeleteEdge
    if len(statements) != 1 or not isinstance(statements[0], kind):
        raise InvalidInput(f"'{text}' is not one condition on a row of {table.kind} type '{table.name}'")
    found = exact_filter(statements[0].where, table)
    if found is None:
        raise InvalidInput(
            f"'{text}' is a condition that a scan cannot run", hint="filter the DataFrame instead"
        )
    return found


def _described(kind: str, nullable: bool) -> str:
    return kind if nullable else f"{kind} NOT NULL"


def exact_filter(predicate: ir.Predicate, table: Table) -> str | None:
    """The filter of a scan that selects just the rows a predicate is true of, or None when there is none."""
    now = time.time_ns() // 1_000_000
    pushed = push_down(predicate, lambda ref: _physical_column(ref, table), Bindings(now=now))
    if not pushed.exact:
        return None
    return "true" if pushed.sql is None else pushed.sql


def _physical_column(ref: ir.PropertyRef | ir.ColumnRef, table: Table) -> str:
    name = ref.name if isinstance(ref, ir.ColumnRef) else ref.property
    return table.physical(ENDPOINT_COLUMNS.get(name, name) if table.kind == "edge" else name)

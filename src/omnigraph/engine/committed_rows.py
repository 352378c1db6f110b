"""Lookups of committed rows: the part of a base snapshot that a write is checked against."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import logical_schema
from omnigraph.catalog.keys import table_id_key
from omnigraph.engine.key_predicates import specified_id, specified_values
from omnigraph.engine.parameters import Bindings
from omnigraph.engine.pushdown import push_down
from omnigraph.engine.table_rows import logical_column
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang import ir
from omnigraph.lang.types import PropType
from omnigraph.sources.arrow_values import ir_values
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.row_addresses import ROW_ADDRESS, Addresses
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.version_diff import take_addresses

# For more values than this a scan of the column is cheaper than a filter that lists them.
_MAX_FILTER_VALUES = 4_000
# For more ids than this one filtered scan is cheaper than single lookups in the address cache.
_MAX_CACHE_LOOKUPS = 256
# Rows per part of a scan. Each part is compared with all the values: small parts cost time, large ones memory.
_PART_ROWS = 262_144
_MAX_REMEMBERED_VALUES = 16
_MAX_REMEMBERED_ROWS = 1_000


class RowAddressCache(Protocol):
    """Optional cache of row addresses by id."""

    def addresses(self, snapshot: Snapshot, key: str, ids: Sequence[str]) -> dict[str, int] | None:
        """Return the addresses of the rows that exist, by id; None when the cache cannot tell."""
        ...

    def rows(self, snapshot: Snapshot, key: str, addresses: Sequence[int]) -> pa.Table | None:
        """Return rows by address with their physical columns; None when one of them is not cached."""
        ...

    def learn(
        self, tables: Tables, base: TablePin, pin: TablePin, deleted: Collection[int] | None, rows: pa.Table
    ) -> None:
        """Add a version that was staged on another: the rows that it inserted, as they are stored.

        `deleted` are the addresses of the rows that it deleted; None if they are not known.
        """
        ...


class CommittedRows:
    """The rows of a snapshot, by logical column.

    `record_read` is called with the key of each table before it is read; a write passes `Transaction.read`, so that
    the table joins its read set.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        record_read: Callable[[str], object] | None = None,
        cache: RowAddressCache | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._record_read = record_read
        self._cache = cache
        # Results of lookups of few values: a delete looks its edges up again to check them.
        self._found: dict[tuple[str, str, tuple[Any, ...]], pa.Table] = {}

    def find(self, key: str, column: str, values: pa.Array, columns: list[str] | None) -> pa.Table:
        """Return the rows whose `column` has one of the values.

        `columns` are the columns of the result, None for all of them; `ROW_ADDRESS` may be among them.
        """
        table = self._table(key)
        selected = [item.name for item in table.columns] if columns is None else columns
        if len(values) == 0 or not self._snapshot.pin(key).rows:
            return _schema(table, selected).empty_table()
        if column == "id":
            found = self._find_in_cache(table, values.to_pylist(), selected)
            if found is not None:
                return found
        if len(values) > _MAX_REMEMBERED_VALUES:
            return self._find(table, column, values, selected)
        lookup = (key, column, tuple(values.to_pylist()))
        rows = self._found.get(lookup)
        if rows is None or not set(selected) <= set(rows.column_names):
            rows = self._find(table, column, values, selected)
            if rows.num_rows <= _MAX_REMEMBERED_ROWS:
                self._found[lookup] = rows
        return rows.select(selected)

    def _find_in_cache(self, table: Table, ids: list[str | None], selected: list[str]) -> pa.Table | None:
        """Return the rows with these ids without access to storage; None if the cache does not have them."""
        addresses = self.addresses(table.key, ids)
        if addresses is None:
            return None
        if set(selected) <= {"id", ROW_ADDRESS}:
            return _address_rows(table, selected, addresses)
        if not addresses:
            return _schema(table, selected).empty_table()
        stored = np.sort(np.fromiter(addresses.values(), np.uint64))
        rows = self.take_cached(table.key, stored)
        return None if rows is None else rows.append_column(ROW_ADDRESS, pa.array(stored)).select(selected)

    def find_at_ends(self, key: str, ends: Sequence[str], ids: pa.Array) -> list[pa.Table]:
        """Return the edges that have one of the nodes at each of the ends, with one scan for few nodes."""
        table = self._table(key)
        filters = (
            [_values_filter(table, end, ids) for end in ends]
            if 0 < len(ids) <= _MAX_REMEMBERED_VALUES
            else []
        )
        if len(filters) < 2 or None in filters or not self._snapshot.pin(key).rows:
            return [self.find(key, end, ids, None) for end in ends]
        where = " OR ".join(f"({item})" for item in filters)
        rows = self._scan(table, where, [item.name for item in table.columns])
        found = [rows.filter(pc.is_in(rows[end], ids)) for end in ends]
        if rows.num_rows <= _MAX_REMEMBERED_ROWS:
            values = tuple(ids.to_pylist())
            self._found.update({(key, end, values): part for end, part in zip(ends, found, strict=True)})
        return found

    def _find(self, table: Table, column: str, values: pa.Array, selected: list[str]) -> pa.Table:
        scanned = list(dict.fromkeys([*selected, column]))
        if len(values) > _MAX_FILTER_VALUES or _has_nan(values):
            parts = [part.filter(_is_in(part[column], values)) for part in self.parts(table.key, scanned)]
            rows = pa.concat_tables(parts or [_schema(table, scanned).empty_table()])
        else:
            rows = self._scan(table, _values_filter(table, column, values), scanned)
            rows = rows.filter(pc.is_in(rows[column], values))
        return rows.select(selected)

    def take(self, key: str, addresses: Addresses) -> pa.Table:
        """Return the rows at these addresses with all columns, in the order of storage."""
        table = self._table(key)
        names = [item.name for item in table.columns]
        if not len(addresses):
            return _schema(table, names).empty_table()
        found = self.take_cached(key, addresses)
        if found is not None:
            return found
        snapshot = self._snapshot
        found = take_addresses(
            snapshot.tables, snapshot.pin(key), np.sort(addresses), physical_columns(table, names)
        )
        return found.rename_columns(names).cast(_schema(table, names))

    def take_cached(self, key: str, addresses: Addresses) -> pa.Table | None:
        """Return the rows that `take` returns if the cache has them, without access to storage."""
        table = self._table(key)
        if self._cache is None or len(addresses) > _MAX_CACHE_LOOKUPS:
            return None
        found = self._cache.rows(self._snapshot, key, np.sort(addresses).tolist())
        if found is None:
            return None
        names = [item.name for item in table.columns]
        return found.rename_columns(names).cast(_schema(table, names))

    def find_tuples(self, key: str, columns: list[str], tuples: pa.Table, wanted: list[str]) -> pa.Table:
        """Return the rows that may equal one of the tuples; the result may have more rows than those."""
        values = pc.drop_null(pc.unique(tuples[columns[0]].combine_chunks()))
        return self.find(key, columns[0], values, list(dict.fromkeys([*wanted, *columns])))

    def candidates(self, key: str, predicate: ir.Predicate, bindings: Bindings) -> pa.Table:
        """Return the rows that the storage filter of a predicate selects: all that match, and perhaps more."""
        table = self._table(key)
        found = self._find_by_key(table, predicate, bindings)
        if found is not None:
            return found
        pushed = push_down(predicate, lambda ref: _physical(table, ref), bindings)
        return self._scan(table, pushed.sql, [item.name for item in table.columns])

    def _find_by_key(self, table: Table, predicate: ir.Predicate, bindings: Bindings) -> pa.Table | None:
        """Return the row whose key a predicate specifies; None if it specifies no key, or ids are not cached."""
        key = table_id_key(self._snapshot.catalog, table)
        where = predicate.items if isinstance(predicate, ir.And) else (predicate,)
        values = specified_values(key, where, bindings)
        if key is None or values is None:
            return None
        id_ = specified_id(key, values)
        addresses = {} if id_ is None else self.addresses(table.key, [id_])
        if addresses is None:
            return None
        return self.take(table.key, np.fromiter(addresses.values(), np.uint64))

    def parts(self, key: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all rows of a table in parts of bounded size. `ROW_ADDRESS` may be among the columns."""
        table = self._table(key)
        schema = _schema(table, columns)
        held: list[pa.RecordBatch] = []
        for batch in self._snapshot.scan_batches(key, physical_columns(table, columns)):
            held.append(batch)
            if sum(item.num_rows for item in held) >= _PART_ROWS:
                yield pa.Table.from_batches(held).rename_columns(list(columns)).cast(schema)
                held = []
        if held:
            yield pa.Table.from_batches(held).rename_columns(list(columns)).cast(schema)

    def addresses(self, key: str, ids: Sequence[str | None]) -> dict[str, int] | None:
        """Return the addresses of the rows with these ids from the cache, without a scan.

        None when there is no cache, when it cannot tell, or when a scan is cheaper.
        """
        known = [id_ for id_ in ids if id_ is not None]
        if not known:
            return {}
        if self._cache is None or len(known) > _MAX_CACHE_LOOKUPS:
            return None
        return self._cache.addresses(self._snapshot, key, known)

    def _table(self, key: str) -> Table:
        if self._record_read is not None:
            self._record_read(key)
        return self._snapshot.table(key)

    def _scan(self, table: Table, where: str | None, columns: list[str]) -> pa.Table:
        rows = self._snapshot.scan(table.key, physical_columns(table, columns), where)
        return rows.rename_columns(columns).cast(_schema(table, columns))


def _physical(table: Table, ref: ir.PropertyRef | ir.ColumnRef) -> str:
    return table.physical(logical_column(ref))


def physical_columns(table: Table, columns: Sequence[str]) -> list[str]:
    """Return the physical names of logical columns; `ROW_ADDRESS` stays as it is."""
    return [name if name == ROW_ADDRESS else table.physical(name) for name in columns]


def _schema(table: Table, columns: Sequence[str]) -> pa.Schema:
    known = logical_schema(table)
    return pa.schema(
        [pa.field(ROW_ADDRESS, pa.uint64()) if name == ROW_ADDRESS else known.field(name) for name in columns]
    )


def _values_filter(table: Table, column: str, values: pa.Array) -> str | None:
    operand = ir.ColumnRef(column, next(item.type for item in table.columns if item.name == column))
    constant = ir.Const(ir_values(values), PropType(operand.type.scalar, is_list=True))
    return push_down(ir.InSet(operand, constant), lambda ref: _physical(table, ref), Bindings()).sql


def _address_rows(table: Table, columns: Sequence[str], addresses: dict[str, int]) -> pa.Table:
    values = {"id": list(addresses), ROW_ADDRESS: list(addresses.values())}
    schema = _schema(table, columns)
    return pa.table([pa.array(values[field.name], field.type) for field in schema], schema=schema)


def _has_nan(values: pa.Array) -> bool:
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())


def _is_in(column: pa.ChunkedArray, values: pa.Array) -> pa.ChunkedArray:
    """Return which of a column's values are among some, where all NaNs are equal. No predicate selects a NaN."""
    found = pc.is_in(column, values)
    return pc.or_kleene(found, pc.is_nan(column)) if _has_nan(values) else found

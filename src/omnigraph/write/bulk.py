"""Loads in bounded memory: the rules between rows as queries over keys on disk, and rows streamed from the spool.

Nothing here holds rows: keys go to a database on disk that goes away with the work, rows pass through in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot.expressions import Select

from omnigraph.catalog.catalog import Table, table_key
from omnigraph.catalog.columns import arrow_schema, arrow_type
from omnigraph.catalog.json_rows import json_values
from omnigraph.engine.bindings import Bindings
from omnigraph.engine.duckdb import Limits, Workspace
from omnigraph.graph.transaction import Transaction
from omnigraph.lang.schema import EdgeType
from omnigraph.store.tables import StagedTable
from omnigraph.write import set_queries as queries
from omnigraph.write.delta import Violation
from omnigraph.write.findings import Findings
from omnigraph.write.overlay import ADDRESS, Overlay
from omnigraph.write.set_rules import (
    already_there,
    column_types,
    ends_nowhere,
    entity_of,
    held_twice,
    plain,
    record_identity,
    wrong_count,
)
from omnigraph.write.spool import PLACE, SOURCE, LoadMode, Spool, stored

Row = dict[str, Any]
_APPENDED_ROWS = 262_144
# Key lookups are indexed from the first read on.
_INDEXED = {"node": ("id",), "edge": ("id", "src", "dst")}


@contextmanager
def open_bulk(transaction: Transaction, spool: Spool, mode: LoadMode) -> Iterator[BulkLoad]:
    """The bulk work of a load. Its keys are on disk beside the spool and are gone when the context ends."""
    limits = Limits(memory=f"{spool.limits.memory}B")
    with Workspace(spool.directory(), limits) as workspace:
        yield BulkLoad(transaction, spool, mode, workspace)


class BulkLoad:
    """A load whose keys are in a workspace and whose rows stay in the spool."""

    def __init__(self, transaction: Transaction, spool: Spool, mode: LoadMode, workspace: Workspace) -> None:
        self._transaction = transaction
        self._catalog = transaction.base.catalog
        self._spool = spool
        self._mode = mode
        self._workspace = workspace
        self._loaded = {key: self._catalog.tables[key] for key in spool.counts}
        self._gone = {key: self._superseded(table) for key, table in self._loaded.items()}
        self.superseded: dict[str, int] = {key: len(gone) for key, gone in self._gone.items()}
        for table in self._loaded.values():
            self._bring_new(table)
        for key, columns in self._needed().items():
            self._bring_old(self._catalog.tables[key], list(columns))

    # --- keys --------------------------------------------------------------------------------------------

    def _superseded(self, table: Table) -> np.ndarray[Any, Any]:
        """The positions of records that a later one replaces, which only a merge allows."""
        if self._mode != "merge":
            return np.empty(0, np.int64)

        def ids() -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict(
                {"id": pa.array([], pa.string()), queries.POSITION: _counted(0, 0)}
            )
            for first, batch in self._numbered(table, ["id"]):
                numbers = _counted(first, batch.num_rows)
                yield pa.RecordBatch.from_arrays([batch.column("id"), numbers], ["id", queries.POSITION])

        self._append(queries.given_keys(table.id), ids())
        return self._numbers(queries.superseded_positions(table.id))

    def _bring_new(self, table: Table) -> None:
        entity = entity_of(self._catalog, table)
        structural = [item.name for item in table.columns if item.property_id is None]
        columns = list(dict.fromkeys((*structural, *record_identity(entity), *_flat(entity.uniques))))

        def keys() -> Iterator[pa.RecordBatch]:
            yield self._keys(table, columns, None, 0)
            for first, batch in self._numbered(table, [*columns, PLACE, SOURCE]):
                kept = self._kept(table, first, batch)
                yield self._keys(table, columns, kept, first)

        self._append(queries.new_keys(table.id), keys())

    def _keys(
        self, table: Table, columns: Sequence[str], batch: pa.RecordBatch | None, first: int
    ) -> pa.RecordBatch:
        """The keys of some records, equal values in equal form."""
        types = column_types(table)
        count = 0 if batch is None else batch.num_rows
        arrays = [
            pa.array([], arrow_type(types[name]))
            if batch is None
            else _plain(batch.column(name), types[name])
            for name in columns
        ]
        places = pa.array([], pa.int64()) if batch is None else batch.column(PLACE)
        sources = pa.array([], pa.int32()) if batch is None else batch.column(SOURCE)
        names = [*(_key_column(table, name) for name in columns), queries.PLACE, queries.SOURCE]
        return pa.RecordBatch.from_arrays(
            [*arrays, places, sources, _counted(first, count)], [*names, queries.POSITION]
        )

    def _needed(self) -> dict[str, dict[str, None]]:
        """The committed columns that the rules look at, by table."""
        needed: dict[str, dict[str, None]] = {}

        def need(key: str, *columns: str) -> None:
            needed.setdefault(key, {}).update(dict.fromkeys(("id", *columns)))

        for key, table in self._loaded.items():
            entity = entity_of(self._catalog, table)
            need(key, *((ADDRESS,) if self._mode == "merge" else ()))
            if self._mode != "overwrite":
                need(key, *_flat(entity.uniques))
            if isinstance(entity, EdgeType) and not entity.cardinality.is_default:
                need(key, "src")
        for key, end, node in self._ends():
            if key in self._loaded and not self._is_replaced(node):
                need(node)
            elif key not in self._loaded and self._is_replaced(node):
                need(key, end)
        return needed

    def _bring_old(self, table: Table, columns: Sequence[str]) -> None:
        types = column_types(table)
        names = [_key_column(table, name) for name in columns]

        def keys() -> Iterator[pa.RecordBatch]:
            wanted = [pa.uint64() if name == ADDRESS else arrow_type(types[name]) for name in columns]
            yield pa.RecordBatch.from_arrays([pa.array([], item) for item in wanted], names)
            for part in self._overlay().committed_parts(table.key, columns):
                arrays = [
                    part[name] if name == ADDRESS else plain(part[name], types[name]) for name in columns
                ]
                yield from pa.table(arrays, names).to_batches()

        self._append(queries.old_keys(table.id), keys())

    def _overlay(self) -> Overlay:
        return Overlay(self._transaction, Bindings())

    # --- rules -------------------------------------------------------------------------------------------

    def findings(self) -> Iterator[Findings]:
        """What each stage finds, in order and one at a time."""
        yield Findings.merge(self._uniques())
        yield Findings.merge(self._endpoints())
        yield Findings.merge(self._cardinalities())

    def _uniques(self) -> Iterator[Findings]:
        for table in self._loaded.values():
            entity = entity_of(self._catalog, table)
            identity = record_identity(entity)
            if self._mode != "merge" and identity not in entity.uniques:
                yield self._repeated(table, identity, kept=False)
            if self._mode == "append":
                yield self._found(queries.taken_ids(table.id), _say_taken(table))
            for columns in entity.uniques:
                yield self._repeated(table, columns, kept=self._mode != "overwrite")

    def _repeated(self, table: Table, columns: tuple[str, ...], *, kept: bool) -> Findings:
        names = tuple(_key_column(table, name) for name in columns)
        query = queries.repeated_values(table.id, names, kept=kept)
        return self._found(query, _say_repeated(table, columns))

    def _endpoints(self) -> Iterator[Findings]:
        for key, end, node in self._ends():
            edges, nodes = self._catalog.tables[key], self._catalog.tables[node]
            if key in self._loaded:
                places = [queries.new_keys(nodes.id)] if node in self._loaded else []
                places += [] if self._is_replaced(node) else [queries.old_keys(nodes.id)]
                query = queries.dangling_ends(edges.id, end, tuple(places))
                yield self._found(query, _say_nowhere("endpoint", key, nodes.name, end))
            elif self._is_replaced(node):
                query = queries.orphaned_ends(edges.id, end, nodes.id)
                yield self._found(query, _say_nowhere("orphan", key, nodes.name, end))

    def _cardinalities(self) -> Iterator[Findings]:
        for key, table in self._loaded.items():
            edge = entity_of(self._catalog, table)
            if not isinstance(edge, EdgeType) or edge.cardinality.is_default:
                continue
            node = table_key("node", edge.source)
            replaced = self._catalog.tables[node].id if self._is_replaced(node) else None
            least, most = edge.cardinality.min, edge.cardinality.max
            query = queries.wrong_counts(table.id, self._mode, replaced, least, most)
            yield self._found(query, _say_wrong_count(key, edge))

    def _ends(self) -> Iterator[tuple[str, str, str]]:
        """Every end of every edge type: its table, the column, and the table of the nodes there."""
        for edge in self._catalog.schema.edges:
            for end, node in (("src", edge.source), ("dst", edge.target)):
                yield table_key("edge", edge.name), end, table_key("node", node)

    def _is_replaced(self, key: str) -> bool:
        return self._mode == "overwrite" and key in self._loaded

    def _found(self, query: Select, say: Callable[[pa.Table], list[Violation]]) -> Findings:
        batches = list(self._workspace.stream(query))
        rows = pa.Table.from_batches(batches) if batches else None
        if rows is None or not rows.num_rows:
            return Findings()
        return Findings.merge([Findings(tuple(say(rows)), int(rows[queries.TOTAL][0].as_py()))])

    def places(self, key: str, ids: Sequence[str]) -> Mapping[str, tuple[int, str | None]]:
        """Where the last record of each of these ids is from."""
        found: dict[str, tuple[int, str | None]] = {}
        for batch in self._workspace.stream(queries.origins(self._loaded[key].id, ids)):
            for row in batch.to_pylist():
                found[row["id"]] = (row[queries.PLACE], self._spool.sources[row[queries.SOURCE]])
        return found

    # --- staging -----------------------------------------------------------------------------------------

    def stage(self) -> dict[str, dict[str, int]]:
        """Store everything as detached versions, with indexes of the ids and ends."""
        return {key: self._stage(table) for key, table in self._loaded.items()}

    def _stage(self, table: Table) -> dict[str, int]:
        tables, pin = self._transaction.base.tables, self._transaction.pin(table.key)
        schema = arrow_schema(table, physical=True)
        inserted = self._spool.counts[table.key] - self.superseded[table.key]
        updated, deleted = 0, 0
        if self._mode == "overwrite":
            updated = int(self._numbers(queries.count_rewritten(table.id))[0])
            deleted = pin.rows - updated
            if pin.rows + inserted:
                self._take(table, tables.stage_overwrite(pin, self._stored(table), schema))
        elif inserted:
            doomed = np.empty(0, np.uint64)
            if self._mode == "merge":
                doomed = self._numbers(queries.rewritten_addresses(table.id))
            updated = len(doomed)
            self._take(table, tables.stage_rows(pin, self._stored(table), schema, doomed))
        return {"inserted": inserted - updated, "updated": updated, "deleted": deleted}

    def _take(self, table: Table, staged: StagedTable) -> None:
        tables = self._transaction.base.tables
        self._transaction.write(table.key, staged)
        if staged.inserted:
            for column in _INDEXED[table.kind]:
                pin = self._transaction.pin(table.key)
                self._transaction.write(table.key, tables.stage_index(pin, table.physical(column), "BTREE"))

    def _stored(self, table: Table) -> Iterator[pa.RecordBatch]:
        for first, batch in self._numbered(table, None):
            kept = self._kept(table, first, batch)
            if kept.num_rows:
                yield stored(table, kept)

    # --- parts -------------------------------------------------------------------------------------------

    def _append(self, name: str, batches: Iterator[pa.RecordBatch]) -> None:
        """Add keys to a table. The database holds on to what it is given until the call that gave it returns."""
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(item.num_rows for item in held) >= _APPENDED_ROWS:
                self._workspace.append(name, held)
                held = []
        if held:
            self._workspace.append(name, held)

    def _numbered(self, table: Table, columns: Sequence[str] | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batches of the spool with the position of the first record of each."""
        first = 0
        for batch in self._spool.batches(table.key, columns):
            yield first, batch
            first += batch.num_rows

    def _kept(self, table: Table, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        gone = self._gone[table.key]
        low, high = np.searchsorted(gone, (first, first + batch.num_rows))
        if low == high:
            return batch
        mask = np.ones(batch.num_rows, bool)
        mask[gone[low:high] - first] = False
        return batch.filter(pa.array(mask))

    def _numbers(self, query: Select) -> np.ndarray[Any, Any]:
        """The one column of a query."""
        parts = [batch.column(0).to_numpy(zero_copy_only=False) for batch in self._workspace.stream(query)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)


# --- what is said -------------------------------------------------------------------------------------------


def _say_taken(table: Table) -> Callable[[pa.Table], list[Violation]]:
    return lambda rows: [already_there(table, this) for this in rows["id"].to_pylist()]


def _say_repeated(table: Table, columns: tuple[str, ...]) -> Callable[[pa.Table], list[Violation]]:
    types = column_types(table)

    def say(rows: pa.Table) -> list[Violation]:
        members = zip(
            *(
                json_values(rows[f"{queries.VALUE}{number}"].cast(arrow_type(types[name])), types[name])
                for number, name in enumerate(columns)
            ),
            strict=True,
        )
        ids, holders = rows["id"].to_pylist(), rows[queries.HOLDER].to_pylist()
        return [
            held_twice(table, columns, values, other, this)
            for this, other, values in zip(ids, holders, members, strict=True)
        ]

    return say


def _say_nowhere(rule: str, key: str, node: str, end: str) -> Callable[[pa.Table], list[Violation]]:
    def say(rows: pa.Table) -> list[Violation]:
        return [ends_nowhere(rule, key, node, end, row["id"], row[queries.VALUE]) for row in rows.to_pylist()]

    return say


def _say_wrong_count(key: str, edge: EdgeType) -> Callable[[pa.Table], list[Violation]]:
    least, most = edge.cardinality.min, edge.cardinality.max

    def violation(row: Row) -> Violation:
        count = row[queries.VALUE]
        if count < least or most is None:
            return wrong_count(key, edge.name, row["id"], count, "min", least)
        return wrong_count(key, edge.name, row["id"], count, "max", most)

    return lambda rows: [violation(row) for row in rows.to_pylist()]


def _key_column(table: Table, name: str) -> str:
    """The column of keys for a column of the table. Databases do not tell names apart by case, the schema does."""
    if name == ADDRESS:
        return queries.ADDRESS
    for number, item in enumerate(table.columns):
        if item.name == name and item.property_id is not None:
            return f"property{number}"
    return name


def _plain(column: pa.Array, prop_type: Any) -> pa.Array:
    return plain(pa.chunked_array([column]), prop_type).combine_chunks()


def _counted(first: int, count: int) -> pa.Array:
    return pa.array(np.arange(first, first + count, dtype=np.int64))


def _flat(columns: Sequence[tuple[str, ...]]) -> Iterator[str]:
    return (name for item in columns for name in item)

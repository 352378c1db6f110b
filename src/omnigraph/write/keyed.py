"""The rules between rows of a load as queries over its keys, wherever its rows are.

Nothing here holds rows: keys are in a database on disk that goes away with the work. How the keys of the records
get there, and how their rows are stored, is for the loads that build on this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot.expressions import Select

from omnigraph.catalog.catalog import Table, table_key
from omnigraph.catalog.columns import arrow_type
from omnigraph.catalog.json_rows import json_values
from omnigraph.engine.bindings import Bindings
from omnigraph.engine.duckdb import Workspace
from omnigraph.graph.transaction import Transaction
from omnigraph.lang.schema import EdgeType, NodeType
from omnigraph.store.tables import StagedTable
from omnigraph.write import set_queries as queries
from omnigraph.write.delta import Violation
from omnigraph.write.findings import Findings
from omnigraph.write.overlay import ADDRESS, Overlay, logical_schema
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
from omnigraph.write.spool import LoadMode

Row = dict[str, Any]
_APPENDED_ROWS = 262_144
# Key lookups are indexed from the first read on.
INDEXED = {"node": ("id",), "edge": ("id", "src", "dst")}


class KeyedWork:
    """A load whose keys are in a workspace.

    `loaded` are the tables that the input names. Before a rule is asked for, the keys of their records must be in
    `queries.new_keys`, and `superseded` must say how many records of each table do not count.
    """

    def __init__(
        self, transaction: Transaction, mode: LoadMode, workspace: Workspace, loaded: Sequence[str]
    ) -> None:
        self._transaction = transaction
        self._catalog = transaction.base.catalog
        self._mode = mode
        self._workspace = workspace
        self._loaded = {key: self._catalog.tables[key] for key in loaded}
        self._sources: Sequence[str | None] = ()
        self.superseded: dict[str, int] = dict.fromkeys(loaded, 0)

    # --- committed keys ----------------------------------------------------------------------------------

    def _bring_committed(self) -> None:
        """Have the committed keys that the rules look at in the workspace."""
        for key, columns in self._needed().items():
            self._bring_old(self._catalog.tables[key], list(columns))

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
                found[row["id"]] = (row[queries.PLACE], self._sources[row[queries.SOURCE]])
        return found

    # --- staging -----------------------------------------------------------------------------------------

    def _take(self, table: Table, staged: StagedTable) -> None:
        tables = self._transaction.base.tables
        self._transaction.write(table.key, staged)
        if staged.inserted:
            for column in INDEXED[table.kind]:
                pin = self._transaction.pin(table.key)
                self._transaction.write(table.key, tables.stage_index(pin, table.physical(column), "BTREE"))

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

    def _numbers(self, query: Select) -> np.ndarray[Any, Any]:
        """The one column of a query."""
        parts = [batch.column(0).to_numpy(zero_copy_only=False) for batch in self._workspace.stream(query)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)


def key_columns(table: Table, entity: NodeType | EdgeType) -> list[str]:
    """The columns of a table that rules between rows look at."""
    structural = [item.name for item in table.columns if item.property_id is None]
    return list(dict.fromkeys((*structural, *record_identity(entity), *_flat(entity.uniques))))


def key_rows(
    table: Table, columns: Sequence[str], rows: pa.RecordBatch, origin: Sequence[pa.Array]
) -> pa.RecordBatch:
    """The keys of some records, equal values in equal form, with their place, source and position."""
    types = column_types(table)
    arrays = [_plain(rows.column(name), types[name]) for name in columns]
    names = [*(_key_column(table, name) for name in columns), queries.PLACE, queries.SOURCE, queries.POSITION]
    return pa.RecordBatch.from_arrays([*arrays, *origin], names)


def no_keys(table: Table, columns: Sequence[str]) -> pa.RecordBatch:
    """What makes a table of keys that has no records."""
    rows = logical_schema(table).empty_table().select(list(columns))
    nothing = pa.RecordBatch.from_arrays([column.combine_chunks() for column in rows.columns], list(columns))
    origin = [pa.array([], pa.int64()), pa.array([], pa.int32()), pa.array([], pa.int64())]
    return key_rows(table, columns, nothing, origin)


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


def _flat(columns: Sequence[tuple[str, ...]]) -> Iterator[str]:
    return (name for item in columns for name in item)

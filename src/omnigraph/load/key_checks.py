"""The rules between rows of a load as queries over its keys, wherever its rows are.

Nothing here holds rows: keys are in tables that go away with the work, on a disk of this machine or with others.
How the keys of the records get there, and how their rows are stored, is for the loads that build on this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from sqlglot.expressions import Query, Select

from omnigraph.catalog.catalog import Catalog, Table, table_key
from omnigraph.catalog.columns import INDEXED_COLUMNS, arrow_type, logical_schema
from omnigraph.catalog.row_json import json_values
from omnigraph.graph.transaction import Transaction
from omnigraph.lang.schema import EdgeType, NodeType
from omnigraph.rules import set_queries as queries
from omnigraph.rules.load_mode import LoadMode
from omnigraph.rules.set_rules import (
    cardinality_violation,
    column_types,
    comparable,
    duplicate_violation,
    entity_of,
    existing_id_violation,
    missing_node_violation,
    record_identity,
)
from omnigraph.rules.violations import Violation, Violations
from omnigraph.store.tables.row_addresses import ROW_ADDRESS
from omnigraph.store.tables.tables import StagedTable

Row = dict[str, Any]
_APPENDED_ROWS = 262_144


class KeyTables(Protocol):
    """Tables of keys, and queries over them, such as those of `engine.duckdb.Workspace`."""

    def append(self, name: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Add rows to a table. The first batch gives it its columns, also when it has no rows."""
        ...

    def derive(self, name: str, expression: Query) -> None:
        """Keep the rows of a query as a table."""
        ...

    def stream(self, expression: Select) -> Iterator[pa.RecordBatch]:
        """The rows of a query, a batch at a time."""
        ...


class KeyedWork:
    """A load whose keys are in tables of their own.

    `loaded` are the tables that the input names, `made` those of them whose ids were all made for their records and
    meet no other. Before a rule is asked for, the keys of their records must be in `queries.new_keys`, and
    `superseded` must say how many records of each table do not count. `seconds` are parts of staging that count for
    themselves.
    """

    def __init__(
        self,
        transaction: Transaction,
        mode: LoadMode,
        keys: KeyTables,
        loaded: Sequence[str],
        made: Collection[str] = (),
    ) -> None:
        self._transaction = transaction
        self._catalog = transaction.base.catalog
        self._mode = mode
        self._keys = keys
        self._loaded = {key: self._catalog.tables[key] for key in loaded}
        self._made = frozenset(made)
        self.seconds: dict[str, float] = {}
        self._sources: Sequence[str | None] = ()
        self.superseded: dict[str, int] = dict.fromkeys(loaded, 0)

    # --- committed keys ----------------------------------------------------------------------------------

    def _bring_committed(self) -> None:
        """Have the committed keys that the rules look at in tables, and what they are from in the read-set."""
        for key, columns in looked_at(self._catalog, self._mode, self._loaded, self._made).items():
            self._transaction.read(key)
            self._bring_old(self._catalog.tables[key], columns)

    def _bring_old(self, table: Table, columns: Sequence[str]) -> None:
        def keys() -> Iterator[pa.RecordBatch]:
            yield no_committed(table, columns)
            for batch in self._transaction.base.scan_batches(table.key, committed_columns(table, columns)):
                yield committed_rows(table, columns, batch)

        self._append(queries.committed_keys(table.id), keys())

    # --- rules -------------------------------------------------------------------------------------------

    def violations(self) -> Iterator[Violations]:
        """What each stage finds, in order and one at a time."""
        yield Violations.merge(self._uniques())
        yield Violations.merge(self._endpoints())
        yield Violations.merge(self._cardinalities())

    def _uniques(self) -> Iterator[Violations]:
        for table in self._loaded.values():
            entity = entity_of(self._catalog, table)
            identity = record_identity(entity)
            made = table.key in self._made
            if (
                self._mode != "merge"
                and identity not in entity.uniques
                and not (made and identity == ("id",))
            ):
                yield self._repeated(table, identity, kept=False)
            if self._mode == "append" and not made:
                yield self._found(queries.existing_ids(table.id), _say_taken(table))
            for columns in entity.uniques:
                yield self._repeated(table, columns, kept=self._mode != "overwrite")

    def _repeated(self, table: Table, columns: tuple[str, ...], *, kept: bool) -> Violations:
        names = tuple(_key_column(table, name) for name in columns)
        query = queries.duplicate_values(table.id, names, kept=kept)
        return self._found(query, _say_repeated(table, columns))

    def _endpoints(self) -> Iterator[Violations]:
        for key, end, node in _ends(self._catalog):
            edges, nodes = self._catalog.tables[key], self._catalog.tables[node]
            if key in self._loaded:
                places = [queries.new_keys(nodes.id)] if node in self._loaded else []
                places += [] if self._is_replaced(node) else [queries.committed_keys(nodes.id)]
                query = queries.missing_endpoints(edges.id, end, tuple(places))
                yield self._found(query, _say_nowhere("endpoint", key, nodes.name, end))
            elif self._is_replaced(node):
                query = queries.orphaned_endpoints(edges.id, end, nodes.id)
                yield self._found(query, _say_nowhere("orphan", key, nodes.name, end))

    def _cardinalities(self) -> Iterator[Violations]:
        for key, table in self._loaded.items():
            edge = entity_of(self._catalog, table)
            if not isinstance(edge, EdgeType) or edge.cardinality.is_default:
                continue
            node = table_key("node", edge.source)
            replaced = self._catalog.tables[node].id if self._is_replaced(node) else None
            least, most = edge.cardinality.min, edge.cardinality.max
            query = queries.cardinality_violations(table.id, self._mode, replaced, least, most)
            yield self._found(query, _say_wrong_count(key, edge))

    def _is_replaced(self, key: str) -> bool:
        return self._mode == "overwrite" and key in self._loaded

    def _found(self, query: Select, say: Callable[[pa.Table], list[Violation]]) -> Violations:
        total = int(self._numbers(queries.count_query(query))[0])
        if not total:
            return Violations()
        rows = pa.Table.from_batches(self._keys.stream(query))
        return Violations.merge([Violations(tuple(say(rows)), total)])

    def places(self, key: str, ids: Sequence[str]) -> Mapping[str, tuple[int, str | None]]:
        """Where the last record of each of these ids is from."""
        found: dict[str, tuple[int, str | None]] = {}
        for batch in self._keys.stream(queries.origins(self._loaded[key].id, ids)):
            for row in batch.to_pylist():
                found[row["id"]] = (row[queries.PLACE], self._sources[row[queries.SOURCE]])
        return found

    # --- staging -----------------------------------------------------------------------------------------

    def _affected(self, table: Table, given: int) -> tuple[dict[str, int], np.ndarray[Any, Any]]:
        """What so many records that count do to a table, and the addresses of the rows that they replace."""
        rows = self._transaction.pin(table.key).rows
        updated, deleted = 0, 0
        replaced: np.ndarray[Any, Any] = np.empty(0, np.uint64)
        if self._mode == "overwrite":
            if table.key not in self._made:
                updated = int(self._numbers(queries.count_replaced(table.id))[0])
            deleted = rows - updated
        elif self._mode == "merge" and given and table.key not in self._made:
            replaced = self._numbers(queries.replaced_addresses(table.id)).astype(np.uint64)
            updated = len(replaced)
        return {"inserted": given - updated, "updated": updated, "deleted": deleted}, replaced

    def _take(self, table: Table, staged: StagedTable) -> None:
        tables = self._transaction.base.tables
        self._transaction.write(table.key, staged)
        if staged.inserted:
            for column in INDEXED_COLUMNS[table.kind]:
                pin = self._transaction.pin(table.key)
                self._transaction.write(table.key, tables.stage_index(pin, table.physical(column), "BTREE"))

    # --- parts -------------------------------------------------------------------------------------------

    def _append(self, name: str, batches: Iterator[pa.RecordBatch]) -> None:
        """Add keys to a table. The database holds on to what it is given until the call that gave it returns."""
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(item.num_rows for item in held) >= _APPENDED_ROWS:
                self._keys.append(name, held)
                held = []
        if held:
            self._keys.append(name, held)

    def _numbers(self, query: Select) -> np.ndarray[Any, Any]:
        """The one column of a query."""
        parts = [batch.column(0).to_numpy(zero_copy_only=False) for batch in self._keys.stream(query)]
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


# --- committed keys -----------------------------------------------------------------------------------------


def looked_at(
    catalog: Catalog, mode: LoadMode, loaded: Collection[str], made: Collection[str]
) -> dict[str, list[str]]:
    """The committed columns that the rules look at, by table."""
    needed: dict[str, dict[str, None]] = {}
    replaced = loaded if mode == "overwrite" else ()

    def need(key: str, *columns: str) -> None:
        needed.setdefault(key, {}).update(dict.fromkeys(("id", *columns)))

    for key in loaded:
        entity = entity_of(catalog, catalog.tables[key])
        # Made ids meet none that is there, so that nothing is looked up by them.
        if key not in made:
            need(key, *((ROW_ADDRESS,) if mode == "merge" else ()))
        if mode != "overwrite" and entity.uniques:
            need(key, *_flat(entity.uniques))
        if isinstance(entity, EdgeType) and not entity.cardinality.is_default:
            need(key, "src")
    for key, end, node in _ends(catalog):
        if key in loaded and node not in replaced:
            need(node)
        elif key not in loaded and node in replaced:
            need(key, end)
    return {key: list(columns) for key, columns in needed.items()}


def committed_columns(table: Table, columns: Sequence[str]) -> list[str]:
    """What to ask storage for to have these columns."""
    return [name if name == ROW_ADDRESS else table.physical(name) for name in columns]


def committed_rows(table: Table, columns: Sequence[str], rows: pa.RecordBatch) -> pa.RecordBatch:
    """The keys of some committed rows, equal values in equal form."""
    types = column_types(table)
    arrays = [
        # Fragments are numbered by 32 bits, of which not even half are ever used.
        found.cast(pa.int64()) if name == ROW_ADDRESS else _plain(found, types[name])
        for name, found in zip(columns, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, [_key_column(table, name) for name in columns])


def no_committed(table: Table, columns: Sequence[str]) -> pa.RecordBatch:
    """What makes a table of committed keys that has none."""
    types = column_types(table)
    arrays = [
        pa.array([], pa.uint64() if name == ROW_ADDRESS else arrow_type(types[name])) for name in columns
    ]
    return committed_rows(table, columns, pa.RecordBatch.from_arrays(arrays, list(columns)))


def _ends(catalog: Catalog) -> Iterator[tuple[str, str, str]]:
    """Every end of every edge type: its table, the column, and the table of the nodes there."""
    for edge in catalog.schema.edges:
        for end, node in (("src", edge.source), ("dst", edge.target)):
            yield table_key("edge", edge.name), end, table_key("node", node)


# --- what is said -------------------------------------------------------------------------------------------


def _say_taken(table: Table) -> Callable[[pa.Table], list[Violation]]:
    return lambda rows: [existing_id_violation(table, this) for this in rows["id"].to_pylist()]


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
            duplicate_violation(table, columns, values, other, this)
            for this, other, values in zip(ids, holders, members, strict=True)
        ]

    return say


def _say_nowhere(rule: str, key: str, node: str, end: str) -> Callable[[pa.Table], list[Violation]]:
    def say(rows: pa.Table) -> list[Violation]:
        return [
            missing_node_violation(rule, key, node, end, row["id"], row[queries.VALUE])
            for row in rows.to_pylist()
        ]

    return say


def _say_wrong_count(key: str, edge: EdgeType) -> Callable[[pa.Table], list[Violation]]:
    least, most = edge.cardinality.min, edge.cardinality.max

    def violation(row: Row) -> Violation:
        count = row[queries.VALUE]
        if count < least or most is None:
            return cardinality_violation(key, edge.name, row["id"], count, "min", least)
        return cardinality_violation(key, edge.name, row["id"], count, "max", most)

    return lambda rows: [violation(row) for row in rows.to_pylist()]


def _key_column(table: Table, name: str) -> str:
    """The column of keys for a column of the table. Databases do not tell names apart by case, the schema does."""
    if name == ROW_ADDRESS:
        return queries.ADDRESS
    for number, item in enumerate(table.columns):
        if item.name == name and item.property_id is not None:
            return f"property{number}"
    return name


def _plain(column: pa.Array, prop_type: Any) -> pa.Array:
    return comparable(pa.chunked_array([column]), prop_type).combine_chunks()


def _flat(columns: Sequence[tuple[str, ...]]) -> Iterator[str]:
    return (name for item in columns for name in item)

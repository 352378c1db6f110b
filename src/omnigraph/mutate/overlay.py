"""The staging overlay: committed rows minus what is shadowed plus what is pending, in statement order.

An operation reads through it and writes into it, so every statement sees the effect of those before it. Nothing
is stored until the whole operation has been validated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.columns import ENDPOINTS, arrow_schema, logical_schema
from omnigraph.engine.arrow_expressions import matches
from omnigraph.engine.parameters import Bindings
from omnigraph.engine.pushdown import push_down
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.transaction import Transaction
from omnigraph.lang import ir
from omnigraph.lang.types import PropType
from omnigraph.rules.delta import TableDelta
from omnigraph.sources.arrow_values import ir_values
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.tables import Tables

# Above this many values one pass over the column is cheaper than asking for them.
_LOOKUPS = 4_000
# Up to here it pays to ask for one id after the other.
_ASKED_ONE_BY_ONE = 256
# A pass looks at so many rows at a time: each look hashes all the values, and what it holds it holds in memory.
_PASS_ROWS = 262_144
# The column of Lance that tells where a row is.
ADDRESS = "_rowaddr"


@dataclass
class Staged:
    """What an operation has done to one table so far."""

    table: Table
    # Rows as they were put, the later ones last.
    parts: list[pa.Table]
    shadowed: dict[str, None] = field(default_factory=dict)
    deleted: dict[str, None] = field(default_factory=dict)
    vacated: dict[str, None] = field(default_factory=dict)
    put: set[str] = field(default_factory=set)
    # Ids that were made for this operation: no committed row has them.
    fresh: set[str] = field(default_factory=set)

    @property
    def rows(self) -> pa.Table:
        """Its pending rows; of two with one id the later one counts.

        Parts become one table when somebody looks, so that each row of many statements is moved a few times and not
        with every row after it.
        """
        if len(self.parts) > 1:
            self.parts = [last_of_each(pa.concat_tables(self.parts).combine_chunks())]
        return self.parts[0]


@dataclass(frozen=True)
class TableRows:
    """Rows of one table as the evaluator sees them."""

    rows: pa.Table

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return int(self.rows.num_rows)

    def column(self, ref: ir.PropertyRef | ir.ColumnRef | ir.EntityRef) -> pa.ChunkedArray:
        """The column that a reference names."""
        return self.rows[column_name(ref)]


def column_name(ref: ir.PropertyRef | ir.ColumnRef | ir.EntityRef) -> str:
    """The logical column of a reference."""
    match ref:
        case ir.ColumnRef():
            return ENDPOINTS.get(ref.name, ref.name)
        case ir.PropertyRef():
            return ref.property
        case ir.EntityRef():
            return "id"


class IdLookup(Protocol):
    """Somebody who may know where the rows with some ids are without asking storage."""

    def addresses(self, snapshot: Snapshot, key: str, ids: Sequence[str]) -> dict[str, int] | None:
        """The addresses of those of the rows that are there, by id; None when that is not known."""
        ...

    def learn(self, tables: Tables, pin: TablePin, ids: pa.Array) -> None:
        """Hear of a version whose new rows have these ids, in their order."""
        ...


class Overlay:
    """The state that one operation sees and makes."""

    def __init__(self, transaction: Transaction, bindings: Bindings, lookup: IdLookup | None = None) -> None:
        self.transaction = transaction
        self._lookup = lookup
        self.catalog: Catalog = transaction.base.catalog
        self.bindings = bindings
        self._staged: dict[str, Staged] = {}

    # --- statements --------------------------------------------------------------------------------------

    def select(self, key: str, predicate: ir.Predicate) -> pa.Table:
        """The rows of a table that match, as the operation sees the table now."""
        staged = self._of(key)
        table = staged.table
        pushed = push_down(predicate, lambda ref: _physical(table, ref), self.bindings)
        committed = self._committed(key, pushed.sql)
        visible = self._without(committed, staged.shadowed)
        return pa.concat_tables([self._matching(visible, predicate), self._matching(staged.rows, predicate)])

    def put(self, key: str, rows: pa.Table, *, fresh: bool = False) -> None:
        """Insert rows, replacing those of the same ids; of two rows with one id the later one counts.

        `fresh` says that the ids were made just now, so that nothing can be there to be replaced.
        """
        staged = self._of(key)
        ids = rows["id"].to_pylist()
        if fresh:
            staged.fresh.update(ids)
        staged.parts.append(rows)
        staged.put.update(ids)
        for id_ in ids:
            staged.shadowed[id_] = None
            staged.deleted.pop(id_, None)

    def remove(self, key: str, rows: pa.Table) -> None:
        """Delete rows that `select` gave."""
        staged = self._of(key)
        ids = dict.fromkeys(rows["id"].to_pylist())
        staged.parts = [self._without(staged.rows, ids)]
        staged.shadowed.update(ids)
        staged.deleted.update(ids)
        if "src" in rows.column_names:
            # An edge that this operation made was never there for its source to lose.
            ends = zip(rows["id"].to_pylist(), rows["src"].to_pylist(), strict=True)
            staged.vacated.update(dict.fromkeys(source for id_, source in ends if id_ not in staged.fresh))

    def incident(self, edge: str, ends: Sequence[str], ids: pa.Array) -> pa.Table:
        """The edges of a type that have any of these nodes at one of the ends, as the operation sees them now."""
        staged = self._of(edge)
        found = []
        for end in ends:
            found.append(self._without(self.find(edge, end, ids, None), staged.shadowed))
            found.append(staged.rows.filter(pc.is_in(staged.rows[end], ids)))
        return last_of_each(pa.concat_tables(found))

    # --- committed rows ----------------------------------------------------------------------------------

    def find(self, key: str, column: str, values: pa.Array, columns: list[str] | None) -> pa.Table:
        """Committed rows whose column has one of the values; the table joins the read-set.

        `ADDRESS` may be among the columns that are wanted.
        """
        table = self.transaction.base.table(key)
        wanted = [item.name for item in table.columns] if columns is None else columns
        looked_at = list(dict.fromkeys([*wanted, column]))
        self.transaction.read(key)
        if len(values) == 0:
            return _schema(table, wanted).empty_table()
        if column == "id" and set(wanted) <= {"id", ADDRESS}:
            known = self._addresses(key, values.to_pylist())
            if known is not None:
                columns_found = {"id": list(known), ADDRESS: list(known.values())}
                return pa.table(
                    [pa.array(columns_found[name], _schema(table, [name]).field(0).type) for name in wanted],
                    schema=_schema(table, wanted),
                )
        if len(values) > _LOOKUPS or _has_nan(values):
            parts = self.committed_parts(key, looked_at)
            found = pa.concat_tables(
                [part.filter(_among(part[column], values)) for part in parts]
                or [_schema(table, looked_at).empty_table()]
            )
            return found.select(wanted)
        operand = ir.ColumnRef(column, next(item.type for item in table.columns if item.name == column))
        constant = ir.Const(ir_values(values), PropType(operand.type.scalar, is_list=True))
        pushed = push_down(ir.InSet(operand, constant), lambda ref: _physical(table, ref), self.bindings)
        found = self._committed(key, pushed.sql, looked_at)
        return found.filter(pc.is_in(found[column], values)).select(wanted)

    def find_tuples(self, key: str, columns: list[str], tuples: pa.Table, wanted: list[str]) -> pa.Table:
        """Committed rows that may agree with one of the tuples."""
        values = pc.drop_null(pc.unique(tuples[columns[0]].combine_chunks()))
        return self.find(key, columns[0], values, list(dict.fromkeys([*wanted, *columns])))

    def committed_parts(self, key: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """All committed rows, some at a time; the table joins the read-set. `ADDRESS` may be among the columns."""
        table = self.transaction.base.table(key)
        self.transaction.read(key)
        physical = [name if name == ADDRESS else table.physical(name) for name in columns]
        schema = _schema(table, columns)
        held: list[pa.RecordBatch] = []
        for batch in self.transaction.base.scan_batches(key, physical):
            held.append(batch)
            if sum(item.num_rows for item in held) >= _PASS_ROWS:
                yield pa.Table.from_batches(held).rename_columns(list(columns)).cast(schema)
                held = []
        if held:
            yield pa.Table.from_batches(held).rename_columns(list(columns)).cast(schema)

    def _committed(self, key: str, where: str | None, columns: list[str] | None = None) -> pa.Table:
        table = self.transaction.base.table(key)
        chosen = [item.name for item in table.columns] if columns is None else columns
        self.transaction.read(key)
        physical = [name if name == ADDRESS else table.physical(name) for name in chosen]
        found = self.transaction.base.scan(key, physical, where)
        return found.rename_columns(chosen).cast(_schema(table, chosen))

    # --- the end of the operation ------------------------------------------------------------------------

    def deltas(self) -> dict[str, TableDelta]:
        """What the operation made of each table it touched."""
        return {
            key: _delta(staged, self._left(key, staged))
            for key, staged in self._staged.items()
            if staged.shadowed
        }

    def _left(self, key: str, staged: Staged) -> Iterable[str]:
        """The sources that lost an edge: those of removed edges, and those that a rewritten edge had before."""
        edge = self.catalog.schema.edge(staged.table.name) if staged.table.kind == "edge" else None
        if edge is None or not edge.cardinality.min:
            # Nobody asks: a source that lost an edge can only have too few.
            return staged.vacated
        put = pa.array(list(staged.put - staged.fresh), pa.string())
        return dict.fromkeys([*staged.vacated, *self.find(key, "id", put, ["src"])["src"].to_pylist()])

    def stage(self) -> dict[str, dict[str, int]]:
        """Store everything as detached versions; per type what was inserted, updated and deleted."""
        affected = {}
        for key, staged in self._staged.items():
            if not staged.shadowed:
                continue
            rows = staged.rows.rename_columns([item.physical for item in staged.table.columns])
            insert = rows.cast(arrow_schema(staged.table, physical=True))
            ids = [id_ for id_ in staged.shadowed if id_ not in staged.fresh]
            known = self._addresses(key, ids)
            if known is None:
                done = self.transaction.stage(key, delete_ids=ids, insert=insert)
            else:
                done = self.transaction.stage(key, delete_addresses=list(known.values()), insert=insert)
            if self._lookup is not None and insert.num_rows:
                new = insert["id"].combine_chunks()
                self._lookup.learn(self.transaction.base.tables, self.transaction.pin(key), new)
            deleted = self._count_deleted(key, staged)
            updated = done.deleted - deleted
            affected[key] = {"inserted": done.inserted - updated, "updated": updated, "deleted": deleted}
        return affected

    def _count_deleted(self, key: str, staged: Staged) -> int:
        """How many committed rows went without a successor.

        A statement that deletes has seen the row. Only where the operation itself had put a row of that id is it
        not known whether a committed one lay beneath.
        """
        seen = [id_ for id_ in staged.deleted if id_ not in staged.put]
        unsure = [id_ for id_ in staged.deleted if id_ in staged.put and id_ not in staged.fresh]
        beneath = self.find(key, "id", pa.array(unsure, pa.string()), ["id"]).num_rows if unsure else 0
        return len(seen) + beneath

    def _addresses(self, key: str, ids: Sequence[str | None]) -> dict[str, int] | None:
        """Where the committed rows with these ids are, when somebody knows."""
        wanted = [id_ for id_ in ids if id_ is not None]
        if not wanted:
            return {}
        if self._lookup is None or len(wanted) > _ASKED_ONE_BY_ONE:
            return None
        if self.transaction.pin(key).version != self.transaction.base.pin(key).version:
            return None
        return self._lookup.addresses(self.transaction.base, key, wanted)

    # --- parts -------------------------------------------------------------------------------------------

    def _of(self, key: str) -> Staged:
        found = self._staged.get(key)
        if found is None:
            table = self.transaction.base.table(key)
            found = self._staged[key] = Staged(table, [logical_schema(table).empty_table()])
        return found

    def _matching(self, rows: pa.Table, predicate: ir.Predicate) -> pa.Table:
        return rows.filter(matches(predicate, TableRows(rows), self.bindings))

    @staticmethod
    def _without(rows: pa.Table, ids: Iterable[str]) -> pa.Table:
        gone = pa.array(list(ids), pa.string())
        if not len(gone) or not rows.num_rows:
            return rows
        return rows.filter(pc.invert(pc.is_in(rows["id"], gone)))


def _delta(staged: Staged, left: Iterable[str]) -> TableDelta:
    vacated = pa.array(list(left), pa.string()) if staged.table.kind == "edge" else None
    return TableDelta(
        staged.table,
        staged.rows,
        pa.array(list(staged.shadowed), pa.string()),
        pa.array(list(staged.deleted), pa.string()),
        vacated,
    )


def _schema(table: Table, columns: Sequence[str]) -> pa.Schema:
    known = logical_schema(table)
    return pa.schema(
        [pa.field(ADDRESS, pa.uint64()) if name == ADDRESS else known.field(name) for name in columns]
    )


def _has_nan(values: pa.Array) -> bool:
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())


def _among(column: pa.ChunkedArray, values: pa.Array) -> pa.ChunkedArray:
    """Which of a column's values are among some. Here NaN is a value like others, which no predicate selects."""
    found = pc.is_in(column, values)
    return pc.or_kleene(found, pc.is_nan(column)) if _has_nan(values) else found


def _physical(table: Table, ref: ir.PropertyRef | ir.ColumnRef) -> str:
    return table.physical(column_name(ref))


def last_of_each(rows: pa.Table) -> pa.Table:
    """The rows without those that a later row of the same id replaces."""
    ids = rows["id"].to_pylist()
    last = dict(zip(ids, range(len(ids)), strict=True))
    return rows if len(last) == len(ids) else rows.take(sorted(last.values()))

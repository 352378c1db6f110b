"""The staging overlay: committed rows minus what is shadowed plus what is pending, in statement order.

An operation reads through it and writes into it, so every statement sees the effect of those before it. Nothing
is stored until the whole operation has been validated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.columns import arrow_schema
from omnigraph.engine.arrow_eval import matches
from omnigraph.engine.bindings import Bindings
from omnigraph.engine.pushdown import push_down
from omnigraph.graph.transaction import Transaction
from omnigraph.lang import ir
from omnigraph.lang.types import PropType
from omnigraph.write.delta import TableDelta
from omnigraph.write.values import ir_values

# The endpoints of an edge, as a mutation calls them and as they are stored.
ENDPOINTS = {"from": "src", "to": "dst"}
# Above this many values one pass over the column is cheaper than asking for them.
_LOOKUPS = 4_000


@dataclass
class Staged:
    """What an operation has done to one table so far."""

    table: Table
    rows: pa.Table
    shadowed: dict[str, None] = field(default_factory=dict)
    deleted: dict[str, None] = field(default_factory=dict)
    vacated: dict[str, None] = field(default_factory=dict)
    put: set[str] = field(default_factory=set)


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


class Overlay:
    """The state that one operation sees and makes."""

    def __init__(self, transaction: Transaction, bindings: Bindings) -> None:
        self.transaction = transaction
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

    def put(self, key: str, rows: pa.Table) -> None:
        """Insert rows, replacing those of the same ids; of two rows with one id the later one counts."""
        staged = self._of(key)
        ids = rows["id"].to_pylist()
        staged.rows = pa.concat_tables([self._without(staged.rows, dict.fromkeys(ids)), _last_of_each(rows)])
        staged.put.update(ids)
        for id_ in ids:
            staged.shadowed[id_] = None
            staged.deleted.pop(id_, None)

    def remove(self, key: str, rows: pa.Table) -> None:
        """Delete rows that `select` gave."""
        staged = self._of(key)
        ids = dict.fromkeys(rows["id"].to_pylist())
        staged.rows = self._without(staged.rows, ids)
        staged.shadowed.update(ids)
        staged.deleted.update(ids)
        if "src" in rows.column_names:
            staged.vacated.update(dict.fromkeys(rows["src"].to_pylist()))

    def incident(self, edge: str, ends: Sequence[str], ids: pa.Array) -> pa.Table:
        """The edges of a type that have any of these nodes at one of the ends, as the operation sees them now."""
        staged = self._of(edge)
        found = []
        for end in ends:
            found.append(self._without(self.find(edge, end, ids, None), staged.shadowed))
            found.append(staged.rows.filter(pc.is_in(staged.rows[end], ids)))
        return _last_of_each(pa.concat_tables(found))

    # --- committed rows ----------------------------------------------------------------------------------

    def find(self, key: str, column: str, values: pa.Array, columns: list[str] | None) -> pa.Table:
        """Committed rows whose column has one of the values; the table joins the read-set."""
        table = self.transaction.base.table(key)
        wanted = [item.name for item in table.columns] if columns is None else columns
        self.transaction.read(key)
        if len(values) == 0:
            return logical_schema(table).empty_table().select(wanted)
        if len(values) > _LOOKUPS:
            found = self._committed(key, None, list(dict.fromkeys([*wanted, column])))
            return found.filter(pc.is_in(found[column], values)).select(wanted)
        operand = ir.ColumnRef(column, next(item.type for item in table.columns if item.name == column))
        constant = ir.Const(ir_values(values), PropType(operand.type.scalar, is_list=True))
        pushed = push_down(ir.InSet(operand, constant), lambda ref: _physical(table, ref), self.bindings)
        found = self._committed(key, pushed.sql, list(dict.fromkeys([*wanted, column])))
        return found.filter(pc.is_in(found[column], values)).select(wanted)

    def find_tuples(self, key: str, columns: list[str], tuples: pa.Table, wanted: list[str]) -> pa.Table:
        """Committed rows that may agree with one of the tuples."""
        values = pc.drop_null(pc.unique(tuples[columns[0]].combine_chunks()))
        return self.find(key, columns[0], values, list(dict.fromkeys([*wanted, *columns])))

    def _committed(self, key: str, where: str | None, columns: list[str] | None = None) -> pa.Table:
        table = self.transaction.base.table(key)
        chosen = [item for item in table.columns if columns is None or item.name in columns]
        self.transaction.read(key)
        found = self.transaction.base.scan(key, [item.physical for item in chosen], where)
        schema = logical_schema(table)
        return found.rename_columns([item.name for item in chosen]).cast(
            pa.schema([schema.field(item.name) for item in chosen])
        )

    # --- the end of the operation ------------------------------------------------------------------------

    def deltas(self) -> dict[str, TableDelta]:
        """What the operation made of each table it touched."""
        return {key: _delta(staged) for key, staged in self._staged.items() if staged.shadowed}

    def stage(self) -> dict[str, dict[str, int]]:
        """Store everything as detached versions; per type what was inserted, updated and deleted."""
        affected = {}
        for key, staged in self._staged.items():
            if not staged.shadowed:
                continue
            rows = staged.rows.rename_columns([item.physical for item in staged.table.columns])
            done = self.transaction.stage(
                key, delete_ids=staged.shadowed, insert=rows.cast(arrow_schema(staged.table, physical=True))
            )
            deleted = self._count_deleted(key, staged)
            updated = done.deleted - deleted
            affected[key] = {"inserted": done.inserted - updated, "updated": updated, "deleted": deleted}
        return affected

    def _count_deleted(self, key: str, staged: Staged) -> int:
        """How many committed rows went without a successor.

        A statement that deletes has seen the row. Only where the operation itself had put a row of that id is it
        not known whether a committed one lay beneath.
        """
        unsure = [id_ for id_ in staged.deleted if id_ in staged.put]
        beneath = self.find(key, "id", pa.array(unsure, pa.string()), ["id"]).num_rows if unsure else 0
        return len(staged.deleted) - len(unsure) + beneath

    # --- parts -------------------------------------------------------------------------------------------

    def _of(self, key: str) -> Staged:
        found = self._staged.get(key)
        if found is None:
            table = self.transaction.base.table(key)
            found = self._staged[key] = Staged(table, logical_schema(table).empty_table())
        return found

    def _matching(self, rows: pa.Table, predicate: ir.Predicate) -> pa.Table:
        return rows.filter(matches(predicate, TableRows(rows), self.bindings))

    @staticmethod
    def _without(rows: pa.Table, ids: Iterable[str]) -> pa.Table:
        gone = pa.array(list(ids), pa.string())
        if not len(gone) or not rows.num_rows:
            return rows
        return rows.filter(pc.invert(pc.is_in(rows["id"], gone)))


def _delta(staged: Staged) -> TableDelta:
    vacated = pa.array(list(staged.vacated), pa.string()) if staged.table.kind == "edge" else None
    return TableDelta(
        staged.table,
        staged.rows,
        pa.array(list(staged.shadowed), pa.string()),
        pa.array(list(staged.deleted), pa.string()),
        vacated,
    )


def logical_schema(table: Table) -> pa.Schema:
    """The schema of rows in the making, by logical column."""
    # Nullable throughout: whether a required value is missing is for validation to say, not for Arrow.
    return pa.schema([item.with_nullable(True) for item in arrow_schema(table)])


def _physical(table: Table, ref: ir.PropertyRef | ir.ColumnRef) -> str:
    return table.physical(column_name(ref))


def _last_of_each(rows: pa.Table) -> pa.Table:
    ids = rows["id"].to_pylist()
    last = dict(zip(ids, range(len(ids)), strict=True))
    return rows if len(last) == len(ids) else rows.take(sorted(last.values()))

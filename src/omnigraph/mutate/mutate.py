"""Mutations: statements in order on one overlay, validated whole, one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from ulid import ULID

from omnigraph.catalog.catalog import Catalog, Table, table_key
from omnigraph.catalog.columns import logical_schema
from omnigraph.catalog.keys import derive_id, node_key
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import InvalidInput
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import OperationClass
from omnigraph.lang import ir
from omnigraph.mutate.overlay import IdLookup, Overlay
from omnigraph.rules.validate import validate
from omnigraph.sources.arrow_values import column_array


@dataclass
class MutationOutcome:
    """What a mutation did: rows per type, and how many nodes and edges its statements counted."""

    affected: dict[str, dict[str, int]] = field(default_factory=dict)
    nodes: int = 0
    edges: int = 0


def prepare_mutation(
    query: ir.MutationQuery, bindings: Bindings, outcome: MutationOutcome, lookup: IdLookup | None = None
) -> Callable[[Transaction], OperationClass | None]:
    """The work of a mutation, to be run on a transaction, again if it must be; fills `outcome` each time.

    Gives None when nothing changed. A statement or constraint that fails raises, and nothing has been staged.
    """

    def prepare(transaction: Transaction) -> OperationClass | None:
        overlay = Overlay(transaction, bindings, lookup)
        outcome.affected, outcome.nodes, outcome.edges = {}, 0, 0
        for statement in query.statements:
            _apply(overlay, statement, outcome)
        deltas = overlay.deltas()
        if not deltas:
            return None
        validate(transaction.base.catalog, deltas, overlay)
        outcome.affected = overlay.stage()
        if not any(count for counts in outcome.affected.values() for count in counts.values()):
            return None
        return operation_class(query)

    return prepare


def operation_class(query: ir.MutationQuery) -> OperationClass:
    """Inserts can be prepared again on a branch that moved; what looked before it wrote cannot."""
    inserts = all(isinstance(item, ir.InsertNode | ir.InsertEdge) for item in query.statements)
    return "insert" if inserts else "strict"


def _apply(overlay: Overlay, statement: ir.Statement, outcome: MutationOutcome) -> None:
    match statement:
        case ir.InsertNode():
            outcome.nodes += _insert_node(overlay, statement)
        case ir.InsertEdge():
            outcome.edges += _insert_edge(overlay, statement)
        case ir.UpdateNode():
            outcome.nodes += _update_node(overlay, statement)
        case ir.DeleteNode():
            nodes, edges = _delete_node(overlay, statement)
            outcome.nodes += nodes
            outcome.edges += edges
        case ir.DeleteEdge():
            key = table_key("edge", statement.type_name)
            doomed = overlay.select(key, statement.where)
            overlay.remove(key, doomed)
            outcome.edges += doomed.num_rows


def _insert_node(overlay: Overlay, statement: ir.InsertNode) -> int:
    key = table_key("node", statement.type_name)
    values = _values(overlay, statement.assigns)
    row = make_row(overlay.catalog, overlay.catalog.tables[key], values)
    overlay.put(key, row, fresh=node_key(overlay.catalog, statement.type_name) is None)
    return 1


def _insert_edge(overlay: Overlay, statement: ir.InsertEdge) -> int:
    key = table_key("edge", statement.type_name)
    values = _values(overlay, statement.assigns)
    values["src"] = _endpoint(overlay, statement.source, "from")
    values["dst"] = _endpoint(overlay, statement.target, "to")
    overlay.put(key, make_row(overlay.catalog, overlay.catalog.tables[key], values), fresh=True)
    return 1


def _endpoint(overlay: Overlay, expr: ir.Expr, name: str) -> ir.Value:
    value = _value(overlay, expr)
    if value is None:
        raise InvalidInput(f"edge endpoint '{name}' cannot be null")
    return value


def _update_node(overlay: Overlay, statement: ir.UpdateNode) -> int:
    key = table_key("node", statement.type_name)
    rows = overlay.select(key, statement.where)
    if rows.num_rows:
        for column in overlay.catalog.tables[key].columns:
            for assign in statement.assigns:
                if assign.property == column.name:
                    array = column_array(column, [_value(overlay, assign.value)])
                    repeated = pa.chunked_array([array.take(pa.array([0] * rows.num_rows, pa.int64()))])
                    rows = rows.set_column(rows.column_names.index(column.name), column.name, repeated)
        overlay.put(key, rows)
    return int(rows.num_rows)


def _delete_node(overlay: Overlay, statement: ir.DeleteNode) -> tuple[int, int]:
    key = table_key("node", statement.type_name)
    doomed = overlay.select(key, statement.where)
    if not doomed.num_rows:
        return 0, 0
    ids = doomed["id"].combine_chunks()
    edges = 0
    for name in statement.cascades:
        edge_key = table_key("edge", name)
        touching = _touching(overlay, edge_key, statement.type_name, ids)
        overlay.remove(edge_key, touching)
        edges += touching.num_rows
    overlay.remove(key, doomed)
    return int(doomed.num_rows), edges


def _touching(overlay: Overlay, edge_key: str, node: str, ids: pa.Array) -> pa.Table:
    edge = overlay.catalog.schema.edge(edge_key.split(":", 1)[1])
    assert edge is not None
    ends = [end for end, type_name in (("src", edge.source), ("dst", edge.target)) if type_name == node]
    return overlay.incident(edge_key, ends, ids)


def _values(overlay: Overlay, assigns: tuple[ir.Assign, ...]) -> dict[str, ir.Value]:
    return {item.property: _value(overlay, item.value) for item in assigns}


def _value(overlay: Overlay, expr: ir.Expr) -> ir.Value:
    assert isinstance(expr, ir.Const | ir.ParamRef | ir.Now), "a mutation assigns values that need no row"
    return overlay.bindings.value(expr)


def make_row(catalog: Catalog, table: Table, values: Mapping[str, ir.Value]) -> pa.Table:
    """One row with its id: derived from the key, or fresh. Properties that are not given are null."""
    complete = dict(values)
    complete["id"] = _new_id(catalog, table, values)
    return pa.table(
        [column_array(column, [complete.get(column.name)]) for column in table.columns],
        schema=logical_schema(table),
    )


def _new_id(catalog: Catalog, table: Table, values: Mapping[str, ir.Value]) -> str:
    key = node_key(catalog, table.name) if table.kind == "node" else None
    return str(ULID()) if key is None else derive_id(key, values)

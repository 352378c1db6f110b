"""Mutations: the statements of a query are applied in order, validated together and committed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from ulid import ULID

from omnigraph.catalog.catalog import Catalog, Table, table_key
from omnigraph.catalog.columns import logical_schema
from omnigraph.catalog.keys import derive_id, table_id_key
from omnigraph.engine.committed_rows import RowAddressCache
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import ErrorLocation, InvalidInput
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import OperationClass, Prepared
from omnigraph.lang import ir
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.types import Scalar
from omnigraph.mutate.overlay import Overlay
from omnigraph.mutate.statement_embeddings import StatementEmbeddings
from omnigraph.rules.blob_ingress import BlobIngress
from omnigraph.rules.validate import validate
from omnigraph.search.embeddings.vector_computation import VectorComputation
from omnigraph.sources.arrow_values import BASE64, column_array


@dataclass(frozen=True, slots=True)
class MutationResult:
    """The effect of a mutation.

    `affected` has the inserted, updated and deleted rows of each type. `nodes` and `edges` are the numbers of
    entities that its statements inserted, updated or deleted, one count for each statement.
    """

    query_name: str
    affected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    nodes: int = 0
    edges: int = 0


def prepare_mutation(
    transaction: Transaction,
    query: ir.MutationQuery,
    bindings: Bindings,
    cache: RowAddressCache | None = None,
    ingress: BlobIngress | None = None,
    vectors: VectorComputation | None = None,
) -> Prepared[MutationResult]:
    """Apply the statements of a mutation in order, validate the result as a whole, and stage it.

    A statement or a constraint that fails raises before anything is staged. `ingress` checks the external URIs
    that the statements assign to Blob properties; by default every URI is refused. `vectors` computes embeddings.
    """
    _check_external_uris(transaction.base.catalog, query, bindings, ingress or BlobIngress())
    embeddings = StatementEmbeddings(transaction.base.catalog, bindings, vectors)
    embeddings.compute(query)
    overlay = Overlay(transaction, bindings, cache)
    counts = [_apply(overlay, embeddings, statement) for statement in query.statements]
    nodes, edges = sum(count.nodes for count in counts), sum(count.edges for count in counts)
    deltas = overlay.deltas()
    if not deltas:
        return Prepared(None, MutationResult(query.name, {}, nodes, edges))
    validate(transaction.base.catalog, deltas, overlay.committed)
    with overlay.comparing() as changes_nothing:
        affected = overlay.stage()
        if changes_nothing():
            return Prepared(None, MutationResult(query.name, {}, nodes, edges))
    changed = any(count for of_type in affected.values() for count in of_type.values())
    return Prepared(
        operation_class(query) if changed else None, MutationResult(query.name, affected, nodes, edges)
    )


def operation_class(query: ir.MutationQuery) -> OperationClass:
    """Return the operation class of a mutation: `insert` when no statement reads rows before it writes."""
    inserts = all(isinstance(item, ir.InsertNode | ir.InsertEdge) for item in query.statements)
    return "insert" if inserts else "strict"


def _check_external_uris(
    catalog: Catalog, query: ir.MutationQuery, bindings: Bindings, ingress: BlobIngress
) -> None:
    """Check the URIs that are assigned. Rows that an update only rewrites keep the values they have."""
    uris = []
    for statement in query.statements:
        if not isinstance(statement, ir.InsertNode | ir.InsertEdge | ir.UpdateNode | ir.UpdateEdge):
            continue
        kind: TypeKind = "edge" if isinstance(statement, ir.InsertEdge | ir.UpdateEdge) else "node"
        columns = {item.name: item for item in catalog.tables[table_key(kind, statement.type_name)].columns}
        for assign in statement.assigns:
            if columns[assign.property].type.scalar is not Scalar.BLOB:
                continue
            value = _constant(bindings, assign.value)
            if isinstance(value, str) and not value.startswith(BASE64):
                _check_uri(ingress, statement.type_name, assign.property, value)
                uris.append(value)
    ingress.probe(uris)


def _check_uri(ingress: BlobIngress, type_name: str, property_: str, uri: str) -> None:
    try:
        ingress.policy.check(uri)
    except InvalidInput as error:
        raise error.located(ErrorLocation(type=type_name, property=property_)) from None


class _Count(NamedTuple):
    nodes: int = 0
    edges: int = 0


def _apply(overlay: Overlay, embeddings: StatementEmbeddings, statement: ir.Statement) -> _Count:
    match statement:
        case ir.InsertNode():
            return _insert_node(overlay, embeddings, statement)
        case ir.InsertEdge():
            return _insert_edge(overlay, statement)
        case ir.UpdateNode():
            key = table_key("node", statement.type_name)
            return _Count(nodes=_update(overlay, embeddings, key, statement))
        case ir.UpdateEdge():
            key = table_key("edge", statement.type_name)
            return _Count(edges=_update(overlay, embeddings, key, statement))
        case ir.DeleteNode():
            return _delete_node(overlay, statement)
        case ir.DeleteEdge():
            return _delete_edge(overlay, statement)


def _insert_node(overlay: Overlay, embeddings: StatementEmbeddings, statement: ir.InsertNode) -> _Count:
    key = table_key("node", statement.type_name)
    values = embeddings.with_vectors(key, _values(overlay, statement.assigns))
    _put_row(overlay, key, values)
    return _Count(nodes=1)


def _insert_edge(overlay: Overlay, statement: ir.InsertEdge) -> _Count:
    key = table_key("edge", statement.type_name)
    values = _values(overlay, statement.assigns)
    values["src"] = _endpoint(overlay, statement.source, "from")
    values["dst"] = _endpoint(overlay, statement.target, "to")
    _put_row(overlay, key, values)
    return _Count(edges=1)


def _put_row(overlay: Overlay, key: str, values: Mapping[str, ir.Value]) -> None:
    table = overlay.catalog.tables[key]
    row = make_row(overlay.catalog, table, values)
    overlay.put(key, row, fresh=table_id_key(overlay.catalog, table) is None)


def _endpoint(overlay: Overlay, expr: ir.Expr, name: str) -> ir.Value:
    value = _value(overlay, expr)
    if value is None:
        raise InvalidInput(f"edge endpoint '{name}' cannot be null")
    return value


def _update(
    overlay: Overlay, embeddings: StatementEmbeddings, key: str, statement: ir.UpdateNode | ir.UpdateEdge
) -> int:
    """Set the properties of matching rows; return the number of rows."""
    rows = overlay.select(key, statement.where)
    if rows.num_rows:
        values = embeddings.with_vectors(key, _values(overlay, statement.assigns))
        updated = rows
        for column in overlay.catalog.tables[key].columns:
            if column.name in values:
                array = column_array(column, [values[column.name]])
                repeated = pa.chunked_array([array.take(pa.array([0] * rows.num_rows, pa.int64()))])
                place = updated.column_names.index(column.name)
                updated = updated.set_column(place, column.name, repeated)
        overlay.update(key, rows, embeddings.with_records(key, values, updated))
    return int(rows.num_rows)


def _delete_node(overlay: Overlay, statement: ir.DeleteNode) -> _Count:
    key = table_key("node", statement.type_name)
    deleted = overlay.select(key, statement.where)
    if not deleted.num_rows:
        return _Count()
    ids = deleted["id"].combine_chunks()
    edges = 0
    for name in statement.cascades:
        edge_key = table_key("edge", name)
        incident = _incident_edges(overlay, edge_key, statement.type_name, ids)
        overlay.remove(edge_key, incident)
        edges += incident.num_rows
    overlay.remove(key, deleted)
    return _Count(deleted.num_rows, edges)


def _delete_edge(overlay: Overlay, statement: ir.DeleteEdge) -> _Count:
    key = table_key("edge", statement.type_name)
    deleted = overlay.select(key, statement.where)
    overlay.remove(key, deleted)
    return _Count(edges=deleted.num_rows)


def _incident_edges(overlay: Overlay, edge_key: str, node: str, ids: pa.Array) -> pa.Table:
    edge = overlay.catalog.schema.edge(edge_key.split(":", 1)[1])
    assert edge is not None
    ends = [end for end, type_name in (("src", edge.source), ("dst", edge.target)) if type_name == node]
    return overlay.incident(edge_key, ends, ids)


def _values(overlay: Overlay, assigns: tuple[ir.Assign, ...]) -> dict[str, ir.Value]:
    return {item.property: _value(overlay, item.value) for item in assigns}


def _value(overlay: Overlay, expr: ir.Expr) -> ir.Value:
    return _constant(overlay.bindings, expr)


def _constant(bindings: Bindings, expr: ir.Expr) -> ir.Value:
    assert isinstance(expr, ir.Const | ir.ParamRef | ir.Now), "a mutation assigns values that need no row"
    return bindings.value(expr)


def make_row(catalog: Catalog, table: Table, values: Mapping[str, ir.Value]) -> pa.Table:
    """Return one row. Its id is derived from the key or generated; properties without a value are null."""
    complete = dict(values)
    complete["id"] = _new_id(catalog, table, values)
    return pa.table(
        [column_array(column, [complete.get(column.name)]) for column in table.columns],
        schema=logical_schema(table),
    )


def _new_id(catalog: Catalog, table: Table, values: Mapping[str, ir.Value]) -> str:
    key = table_id_key(catalog, table)
    return str(ULID()) if key is None else derive_id(key, values)

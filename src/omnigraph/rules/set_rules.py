"""Set rules: the constraints between rows, which are uniqueness, edge endpoints and cardinality.

Each rule takes the changes of an operation and looks up the committed rows that they can conflict with. It reads no
other rows, because every table that it reads joins the read set of the commit. All values are Arrow arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Table, table_key
from omnigraph.catalog.columns import arrow_type
from omnigraph.catalog.row_json import json_values
from omnigraph.errors import NotFound
from omnigraph.lang.schema import EdgeType, NodeType
from omnigraph.lang.types import STRING, PropType
from omnigraph.rules.delta import RowLookup, TableDelta
from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.violations import MAX_REPORTED, Violation, Violations, value_text, violations_at

Deltas = Mapping[str, TableDelta]

# A column with the positions of rows. No property can have this name.
_POSITION = "#position"


# --- @unique ------------------------------------------------------------------------------------------------


def unique_violations(catalog: Catalog, deltas: Deltas, committed: RowLookup) -> Violations:
    """Check that no changed row has the unique tuple of another changed row or of a remaining committed row."""
    return Violations.merge(
        part for delta in deltas.values() for part in unique_violations_of(catalog, delta, committed)
    )


def unique_violations_of(
    catalog: Catalog,
    delta: TableDelta,
    committed: RowLookup,
    limit: int = MAX_REPORTED,
    *,
    stored_first: bool = False,
) -> Iterator[Violations]:
    """Yield the violations of each unique tuple of a table; see `duplicate_tuples` for `stored_first`."""
    for columns in entity_of(catalog, delta.table).uniques:
        rows = complete_tuples(delta.table, columns, delta.rows)
        if not rows.num_rows:
            continue
        stored = committed_tuples(delta.table, columns, rows, committed)
        yield duplicate_tuples(
            delta.table,
            columns,
            rows,
            _rows_without(stored, "id", _replaced_ids(delta)),
            stored if stored_first else None,
            in_input_order=delta.in_input_order,
            limit=limit,
        )


def entity_of(catalog: Catalog, table: Table) -> NodeType | EdgeType:
    """Return the node or edge type that a table stores."""
    schema = catalog.schema
    entity = schema.node(table.name) if table.kind == "node" else schema.edge(table.name)
    if entity is None:
        raise NotFound(f"unknown {table.kind} type '{table.name}'")
    return entity


def complete_tuples(table: Table, columns: tuple[str, ...], rows: pa.Table) -> pa.Table:
    """Return the id and these columns, in comparable form, and the position of the rows without a null in them."""
    types = column_types(table)
    chosen = pa.table(
        {
            name: comparable(_column_or_nulls(rows, name, types[name]), types[name])
            for name in ("id", *columns)
        }
    ).append_column(_POSITION, pa.array(np.arange(rows.num_rows)))
    # A tuple with a null is exempt.
    return chosen.filter(reduce(pc.and_, (chosen[name].is_valid() for name in columns)))


def duplicate_tuples(
    table: Table,
    columns: tuple[str, ...],
    rows: pa.Table,
    held: pa.Table | None = None,
    stored: pa.Table | None = None,
    *,
    in_input_order: bool = False,
    limit: int = MAX_REPORTED,
) -> Violations:
    """Return one violation for each row that has the tuple of a `held` row, or of another row before it.

    Rows are in the order of their ids, or with `in_input_order` in the given order. Rows whose id and tuple are
    those of a `stored` row come before the others: if such a row were left out, the stored one would return and
    take the tuple again. The arguments are results of `complete_tuples`.
    """
    parts = [rows] if held is None else [held, rows]
    everything = pa.concat_tables(parts)
    first_new = everything.num_rows - rows.num_rows
    codes = _group_codes([everything[name] for name in columns])
    # Duplicates are rare, so only the rows that have one are sorted.
    suspects = np.flatnonzero((np.bincount(codes) > 1)[codes])
    if not len(suspects):
        return Violations()
    ids = everything["id"].take(pa.array(suspects)).combine_chunks()
    rank = pa.array(suspects) if in_input_order else ids
    new = (suspects >= first_new).astype(np.int8)
    if stored is not None:
        new += (new == 1) & ~_is_stored(everything.take(pa.array(suspects)), columns, stored)
    ranked = pa.table({"code": codes[suspects], "new": new, "rank": rank})
    order = pc.sort_indices(ranked, sort_keys=[(name, "ascending") for name in ranked.column_names])
    places, ids = suspects[order.to_numpy()], ids.take(order)
    # The first row of each run of equal tuples holds the tuple. Only changed rows are reported.
    runs = np.flatnonzero(np.diff(codes[places], prepend=-1))
    holder = np.repeat(runs, np.diff(runs, append=len(places)))
    offending = np.flatnonzero((np.arange(len(places)) > holder) & (places >= first_new))
    types = column_types(table)

    def describe(chosen: np.ndarray[Any, Any], these: list[str | None]) -> Iterator[Violation]:
        at = pa.array(places[chosen])
        values = zip(*(json_values(everything[item].take(at), types[item]) for item in columns), strict=True)
        others = ids.take(pa.array(holder[chosen])).to_pylist()
        positions = everything[_POSITION].take(at).to_pylist()
        for this, other, members, position in zip(these, others, values, positions, strict=True):
            found = duplicate_violation(table, columns, members, other, this)
            yield replace(found, position=position) if in_input_order else found

    return violations_at(ids, offending, describe, limit)


def _is_stored(rows: pa.Table, columns: tuple[str, ...], stored: pa.Table) -> np.ndarray[Any, Any]:
    """Return whether each row has the id and the tuple of a stored row."""
    both = pa.concat_tables([stored, rows])
    codes = _group_codes([both[name] for name in ("id", *columns)])
    return np.isin(codes[stored.num_rows :], codes[: stored.num_rows])


def duplicate_violation(
    table: Table, columns: tuple[str, ...], members: tuple[Any, ...], other: str | None, this: str | None
) -> Violation:
    """Return the violation of row `this`, whose tuple row `other` has."""
    name = columns[0] if len(columns) == 1 else f"({', '.join(columns)})"
    value = members[0] if len(members) == 1 else list(members)
    held = f"value '{value_text(value)}' held by '{other}' and '{this}'"
    message = f"@unique violation on {table.name}.{name}: {held}"
    details = {"columns": list(columns), "held_by": other}
    return Violation("unique", table.key, message, this, name, value, details)


def edge_key_hint(catalog: Catalog, mode: WriteMode, violation: Violation) -> str | None:
    """Return the hint for a merge of edges without a key, which add edges where a key would replace them."""
    table = catalog.tables[violation.table_key]
    if mode != "merge" or violation.rule != "unique" or table.kind != "edge":
        return None
    edge, types = entity_of(catalog, table), column_types(table)
    if edge.key is not None:
        return None
    columns = violation.details["columns"]
    key = ", ".join(("src", "dst") if any(types[name].nullable for name in columns) else columns)
    return f"edge {edge.name} has no key, so that a merge adds edges; with @key({key}) it replaces them"


def record_identity(entity: NodeType | EdgeType) -> tuple[str, ...]:
    """Return the columns that identify a record: the key, or the id of a type without a key."""
    return ("id",) if entity.key is None else entity.key


def supersedes(mode: WriteMode, entity: NodeType | EdgeType) -> bool:
    """Return whether a later record of a load replaces an earlier one with the same id.

    A merge of a type without a key takes the last record. Two records with one key are a violation.
    """
    return mode == "merge" and record_identity(entity) == ("id",)


def existing_ids(
    table: Table, ids: pa.ChunkedArray, committed: pa.ChunkedArray, limit: int = MAX_REPORTED
) -> Violations:
    """Return one violation for each new row whose id a committed row has."""

    def describe(chosen: np.ndarray[Any, Any], these: list[str | None]) -> Iterator[Violation]:
        for position, this in zip(chosen.tolist(), these, strict=True):
            yield replace(existing_id_violation(table, this), position=position)

    existing = np.flatnonzero(pc.is_in(ids, value_set=committed).to_numpy())
    return violations_at(ids, existing, describe, limit)


def existing_id_violation(table: Table, this: str | None) -> Violation:
    """Return the violation of a new row whose id a committed row has."""
    message = f"{table.kind} type '{table.name}' already has id '{this}'"
    return Violation("key", table.key, message, this, "id", this)


def absent_id_violation(table: Table, this: str | None) -> Violation:
    """Return the violation of a delete of a row that is not stored."""
    message = f"{table.kind} type '{table.name}' has no id '{this}' to delete"
    return Violation("key", table.key, message, this, "id", this)


def committed_tuples(
    table: Table, columns: tuple[str, ...], rows: pa.Table, committed: RowLookup
) -> pa.Table:
    """Return the complete tuples of the committed rows that may have one of the tuples of `rows`."""
    return complete_tuples(table, columns, _holders(table.key, columns, rows, committed))


def _holders(key: str, columns: tuple[str, ...], rows: pa.Table, committed: RowLookup) -> pa.Table:
    """Return the committed rows that may have one of the tuples."""
    wanted = rows.select(list(columns))
    _, first = np.unique(_group_codes([wanted[name] for name in columns]), return_index=True)
    wanted = _with_negative_zeros(wanted.take(pa.array(first)))
    if len(columns) == 1:
        return committed.find(key, columns[0], wanted[columns[0]].combine_chunks(), ["id", *columns])
    return committed.find_tuples(key, list(columns), wanted, ["id", *columns])


def _with_negative_zeros(rows: pa.Table) -> pa.Table:
    """Add a copy with a negative zero of each row with a zero: both are equal, but a lookup may differ."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            zeros = rows.filter(pc.equal(rows[field.name], pa.scalar(0, field.type)))
            negative = pc.negate(zeros[field.name])
            rows = pa.concat_tables([rows, zeros.set_column(position, field, negative)])
    return rows


def _group_codes(columns: list[pa.ChunkedArray]) -> np.ndarray[Any, Any]:
    """Return a small number for each row; rows that are equal in all columns have the same number."""
    codes: np.ndarray[Any, Any] | None = None
    for column in columns:
        encoded = pc.dictionary_encode(column)
        chunks = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded.chunks]
        indices = np.concatenate([np.zeros(0, np.int64), *chunks]).astype(np.int64)
        if codes is not None:
            # Renumbered after each column, so that the product of two numbers of groups cannot overflow.
            _, indices = np.unique(codes * (indices.max(initial=0) + 1) + indices, return_inverse=True)
        codes = indices
    assert codes is not None
    return codes


# --- endpoints ----------------------------------------------------------------------------------------------


def endpoint_violations(catalog: Catalog, deltas: Deltas, committed: RowLookup) -> Violations:
    """Check that changed edges have both nodes, and that no committed edge has lost a node that was deleted."""

    def of_types() -> Iterator[Violations]:
        for node in catalog.schema.nodes:
            yield from missing_endpoints(catalog, node.name, deltas, committed)
            yield from _orphaned_edges(catalog, node.name, deltas, committed)

    return Violations.merge(of_types())


def _ends(edge: EdgeType, node: str) -> list[str]:
    return [name for name, type_name in (("src", edge.source), ("dst", edge.target)) if type_name == node]


def missing_endpoints(
    catalog: Catalog, node: str, deltas: Deltas, committed: RowLookup, limit: int = MAX_REPORTED
) -> Iterator[Violations]:
    """Report changed edges that lack a node of this type at an end."""
    ends = [
        (delta, comparable(delta.rows[name], STRING), name)
        for edge in catalog.schema.edges_of(node)
        if (delta := deltas.get(table_key("edge", edge.name))) is not None and delta.rows.num_rows
        for name in _ends(edge, node)
    ]
    if not ends:
        return
    chunks = [chunk for _, column, _ in ends for chunk in column.chunks]
    named = pc.unique(pa.chunked_array(chunks, pa.string())).drop_null()
    delta = deltas.get(table_key("node", node))
    if delta is not None:
        named = _array_without(named, comparable(delta.rows["id"], STRING))
    looked_up = named if delta is None else _array_without(named, delta.deleted)
    if len(looked_up):
        existing = committed.find(table_key("node", node), "id", looked_up, ["id"])["id"]
        named = _array_without(named, existing)
    if not len(named):
        return
    for edges, column, name in ends:
        positions = np.flatnonzero(pc.is_in(column, value_set=named).to_numpy())
        ids = comparable(edges.rows["id"], STRING)
        found = _endpoint_violations("endpoint", edges.table.key, node, name, ids, column, positions, limit)
        yield found if edges.in_input_order else _without_positions(found)


def _orphaned_edges(
    catalog: Catalog, node: str, deltas: Deltas, committed: RowLookup
) -> Iterator[Violations]:
    """Report committed edges that have a deleted node at an end."""
    delta = deltas.get(table_key("node", node))
    if delta is None or not len(delta.deleted):
        return
    for edge in catalog.schema.edges_of(node):
        key = table_key("edge", edge.name)
        for name in _ends(edge, node):
            edges = committed.find(key, name, delta.deleted, ["id", name])
            edges = edges.filter(pc.is_in(edges[name], value_set=delta.deleted))
            if key in deltas:
                edges = _rows_without(edges, "id", _replaced_ids(deltas[key]))
            positions = np.arange(edges.num_rows)
            yield _endpoint_violations("orphan", key, node, name, edges["id"], edges[name], positions)


def _endpoint_violations(
    rule: str,
    key: str,
    node: str,
    end: str,
    ids: pa.ChunkedArray,
    column: pa.ChunkedArray,
    positions: np.ndarray[Any, Any],
    limit: int = MAX_REPORTED,
) -> Violations:
    def describe(chosen: np.ndarray[Any, Any], these: list[str | None]) -> Iterator[Violation]:
        values = column.take(pa.array(chosen)).to_pylist()
        for position, this, value in zip(chosen.tolist(), these, values, strict=True):
            found = missing_node_violation(rule, key, node, end, this, value)
            yield found if rule == "orphan" else replace(found, position=position)

    return violations_at(ids, positions, describe, limit)


def _without_positions(violations: Violations) -> Violations:
    return Violations(tuple(replace(item, position=None) for item in violations), violations.total)


def missing_node_violation(
    rule: str, key: str, node: str, end: str, this: str | None, value: str
) -> Violation:
    """Return the violation of an edge without a node at an end. `rule` is ``endpoint`` or ``orphan``."""
    return Violation(rule, key, f"{end} '{value}' not found in {node}", this, end, value)


# --- @card --------------------------------------------------------------------------------------------------


def cardinality_violations(catalog: Catalog, deltas: Deltas, committed: RowLookup) -> Violations:
    """Check the number of edges of each source that gained or lost edges, unless the source was deleted."""

    def of_types() -> Iterator[Violations]:
        for key, delta in deltas.items():
            edge = entity_of(catalog, delta.table)
            if isinstance(edge, EdgeType) and not edge.cardinality.is_default:
                nodes = deltas.get(table_key("node", edge.source))
                yield from _cardinality(key, edge, delta, nodes, committed)

    return Violations.merge(of_types())


def _cardinality(
    key: str, edge: EdgeType, delta: TableDelta, nodes: TableDelta | None, committed: RowLookup
) -> Iterator[Violations]:
    sources, counts = count_edges(key, delta, nodes, committed)
    least, most = edge.cardinality.min, edge.cardinality.max
    yield _cardinality_violations(key, edge.name, sources, counts, counts < least, "min", least)
    if most is not None:
        yield _cardinality_violations(key, edge.name, sources, counts, counts > most, "max", most)


def count_edges(
    key: str, delta: TableDelta, nodes: TableDelta | None, committed: RowLookup
) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    """Return the sources that gain or lose edges and are not deleted, and the number of edges of each."""
    pending = comparable(delta.rows["src"], STRING)
    vacated = [] if delta.vacated is None else [delta.vacated.cast(pa.string())]
    sources = pc.unique(pa.chunked_array([*pending.chunks, *vacated], pa.string())).drop_null()
    if nodes is not None:
        sources = _array_without(sources, nodes.deleted)
    if not len(sources):
        return sources, np.zeros(0, np.int64)
    kept = _rows_without(committed.find(key, "src", sources, ["id", "src"]), "id", _replaced_ids(delta))
    return sources, _count(pending, sources) + _count(comparable(kept["src"], STRING), sources)


def _count(values: pa.ChunkedArray, sources: pa.Array) -> np.ndarray[Any, Any]:
    places = pc.index_in(values, value_set=sources).drop_null().to_numpy()
    return np.bincount(places, minlength=len(sources))


def _cardinality_violations(
    key: str,
    edge: str,
    sources: pa.Array,
    counts: np.ndarray[Any, Any],
    wrong: np.ndarray[Any, Any],
    side: str,
    bound: int,
) -> Violations:
    def describe(chosen: np.ndarray[Any, Any], these: list[str | None]) -> Iterator[Violation]:
        for source, count in zip(these, counts[chosen].tolist(), strict=True):
            yield cardinality_violation(key, edge, source, count, side, bound)

    return violations_at(sources, np.flatnonzero(wrong), describe)


def cardinality_violation(
    key: str, edge: str, source: str | None, count: int, side: str, bound: int
) -> Violation:
    """Return the violation of a source with too few or too many edges. `side` is ``min`` or ``max``."""
    message = f"@card violation on edge {edge}: source '{source}' has {count} edges ({side} {bound})"
    return Violation("card", key, message, source, None, count, {side: bound})


# --- columns and ids ----------------------------------------------------------------------------------------


def column_types(table: Table) -> dict[str, PropType]:
    """Return the type of each column by name."""
    return {column.name: column.type for column in table.columns}


def _column_or_nulls(rows: pa.Table, name: str, prop_type: PropType) -> pa.ChunkedArray:
    """Return a column of the rows, or nulls if the rows do not have it."""
    if name in rows.column_names:
        return rows[name]
    return pa.chunked_array([pa.nulls(rows.num_rows, arrow_type(prop_type))])


def comparable(column: pa.ChunkedArray, prop_type: PropType) -> pa.ChunkedArray:
    """Return a column in the type of the property, with one form of zero and one form of NaN."""
    type_ = arrow_type(prop_type)
    column = column if column.type == type_ else column.cast(type_)
    if pa.types.is_floating(type_):
        column = pc.add(column, pa.scalar(0, type_))
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), type_), column)
    return column


def _replaced_ids(delta: TableDelta) -> pa.ChunkedArray:
    """Return the ids of committed rows that are deleted or rewritten."""
    rewritten = comparable(delta.rows["id"], STRING)
    return pa.chunked_array([delta.shadowed.cast(pa.string()), *rewritten.chunks], pa.string())


def _rows_without(rows: pa.Table, column: str, values: pa.ChunkedArray) -> pa.Table:
    # `is_in` hashes all the values first, even for an empty table.
    if not rows.num_rows or not len(values):
        return rows
    return rows.filter(pc.invert(pc.is_in(rows[column], value_set=values)))


def _array_without(array: pa.Array, values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not len(array) or not len(values):
        return array
    return array.filter(pc.invert(pc.is_in(array, value_set=values)))

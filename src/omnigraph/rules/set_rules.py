"""The rules between rows: uniqueness, edges that end at nodes, and how many edges a source has.

Each looks at what an operation changed and asks the committed state for the rows that matter to it, nothing
else: what is asked for joins the read-set of the commit. Values travel as Arrow arrays throughout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from omnigraph.rules.delta import RowLookup, TableDelta, Violation
from omnigraph.rules.violations import Findings, report, text_of

Deltas = Mapping[str, TableDelta]


# --- @unique ------------------------------------------------------------------------------------------------


def unique_violations(catalog: Catalog, deltas: Deltas, committed: RowLookup) -> Findings:
    """Tuples of changed rows that another changed row or a committed row that still counts holds as well."""

    def found() -> Iterator[Findings]:
        for key, delta in deltas.items():
            for columns in entity_of(catalog, delta.table).uniques:
                rows = tuples(delta.table, columns, delta.rows)
                if not rows.num_rows:
                    continue
                held = tuples(delta.table, columns, _holders(key, columns, rows, committed))
                yield repeated(delta.table, columns, rows, _except(held, "id", _superseded(delta)))

    return Findings.merge(found())


def entity_of(catalog: Catalog, table: Table) -> NodeType | EdgeType:
    """The type whose rows a table holds."""
    schema = catalog.schema
    found = schema.node(table.name) if table.kind == "node" else schema.edge(table.name)
    if found is None:
        raise NotFound(f"unknown {table.kind} type '{table.name}'")
    return found


def tuples(table: Table, columns: tuple[str, ...], rows: pa.Table) -> pa.Table:
    """The ids and these columns of the rows that have a value in all of them, equal values in equal form."""
    types = column_types(table)
    chosen = pa.table(
        {name: plain(_column(rows, name, types[name]), types[name]) for name in ("id", *columns)}
    )
    # A null anywhere exempts the tuple.
    return chosen.filter(reduce(pc.and_, (chosen[name].is_valid() for name in columns)))


def repeated(
    table: Table, columns: tuple[str, ...], rows: pa.Table, held: pa.Table | None = None
) -> Findings:
    """One violation for each of the rows whose tuple another holds: a held row, else the least id of the rows."""
    parts = [rows] if held is None else [held, rows]
    everything = pa.concat_tables(parts)
    first_new = everything.num_rows - rows.num_rows
    codes = _codes([everything[name] for name in columns])
    # Nearly always nothing repeats, so only what does is sorted.
    suspects = np.flatnonzero((np.bincount(codes) > 1)[codes])
    if not len(suspects):
        return Findings()
    ids = everything["id"].take(pa.array(suspects)).combine_chunks()
    ranked = pa.table({"code": codes[suspects], "new": suspects >= first_new, "id": ids})
    order = pc.sort_indices(ranked, sort_keys=[(name, "ascending") for name in ranked.column_names])
    places, ids = suspects[order.to_numpy()], ids.take(order)
    # The first of each run of one tuple is who holds it. Only changed rows can offend against that.
    runs = np.flatnonzero(np.diff(codes[places], prepend=-1))
    holder = np.repeat(runs, np.diff(runs, append=len(places)))
    offending = np.flatnonzero((np.arange(len(places)) > holder) & (places >= first_new))
    types = column_types(table)

    def describe(chosen: np.ndarray[Any, Any], these: list[str | None]) -> Iterator[Violation]:
        at = pa.array(places[chosen])
        values = zip(*(json_values(everything[item].take(at), types[item]) for item in columns), strict=True)
        others = ids.take(pa.array(holder[chosen])).to_pylist()
        for this, other, members in zip(these, others, values, strict=True):
            yield held_twice(table, columns, members, other, this)

    return report(ids, offending, describe)


def held_twice(
    table: Table, columns: tuple[str, ...], members: tuple[Any, ...], other: str | None, this: str | None
) -> Violation:
    """What is said of a row whose tuple another row holds."""
    name = columns[0] if len(columns) == 1 else f"({', '.join(columns)})"
    value = members[0] if len(members) == 1 else list(members)
    message = (
        f"@unique violation on {table.name}.{name}: value '{text_of(value)}' held by '{other}' and '{this}'"
    )
    details = {"columns": list(columns), "held_by": other}
    return Violation("unique", table.key, message, this, name, value, details)


def record_identity(entity: NodeType | EdgeType) -> tuple[str, ...]:
    """The columns that no two records of one input may agree in where each is to be a row: the key, else the id."""
    key = entity.key if isinstance(entity, NodeType) else None
    return ("id",) if key is None else key


def taken(table: Table, ids: pa.ChunkedArray, committed: pa.ChunkedArray) -> Findings:
    """One violation for each new row whose id a committed row has."""

    def describe(_: np.ndarray[Any, Any], these: list[str | None]) -> Iterator[Violation]:
        return (already_there(table, this) for this in these)

    return report(ids, np.flatnonzero(pc.is_in(ids, value_set=committed).to_numpy()), describe)


def already_there(table: Table, this: str | None) -> Violation:
    """What is said of a row that was to be new and is not."""
    message = f"{table.kind} type '{table.name}' already has id '{this}'"
    return Violation("key", table.key, message, this, "id", this)


def _holders(key: str, columns: tuple[str, ...], rows: pa.Table, committed: RowLookup) -> pa.Table:
    """Committed rows that may hold one of the tuples."""
    wanted = rows.select(list(columns))
    _, first = np.unique(_codes([wanted[name] for name in columns]), return_index=True)
    wanted = _both_zeros(wanted.take(pa.array(first)))
    if len(columns) == 1:
        return committed.find(key, columns[0], wanted[columns[0]].combine_chunks(), ["id", *columns])
    return committed.find_tuples(key, list(columns), wanted, ["id", *columns])


def _both_zeros(rows: pa.Table) -> pa.Table:
    """The rows again with the other zero: the two are one value, but a lookup may tell them apart."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            zeros = rows.filter(pc.equal(rows[field.name], pa.scalar(0, field.type)))
            negative = pc.negate(zeros[field.name])
            rows = pa.concat_tables([rows, zeros.set_column(position, field, negative)])
    return rows


def _codes(columns: list[pa.ChunkedArray]) -> np.ndarray[Any, Any]:
    """A small number for each row, equal where the rows agree in all the columns."""
    codes: np.ndarray[Any, Any] | None = None
    for column in columns:
        encoded = pc.dictionary_encode(column)
        chunks = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded.chunks]
        found = np.concatenate([np.zeros(0, np.int64), *chunks]).astype(np.int64)
        if codes is not None:
            # Counted again after each column, so that the product of two counts never overflows.
            _, found = np.unique(codes * (found.max(initial=0) + 1) + found, return_inverse=True)
        codes = found
    assert codes is not None
    return codes


# --- endpoints ----------------------------------------------------------------------------------------------


def endpoint_violations(catalog: Catalog, deltas: Deltas, committed: RowLookup) -> Findings:
    """Changed edges that end at no node, and committed edges that a deleted node leaves behind."""

    def found() -> Iterator[Findings]:
        for node in catalog.schema.nodes:
            yield from _dangling(catalog, node.name, deltas, committed)
            yield from _orphans(catalog, node.name, deltas, committed)

    return Findings.merge(found())


def _ends(edge: EdgeType, node: str) -> list[str]:
    return [name for name, type_name in (("src", edge.source), ("dst", edge.target)) if type_name == node]


def _dangling(catalog: Catalog, node: str, deltas: Deltas, committed: RowLookup) -> Iterator[Findings]:
    """All edges that end at one node type are looked at together: its table is asked once."""
    ends = [
        (delta, plain(delta.rows[name], STRING), name)
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
        named = _array_except(named, plain(delta.rows["id"], STRING))
    asked = named if delta is None else _array_except(named, delta.deleted)
    if len(asked):
        named = _array_except(named, committed.find(table_key("node", node), "id", asked, ["id"])["id"])
    if not len(named):
        return
    for edges, column, name in ends:
        positions = np.flatnonzero(pc.is_in(column, value_set=named).to_numpy())
        ids = plain(edges.rows["id"], STRING)
        yield _unresolved("endpoint", edges.table.key, node, name, ids, column, positions)


def _orphans(catalog: Catalog, node: str, deltas: Deltas, committed: RowLookup) -> Iterator[Findings]:
    delta = deltas.get(table_key("node", node))
    if delta is None or not len(delta.deleted):
        return
    for edge in catalog.schema.edges_of(node):
        key = table_key("edge", edge.name)
        for name in _ends(edge, node):
            edges = committed.find(key, name, delta.deleted, ["id", name])
            edges = edges.filter(pc.is_in(edges[name], value_set=delta.deleted))
            if key in deltas:
                edges = _except(edges, "id", _superseded(deltas[key]))
            positions = np.arange(edges.num_rows)
            yield _unresolved("orphan", key, node, name, edges["id"], edges[name], positions)


def _unresolved(
    rule: str,
    key: str,
    node: str,
    end: str,
    ids: pa.ChunkedArray,
    column: pa.ChunkedArray,
    positions: np.ndarray[Any, Any],
) -> Findings:
    def describe(chosen: np.ndarray[Any, Any], these: list[str | None]) -> Iterator[Violation]:
        for this, value in zip(these, column.take(pa.array(chosen)).to_pylist(), strict=True):
            yield ends_nowhere(rule, key, node, end, this, value)

    return report(ids, positions, describe)


def ends_nowhere(rule: str, key: str, node: str, end: str, this: str | None, value: str) -> Violation:
    """What is said of an edge one of whose ends is no node. `rule` is ``endpoint`` or ``orphan``."""
    return Violation(rule, key, f"{end} '{value}' not found in {node}", this, end, value)


# --- @card --------------------------------------------------------------------------------------------------


def cardinality_violations(catalog: Catalog, deltas: Deltas, committed: RowLookup) -> Findings:
    """Sources that gained or lost edges and now have too many or too few; a deleted source may have none."""

    def found() -> Iterator[Findings]:
        for key, delta in deltas.items():
            edge = entity_of(catalog, delta.table)
            if isinstance(edge, EdgeType) and not edge.cardinality.is_default:
                yield from _cardinality(
                    key, edge, delta, deltas.get(table_key("node", edge.source)), committed
                )

    return Findings.merge(found())


def _cardinality(
    key: str, edge: EdgeType, delta: TableDelta, nodes: TableDelta | None, committed: RowLookup
) -> Iterator[Findings]:
    pending = plain(delta.rows["src"], STRING)
    left = [] if delta.vacated is None else [delta.vacated.cast(pa.string())]
    sources = pc.unique(pa.chunked_array([*pending.chunks, *left], pa.string())).drop_null()
    if nodes is not None:
        sources = _array_except(sources, nodes.deleted)
    if not len(sources):
        return
    kept = _except(committed.find(key, "src", sources, ["id", "src"]), "id", _superseded(delta))
    counts = _count(pending, sources) + _count(plain(kept["src"], STRING), sources)
    least, most = edge.cardinality.min, edge.cardinality.max
    yield _miscounted(key, edge.name, sources, counts, counts < least, "min", least)
    if most is not None:
        yield _miscounted(key, edge.name, sources, counts, counts > most, "max", most)


def _count(values: pa.ChunkedArray, sources: pa.Array) -> np.ndarray[Any, Any]:
    places = pc.index_in(values, value_set=sources).drop_null().to_numpy()
    return np.bincount(places, minlength=len(sources))


def _miscounted(
    key: str,
    edge: str,
    sources: pa.Array,
    counts: np.ndarray[Any, Any],
    wrong: np.ndarray[Any, Any],
    side: str,
    bound: int,
) -> Findings:
    def describe(chosen: np.ndarray[Any, Any], these: list[str | None]) -> Iterator[Violation]:
        for source, count in zip(these, counts[chosen].tolist(), strict=True):
            yield wrong_count(key, edge, source, count, side, bound)

    return report(sources, np.flatnonzero(wrong), describe)


def wrong_count(key: str, edge: str, source: str | None, count: int, side: str, bound: int) -> Violation:
    """What is said of a source with too few or too many edges. `side` is ``min`` or ``max``."""
    message = f"@card violation on edge {edge}: source '{source}' has {count} edges ({side} {bound})"
    return Violation("card", key, message, source, None, count, {side: bound})


# --- parts --------------------------------------------------------------------------------------------------


def column_types(table: Table) -> dict[str, PropType]:
    """The type of each column."""
    return {column.name: column.type for column in table.columns}


def _column(rows: pa.Table, name: str, prop_type: PropType) -> pa.ChunkedArray:
    """A column of rows; one that they do not have is null in each of them."""
    if name in rows.column_names:
        return rows[name]
    return pa.chunked_array([pa.nulls(rows.num_rows, arrow_type(prop_type))])


def plain(column: pa.ChunkedArray, prop_type: PropType) -> pa.ChunkedArray:
    """The column in the type of the property; the two zeros and all NaNs of a float become one each."""
    wanted = arrow_type(prop_type)
    column = column if column.type == wanted else column.cast(wanted)
    if pa.types.is_floating(wanted):
        column = pc.add(column, pa.scalar(0, wanted))
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), wanted), column)
    return column


def _superseded(delta: TableDelta) -> pa.ChunkedArray:
    """The ids whose committed rows no longer count."""
    rewritten = plain(delta.rows["id"], STRING)
    return pa.chunked_array([delta.shadowed.cast(pa.string()), *rewritten.chunks], pa.string())


def _except(rows: pa.Table, column: str, values: pa.ChunkedArray) -> pa.Table:
    # A lookup hashes all the values first, for however few rows.
    if not rows.num_rows or not len(values):
        return rows
    return rows.filter(pc.invert(pc.is_in(rows[column], value_set=values)))


def _array_except(array: pa.Array, values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not len(array) or not len(values):
        return array
    return array.filter(pc.invert(pc.is_in(array, value_set=values)))

"""Keys: the columns of records and committed rows that the rules between rows compare."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Table, table_key
from omnigraph.catalog.columns import arrow_type, logical_schema
from omnigraph.lang.schema import EdgeType, NodeType
from omnigraph.rules import set_queries as queries
from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.set_rules import column_types, comparable, entity_of, record_identity
from omnigraph.store.tables.row_addresses import ROW_ADDRESS

# --- keys of records ----------------------------------------------------------------------------------------


def key_columns(table: Table, entity: NodeType | EdgeType) -> list[str]:
    """Return the columns of a table that the rules between rows compare."""
    structural = [item.name for item in table.columns if item.property_id is None]
    return list(dict.fromkeys((*structural, *record_identity(entity), *_flatten(entity.uniques))))


def key_rows(
    table: Table, columns: Sequence[str], rows: pa.RecordBatch, origin: Sequence[pa.Array]
) -> pa.RecordBatch:
    """Return the keys of records in comparable form. `origin` has their places, sources and positions."""
    types = column_types(table)
    arrays = [_comparable(rows.column(name), types[name]) for name in columns]
    names = [*(key_column(table, name) for name in columns), queries.PLACE, queries.SOURCE, queries.POSITION]
    return pa.RecordBatch.from_arrays([*arrays, *origin], names)


def empty_keys(table: Table, columns: Sequence[str]) -> pa.RecordBatch:
    """Return an empty batch with the columns of `key_rows`."""
    rows = logical_schema(table).empty_table().select(list(columns))
    empty = pa.RecordBatch.from_arrays([column.combine_chunks() for column in rows.columns], list(columns))
    origin = [pa.array([], pa.int64()), pa.array([], pa.int32()), pa.array([], pa.int64())]
    return key_rows(table, columns, empty, origin)


def key_column(table: Table, name: str) -> str:
    """Return the name of a table's column in key tables.

    Properties are numbered, because SQL names ignore case and property names do not.
    """
    if name == ROW_ADDRESS:
        return queries.ADDRESS
    for number, item in enumerate(table.columns):
        if item.name == name and item.property_id is not None:
            return f"property{number}"
    return name


# --- keys of committed rows ---------------------------------------------------------------------------------


def committed_key_columns(
    catalog: Catalog, mode: WriteMode, loaded: Collection[str], generated_ids: Collection[str]
) -> dict[str, list[str]]:
    """Return the committed columns that the rules of a load read, by table.

    `loaded` are the tables that the input names, `generated_ids` those of them whose ids were all generated.
    """
    needed: dict[str, dict[str, None]] = {}
    replaced = loaded if mode == "overwrite" else ()

    def need(key: str, *columns: str) -> None:
        needed.setdefault(key, {}).update(dict.fromkeys(("id", *columns)))

    for key in loaded:
        entity = entity_of(catalog, catalog.tables[key])
        # A generated id equals no committed id, so no lookup is needed.
        if key not in generated_ids:
            need(key, *((ROW_ADDRESS,) if mode == "merge" else ()))
        if mode != "overwrite" and entity.uniques:
            need(key, *_flatten(entity.uniques))
        if isinstance(entity, EdgeType) and not entity.cardinality.is_default:
            need(key, "src")
    for key, end, node in edge_ends(catalog):
        if key in loaded and node not in replaced:
            need(node)
        elif key not in loaded and node in replaced:
            need(key, end)
    return {key: list(columns) for key, columns in needed.items()}


def committed_key_rows(table: Table, columns: Sequence[str], rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the keys of committed rows in comparable form. `rows` has these columns in this order."""
    types = column_types(table)
    arrays = [
        # An address has the fragment id in its upper 32 bits, and ids are far below 2**31.
        column.cast(pa.int64()) if name == ROW_ADDRESS else _comparable(column, types[name])
        for name, column in zip(columns, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, [key_column(table, name) for name in columns])


def empty_committed_keys(table: Table, columns: Sequence[str]) -> pa.RecordBatch:
    """Return an empty batch with the columns of `committed_key_rows`."""
    types = column_types(table)
    arrays = [
        pa.array([], pa.uint64() if name == ROW_ADDRESS else arrow_type(types[name])) for name in columns
    ]
    return committed_key_rows(table, columns, pa.RecordBatch.from_arrays(arrays, list(columns)))


def without_ids(rows: pa.RecordBatch, ids: pa.Array | None) -> pa.RecordBatch:
    """Return the keys of rows that do not have one of the ids."""
    if ids is None or not len(ids) or not rows.num_rows:
        return rows
    return rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=ids)))


def edge_ends(catalog: Catalog) -> Iterator[tuple[str, str, str]]:
    """Yield every end of every edge type: its table, its column, and the table of the nodes there."""
    for edge in catalog.schema.edges:
        for end, node in (("src", edge.source), ("dst", edge.target)):
            yield table_key("edge", edge.name), end, table_key("node", node)


def _comparable(column: pa.Array, prop_type: Any) -> pa.Array:
    return comparable(pa.chunked_array([column]), prop_type).combine_chunks()


def _flatten(columns: Sequence[tuple[str, ...]]) -> Iterator[str]:
    return (name for item in columns for name in item)

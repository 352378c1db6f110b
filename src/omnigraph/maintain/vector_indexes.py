"""Which vector indexes a table has according to its schema, and which of the stored ones no query uses any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.columns import arrow_type
from omnigraph.maintain.table_maintenance import WantedIndex
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.index_segments import index_kind
from omnigraph.store.tables.table_indexes import list_indexes
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.vector_indexes import MIN_SEGMENT_ROWS, VectorIndexMethod

_BYTES_PER_NUMBER = 4


def wanted_vector_indexes(catalog: Catalog, table: Table, names: Sequence[str]) -> dict[str, WantedIndex]:
    """Return the index that the schema declares for each of some vector properties of a type.

    Queries search no vectors of edges, so those have no index.
    """
    node = catalog.schema.node(table.name) if table.kind == "node" else None
    if node is None:
        return {}
    types = {column.name: column.type for column in table.columns}
    found = {}
    for item in node.properties:
        if item.name in names:
            declared = item.vector_index
            row_bytes = _BYTES_PER_NUMBER * arrow_type(types[item.name]).list_size
            method = VectorIndexMethod(declared.kind, declared.metric)
            found[item.name] = WantedIndex(
                table.physical(item.name), method.name, min_rows=MIN_SEGMENT_ROWS, row_bytes=row_bytes
            )
    return found


def obsolete_vector_indexes(tables: Tables, pin: TablePin, declared: Iterable[WantedIndex]) -> list[str]:
    """Return the names of the stored vector indexes that are not declared.

    Their property was dropped, is no longer indexed, or has another kind or metric now.
    """
    names = {item.name for item in declared}
    return [
        item.name
        for item in list_indexes(tables, pin)
        if item.name not in names
        and VectorIndexMethod.parse(index_kind(item.columns[0], item.name)) is not None
    ]

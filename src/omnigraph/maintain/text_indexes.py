"""Which full-text indexes a table has by its schema, and which of the stored ones no query uses any more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.lang.schema import Index, NodeType
from omnigraph.lang.types import Scalar
from omnigraph.maintain.compaction_policy import SEGMENT_ROWS
from omnigraph.maintain.table_maintenance import WantedIndex
from omnigraph.search.inverted.indexed_columns import text_index_method
from omnigraph.search.inverted.segment_building import MAX_SEGMENT_BYTES, TextSegmentPlan
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.table_fragments import list_fragments
from omnigraph.store.tables.table_indexes import list_indexes
from omnigraph.store.tables.tables import Tables
from omnigraph.store.text.fragment_texts import mean_text_bytes
from omnigraph.store.text.text_index_names import is_text_index

# The words of a smaller table are indexed in memory, when they are first searched.
MIN_TABLE_ROWS: Final = 10_000
MIN_TABLE_BYTES: Final = 4 << 20
# Fewer rows that no segment covers, and with fewer bytes of text, get no segment.
MIN_SEGMENT_ROWS: Final = 4_096
MIN_SEGMENT_BYTES: Final = 2 << 20


def text_index_properties(node: NodeType) -> list[str]:
    """Return the properties whose words are indexed: Strings with ``@text`` or ``@index``."""
    declared = {item.columns for item in node.effective_constraints if isinstance(item, Index)}
    return [
        item.name
        for item in node.properties
        if item.type.scalar is Scalar.STRING
        and not (item.type.is_list or item.type.is_enum)
        and (item.annotation("text") is not None or (item.name,) in declared)
    ]


def wanted_text_indexes(
    tables: Tables, pin: TablePin, catalog: Catalog, table: Table, *, always: bool = False
) -> dict[str, WantedIndex]:
    """Return the index of each text property that has one. A small table has none, unless `always` is true.

    The words of a graph in memory are in memory anyway.
    """
    node = catalog.schema.node(table.name) if table.kind == "node" else None
    names = [] if node is None or tables.root.files is None else text_index_properties(node)
    if node is None or not names:
        return {}
    fragments = list_fragments(tables, pin)
    is_small = pin.rows < MIN_TABLE_ROWS and sum(item.nbytes for item in fragments) < MIN_TABLE_BYTES
    if is_small and not always:
        return {}
    found = {}
    for name in names:
        item = node.by_name[name]
        column = table.physical(name)
        mean = 0 if always else mean_text_bytes(tables, pin, column, fragments)
        method = text_index_method(item.text_analysis, with_positions=item.text_positions)
        found[name] = WantedIndex(
            column,
            method.name,
            min_rows=min(MIN_SEGMENT_ROWS, MIN_SEGMENT_BYTES // max(1, mean)),
            row_bytes=max(1, mean),
            max_rows=max(1, min(SEGMENT_ROWS, MAX_SEGMENT_BYTES // max(1, mean))),
            text=TextSegmentPlan(item.text_analysis, method),
        )
    return found


def obsolete_text_indexes(tables: Tables, pin: TablePin, declared: Iterable[WantedIndex]) -> list[str]:
    """Return the names of the stored text indexes that are not declared.

    Their property was dropped or has another analysis now, or another release of Python or of a stemmer built them.
    """
    names = {item.name for item in declared}
    return [
        item.name
        for item in list_indexes(tables, pin)
        if item.name not in names and is_text_index(item.columns[0], item.name)
    ]

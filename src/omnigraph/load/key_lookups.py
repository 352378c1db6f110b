"""Committed keys of a small load: only the rows that its records can conflict with, found by index.

The key checks of a large load read whole columns of the committed tables. A micro-batch of a stream has a few
records, and the tables may have any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.arrow_arrays import single_array
from omnigraph.engine.committed_rows import CommittedRows
from omnigraph.lang.schema import EdgeType
from omnigraph.load.keys import committed_key_columns, edge_ends
from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.set_rules import entity_of

# More values than this are compared with all rows of the column.
MAX_VALUES = 4_000
# A scan is cheaper than a lookup if the table has less than this many rows for each value.
MIN_ROWS_PER_VALUE = 16


def looked_up_tables(
    catalog: Catalog,
    mode: WriteMode,
    records: Mapping[str, int],
    generated_ids: Collection[str],
    rows_of: Callable[[str], int],
) -> frozenset[str]:
    """Return the tables whose committed keys are looked up and not scanned.

    `records` has the number of records of each table that the input names, and `rows_of` returns the number of
    committed rows. Unique values have no index, so their tables are scanned.
    """
    if mode == "overwrite":
        return frozenset()
    values = dict(records)
    for key, _, node in edge_ends(catalog):
        values[node] = values.get(node, 0) + records.get(key, 0)
    return frozenset(
        key
        for key in committed_key_columns(catalog, mode, records, generated_ids)
        if values[key] <= MAX_VALUES
        and values[key] * MIN_ROWS_PER_VALUE <= rows_of(key)
        and not (key in records and entity_of(catalog, catalog.tables[key]).uniques)
    )


def find_committed_keys(
    catalog: Catalog,
    committed: CommittedRows,
    key: str,
    columns: list[str],
    values_of: Callable[[str, str], pa.Array],
    loaded: Collection[str],
    vacated: pa.Array | None,
) -> pa.Table:
    """Return the committed rows of a table that the records of a load can conflict with.

    `values_of` returns the values of a column of the records of a table. `vacated` are the sources of deleted
    edges.
    """
    ids = [values_of(key, "id")] if key in loaded else []
    ids += [values_of(edge, end) for edge, end, node in edge_ends(catalog) if node == key and edge in loaded]
    found = committed.find(key, "id", _distinct(ids), columns)
    entity = entity_of(catalog, catalog.tables[key])
    if key not in loaded or not isinstance(entity, EdgeType) or entity.cardinality.is_default:
        return found
    # The edges of all sources that gain or lose edges are counted.
    sources = [values_of(key, "src"), single_array(found["src"])]
    sources += [] if vacated is None else [vacated]
    others = committed.find(key, "src", _distinct(sources), columns)
    others = others.filter(pc.invert(pc.is_in(others["id"], value_set=single_array(found["id"]))))
    return pa.concat_tables([found, others])


def _distinct(parts: list[pa.Array]) -> pa.Array:
    return pc.unique(pa.chunked_array(parts, pa.string())).drop_null()

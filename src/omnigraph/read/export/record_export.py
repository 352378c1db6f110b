"""Export a snapshot as graph records, one JSON line each, in an order that depends only on its content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.errors import InvalidInput
from omnigraph.graph.progress import Progress
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.read.export.record_lines import encode_records
from omnigraph.store.tables.table_fragments import list_fragments, read_fragments, take_positions

_ROWS_AT_A_TIME = 16_384


def export_lines(
    snapshot: Snapshot,
    types: Sequence[str] | None = None,
    progress: Progress | None = None,
    kinds: Sequence[TypeKind] | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Yield the encoded records of a snapshot in batches, with the number of records of each. Edge types come
    before node types, each ordered by name, and records are ordered by id.

    `types` restricts the export to types of these names, `kinds` to nodes or edges. Memory holds the ids of one
    type and a batch of rows.
    """
    with snapshot.held():
        for table in choose_tables(snapshot.catalog, types):
            if kinds is not None and table.kind not in kinds:
                continue
            for rows in _ordered_rows(snapshot, table):
                yield rows.num_rows, encode_records(table, rows)
                if progress is not None:
                    progress(table.key, rows.num_rows)


def choose_tables(catalog: Catalog, types: Sequence[str] | None) -> list[Table]:
    """Return the tables of the given types, or of all types for None; edges first, then by name.

    Raises `InvalidInput` for an unknown type.
    """
    tables = sorted(catalog.tables.values(), key=lambda table: (table.kind != "edge", table.name))
    if types is None:
        return tables
    names = {table.name for table in tables}
    for name in types:
        if name not in names:
            raise InvalidInput(f"unknown export type '{name}'{did_you_mean(name, sorted(names))}")
    return [table for table in tables if table.name in types]


def _ordered_rows(snapshot: Snapshot, table: Table) -> Iterator[pa.Table]:
    pin = snapshot.pin(table.key)
    physical = [column.physical for column in table.columns]
    with snapshot.reading():
        parts = list_fragments(snapshot.tables, pin)
        ids = [
            chunk
            for rows in read_fragments(snapshot.tables, pin, parts, ["id"])
            for chunk in rows["id"].chunks
        ]
        order = pc.sort_indices(pa.chunked_array(ids, pa.string())).to_numpy().astype(np.int64)
        for start in range(0, len(order), _ROWS_AT_A_TIME):
            yield take_positions(snapshot.tables, pin, order[start : start + _ROWS_AT_A_TIME], physical)

"""A snapshot as graph records, one JSON line each, in an order that only depends on what is in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Column, Table
from omnigraph.catalog.json_rows import json_values
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.graph.snapshot import Snapshot, reclaimed
from omnigraph.lang.source import did_you_mean
from omnigraph.lang.types import Scalar
from omnigraph.store.parts import list_parts, read_parts, take_rows

_ROWS_AT_A_TIME = 16_384
# Dates and moments are written as the numbers they are stored as.
_NUMBERS = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}


def export_lines(
    snapshot: Snapshot,
    types: Sequence[str] | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Iterator[str]:
    """The records of a snapshot: edge types before node types, by name, and within a type by id.

    `types` limits them to node and edge types of these names. Memory holds the ids of one type and some thousand
    rows.
    """
    for table in _chosen(snapshot.catalog, types):
        for lines in _table_lines(snapshot, table):
            if progress is not None:
                progress(table.key, len(lines))
            yield from lines


def _chosen(catalog: Catalog, types: Sequence[str] | None) -> list[Table]:
    tables = sorted(catalog.tables.values(), key=lambda table: (table.kind != "edge", table.name))
    if types is None:
        return tables
    names = {table.name for table in tables}
    for name in types:
        if name not in names:
            raise InvalidInput(f"unknown export type '{name}'{did_you_mean(name, sorted(names))}")
    return [table for table in tables if table.name in types]


def _table_lines(snapshot: Snapshot, table: Table) -> Iterator[list[str]]:
    pin = snapshot.pin(table.key)
    physical = [column.physical for column in table.columns]
    try:
        parts = list_parts(snapshot.tables, pin)
        ids = [
            chunk for rows in read_parts(snapshot.tables, pin, parts, ["id"]) for chunk in rows["id"].chunks
        ]
        order = pc.sort_indices(pa.chunked_array(ids, pa.string())).to_numpy().astype(np.int64)
        for start in range(0, len(order), _ROWS_AT_A_TIME):
            rows = take_rows(snapshot.tables, pin, order[start : start + _ROWS_AT_A_TIME], physical)
            yield _lines(table, rows)
    except NotFound as error:
        raise reclaimed(snapshot.commit) from error


def _lines(table: Table, rows: pa.Table) -> list[str]:
    columns = {column.name: _values(column, rows[column.physical]) for column in table.columns}
    head = ["type"] if table.kind == "node" else ["edge", "from", "to"]
    ends = [] if table.kind == "node" else [columns.pop("src"), columns.pop("dst")]
    names = list(columns)
    found = []
    for place, values in enumerate(zip(*columns.values(), strict=True)):
        record: dict[str, Any] = dict(zip(head, (table.name, *(end[place] for end in ends)), strict=True))
        record["data"] = dict(zip(names, values, strict=True))
        found.append(json.dumps(record, ensure_ascii=False, separators=(",", ":")))
    return found


def _values(column: Column, values: pa.ChunkedArray) -> list[Any]:
    number = _NUMBERS.get(column.type.scalar)
    if number is None:
        return json_values(values, column.type)
    found = values.cast(pa.list_(number) if column.type.is_list else number).to_pylist()
    return list(found)

"""Entities as JSON: what changes and conflicts show of a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.row_json import json_values

if TYPE_CHECKING:
    import pyarrow as pa

# {"properties": {...}}, for an edge with {"endpoints": {"from": ..., "to": ...}} beside it.
Image: TypeAlias = dict[str, Any]

# What an edge's ends are called outside the tables.
ENDS: Mapping[str, str] = {"src": "from", "dst": "to"}


def images(table: Table, rows: pa.Table, names: Mapping[str, str] | None = None) -> Iterator[Image]:
    """One image a row of physical columns: every declared property in the order of its name, and an edge's ends.

    `names` says what properties are called by their physical columns, where that is not what the table says.
    """
    properties = [column for column in table.columns if column.property_id is not None]
    shown = [column.name if names is None else names[column.physical] for column in properties]
    columns = [json_values(rows[column.physical], column.type) for column in properties]
    values = zip(*columns, strict=True) if columns else iter([()] * rows.num_rows)
    if table.kind == "node":
        for row in values:
            yield {"properties": dict(zip(shown, row, strict=True))}
        return
    ends = zip(*(rows[name].to_pylist() for name in ENDS), strict=True)
    for row, places in zip(values, ends, strict=True):
        yield {
            "properties": dict(zip(shown, row, strict=True)),
            "endpoints": dict(zip(ENDS.values(), places, strict=True)),
        }

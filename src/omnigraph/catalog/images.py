"""Entities as JSON: what changes and conflicts show of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.catalog.catalog import Column, Table
from omnigraph.catalog.json_rows import json_values

if TYPE_CHECKING:
    import pyarrow as pa

# {"properties": {...}}, for an edge with {"endpoints": {"from": ..., "to": ...}} beside it.
Image: TypeAlias = dict[str, Any]


def images(table: Table, rows: pa.Table, columns: Sequence[tuple[Column, str]] | None = None) -> list[Image]:
    """One image a row: every declared property in the order of its name, and the ends of an edge.

    `columns` pairs each property with the column that it has in `rows`; without it that is the physical one.
    """
    pairs = columns or [(item, item.physical) for item in table.columns if item.property_id is not None]
    names = [column.name for column, _ in pairs]
    values = [json_values(rows[name], column.type) for column, name in pairs]
    properties = (
        [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
        if values
        else [{} for _ in range(rows.num_rows)]
    )
    if table.kind == "node":
        return [{"properties": item} for item in properties]
    ends = zip(rows["src"].to_pylist(), rows["dst"].to_pylist(), strict=True)
    return [
        {"properties": item, "endpoints": {"from": source, "to": target}}
        for item, (source, target) in zip(properties, ends, strict=True)
    ]

"""Row images: nodes and edges as JSON, in change records and merge conflicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import ENDPOINT_NAMES
from omnigraph.catalog.row_json import json_values

if TYPE_CHECKING:
    import pyarrow as pa

# {"properties": {...}}, for an edge also {"endpoints": {"from": ..., "to": ...}}.
Image: TypeAlias = dict[str, Any]


def images(table: Table, rows: pa.Table, names: Mapping[str, str] | None = None) -> Iterator[Image]:
    """Yield one image per row: all properties, ordered by name, and the endpoints of an edge.

    The columns of `rows` have physical names. `names` overrides the property names of the table, by physical
    column.
    """
    properties = [column for column in table.columns if column.property_id is not None]
    keys = [column.name if names is None else names[column.physical] for column in properties]
    columns = [json_values(rows[column.physical], column.type) for column in properties]
    values = zip(*columns, strict=True) if columns else iter([()] * rows.num_rows)
    if table.kind == "node":
        for row in values:
            yield {"properties": dict(zip(keys, row, strict=True))}
        return
    endpoints = zip(*(rows[name].to_pylist() for name in ENDPOINT_NAMES), strict=True)
    for row, ids in zip(values, endpoints, strict=True):
        yield {
            "properties": dict(zip(keys, row, strict=True)),
            "endpoints": dict(zip(ENDPOINT_NAMES.values(), ids, strict=True)),
        }

"""Rows with operations as the JSON records that a load with the same options reads."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import ENDPOINT_NAMES
from omnigraph.catalog.row_json import json_values
from omnigraph.engine.arrow_arrays import single_array
from omnigraph.lang.schema import EdgeType, NodeType
from omnigraph.load.operation_rules import OperationRules
from omnigraph.sources.operation_columns import unpack_given
from omnigraph.sources.order_keys import order_value
from omnigraph.sources.row_operations import GIVEN, OPERATION, ORDER, Operation


def change_records(
    entity: NodeType | EdgeType, table: Table, rows: pa.Table, rules: OperationRules
) -> list[dict[str, Any]]:
    """Return each row with its operation, its order and the values that it gives, nulls among them.

    The operation of a row that is not a delete is that of the mode of the load.
    """
    op_column, order_by = rules.op_column, rules.order_by
    ends = ENDPOINT_NAMES if table.kind == "edge" else {}
    columns = [json_values(rows[item.name], item.type) for item in table.columns]
    given = unpack_given(single_array(rows[GIVEN]), len(table.columns)).tolist()
    outer: list[list[tuple[str, Any]]] = [[] for _ in range(rows.num_rows)]
    if op_column is not None:
        for fields, code in zip(outer, rows[OPERATION].to_pylist(), strict=True):
            fields.append((op_column, "D" if code == Operation.DELETE else "U"))
    if order_by is not None and all(item.name != order_by for item in table.columns):
        for fields, key in zip(outer, rows[ORDER].to_pylist(), strict=True):
            fields.append((order_by, None if key is None else order_value(key)))
    records = []
    for fields, is_given, values in zip(outer, given, zip(*columns, strict=True), strict=True):
        named = zip(table.columns, is_given, values, strict=True)
        row = {item.name: value for item, known, value in named if known or value is not None}
        # A derived id is not part of the record.
        if entity.key is not None and all(row.get(name) is not None for name in entity.key):
            del row["id"]
        data = {name: value for name, value in row.items() if name not in ends}
        endpoints = {name: row[stored] for stored, name in ends.items() if stored in row}
        tag = "type" if table.kind == "node" else "edge"
        records.append({tag: table.name, **endpoints, **dict(fields), "data": data})
    return records

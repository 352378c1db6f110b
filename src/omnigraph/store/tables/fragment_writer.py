"""Writing of rows and columns as fragments that no version refers to yet.

A table may have more columns than the rows to write: a dropped property keeps its column, so that a drop
rewrites no data. Lance accepts such rows and reads null in the missing columns, except in a column that is not
nullable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments
from lance.schema import LanceSchema


def append_rows(
    dataset: lance.LanceDataset, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> list[FragmentMetadata]:
    """Write rows as fragments of a table.

    A column that the rows lack is null. A required column that the rows lack belongs to a dropped property and is
    filled with the zero value of its type.
    """
    missing = [item for item in dataset.schema if not item.nullable and item.name not in schema.names]
    if missing:
        narrow, schema = batches, pa.schema([*schema, *missing])
        batches = (_add_zero_columns(batch, schema, missing) for batch in narrow)
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    return list(write_fragments(reader, dataset, mode="append"))


def _add_zero_columns(
    batch: pa.RecordBatch, schema: pa.Schema, missing: Sequence[pa.Field]
) -> pa.RecordBatch:
    rows = pa.array(np.zeros(batch.num_rows, np.int64))
    zeros = [pa.array([_zero_value(item.type)], item.type).take(rows) for item in missing]
    return pa.RecordBatch.from_arrays([*batch.columns, *zeros], schema=schema)


def _zero_value(type_: pa.DataType) -> Any:
    if pa.types.is_fixed_size_list(type_):
        return [_zero_value(type_.value_type)] * type_.list_size
    if pa.types.is_list(type_):
        return []
    if pa.types.is_struct(type_):
        return {}
    if pa.types.is_string(type_):
        return ""
    return False if pa.types.is_boolean(type_) else 0


def write_columns(
    dataset: lance.LanceDataset,
    reads: Sequence[str],
    schema: pa.Schema,
    compute: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> tuple[list[FragmentMetadata], LanceSchema]:
    """Write new columns for every fragment of a table that has rows; return the fragments and the new schema.

    `compute` returns the new columns for a batch of the columns `reads`. Only the new columns are written.
    """
    function = lance.batch_udf(output_schema=schema)(compute)
    merged = [item.merge_columns(function, columns=list(reads)) for item in dataset.get_fragments()]
    return [fragment for fragment, _ in merged], merged[0][1]

"""Rows and columns written as fragments that no version has yet.

A table may have more columns than the rows that come: properties that were dropped keep theirs, so that nothing is
rewritten. Lance takes such rows and reads null there, but not where the column is required.
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

    A column that they do not have is null in them; where the table requires one, which nobody reads any more, it
    gets the zero of its type.
    """
    missing = [item for item in dataset.schema if not item.nullable and item.name not in schema.names]
    if missing:
        narrow, schema = batches, pa.schema([*schema, *missing])
        batches = (_widened(batch, schema, missing) for batch in narrow)
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    return list(write_fragments(reader, dataset, mode="append"))


def _widened(batch: pa.RecordBatch, schema: pa.Schema, missing: Sequence[pa.Field]) -> pa.RecordBatch:
    rows = pa.array(np.zeros(batch.num_rows, np.int64))
    zeros = [pa.array([_zero(item.type)], item.type).take(rows) for item in missing]
    return pa.RecordBatch.from_arrays([*batch.columns, *zeros], schema=schema)


def _zero(kind: pa.DataType) -> Any:
    if pa.types.is_fixed_size_list(kind):
        return [_zero(kind.value_type)] * kind.list_size
    if pa.types.is_list(kind):
        return []
    if pa.types.is_struct(kind):
        return {}
    if pa.types.is_string(kind):
        return ""
    return False if pa.types.is_boolean(kind) else 0


def write_columns(
    dataset: lance.LanceDataset,
    reads: Sequence[str],
    schema: pa.Schema,
    fill: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> tuple[list[FragmentMetadata], LanceSchema]:
    """Write new columns beside every fragment of a table that has some; the fragments with them, and the schema.

    `fill` makes them of batches of the columns that it reads. Nothing but the new columns is written.
    """
    function = lance.batch_udf(output_schema=schema)(fill)
    made = [item.merge_columns(function, columns=list(reads)) for item in dataset.get_fragments()]
    return [fragment for fragment, _ in made], made[0][1]

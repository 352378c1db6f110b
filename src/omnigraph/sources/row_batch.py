"""Batches of typed rows, each row with its position in the input."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

# Columns with the origin of a row, next to the logical columns. No property can have these names.
PLACE = ".place"
SOURCE = ".source"

# Maximum number of rows in a batch.
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class InputBatch:
    """Rows of one table in input order, with the columns of `catalog.columns.logical_schema`.

    The id of a keyed node is already derived from its key. Any other null id is replaced by a generated one later.
    `places` counts from 1: lines of a strict NDJSON input, records of a stream, rows of a table.
    """

    key: str
    rows: pa.Table
    places: pa.Array
    source: str | None = None

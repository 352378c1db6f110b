"""Files of rows with operations: one task writes the file of a split, others read a range of ids of all files.

The batches of a file are sorted by the hash of the id, so a reader opens only the batches of its range.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.engine.arrow_file import ArrowFile
from omnigraph.graph.recovery.scratch_files import ScratchFolder
from omnigraph.load.id_hash import hash_ids

_HASH = ".hash"
_POSITION = ".position"
_BATCH_ROWS = 8_192


@dataclass(frozen=True, slots=True)
class HashRange:
    """Hashes from `low` to `high`, both included."""

    low: int
    high: int

    @classmethod
    def divide(cls, count: int) -> list[HashRange]:
        """Return so many ranges that cover all hashes.

        >>> [item.low for item in HashRange.divide(2)] == [0, 1 << 63]
        True
        """
        bounds = [(number << 64) // count for number in range(count + 1)]
        return [cls(low, high - 1) for low, high in pairwise(bounds)]

    def overlaps(self, other: HashRange) -> bool:
        """Return whether a hash is in both ranges."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """A file with the rows of one table in a split: its name, and the hashes in each batch."""

    name: str
    ranges: tuple[HashRange, ...]


def write_changes(
    scratch: ScratchFolder, table: Table, split: int, position: int, batches: Iterable[pa.RecordBatch]
) -> ChangeFile:
    """Write rows in input order, the first of them at this position."""
    # Each attempt has its own file, so a second attempt cannot overwrite a complete file.
    name = f"changes-{split:06d}-{table.id}-{uuid.uuid4().hex}.arrow"
    ranges: list[HashRange] = []
    with scratch.open_write(name) as file:
        writer: pa.ipc.RecordBatchFileWriter | None = None
        for batch in batches:
            hashes = hash_ids(batch.column("id"))
            positions = np.arange(position, position + batch.num_rows, dtype=np.int64)
            position += batch.num_rows
            rows = batch.append_column(_HASH, pa.array(hashes)).append_column(_POSITION, pa.array(positions))
            order = np.argsort(hashes, kind="stable")
            rows = rows.take(pa.array(order))
            if writer is None:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                writer = pa.ipc.new_file(ArrowFile(file), rows.schema, options=options)
            for start in range(0, rows.num_rows, _BATCH_ROWS):
                part = rows.slice(start, _BATCH_ROWS)
                writer.write_batch(part)
                sorted_hashes = hashes[order[start : start + part.num_rows]]
                ranges.append(HashRange(int(sorted_hashes[0]), int(sorted_hashes[-1])))
        if writer is not None:
            writer.close()
    return ChangeFile(name, tuple(ranges))


def read_changes(scratch: ScratchFolder, files: Iterable[ChangeFile], wanted: HashRange) -> pa.Table | None:
    """Return the rows of a range of hashes in input order; None if there are none."""
    parts = [part for file in files for part in _read(scratch, file, wanted)]
    if not parts:
        return None
    rows = pa.Table.from_batches(parts)
    order = np.argsort(rows[_POSITION].to_numpy())
    return rows.select([name for name in rows.column_names if name not in (_HASH, _POSITION)]).take(order)


def _read(scratch: ScratchFolder, file: ChangeFile, wanted: HashRange) -> Iterator[pa.RecordBatch]:
    chosen = [number for number, item in enumerate(file.ranges) if item.overlaps(wanted)]
    if not chosen:
        return
    with scratch.open_read(file.name) as stream, pa.ipc.open_file(stream) as reader:
        for number in chosen:
            batch = reader.get_batch(number)
            hashes: np.ndarray[Any, Any] = batch.column(_HASH).to_numpy()
            inside = (hashes >= np.uint64(wanted.low)) & (hashes <= np.uint64(wanted.high))
            part = batch.filter(pa.array(inside))
            if part.num_rows:
                yield part

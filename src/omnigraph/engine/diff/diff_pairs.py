"""Pair the rows of two versions by id, in order. Sorts on disk if there are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import StorageError
from omnigraph.store.tables.row_addresses import Addresses

INSERT, UPDATE, DELETE = 0, 1, 2

KEYS = pa.schema([("id", pa.string()), ("after", pa.bool_()), ("address", pa.uint64())])

# Limits of the database that sorts. Each thread needs some of the memory, so there are few threads on any
# machine.
SORT_MEMORY = "256MB"
SORT_THREADS = 4

_TABLE = "keys"


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Ids, ascending, with the address of each before and after.

    An insert (`ops`) has no address before and a delete none after; these are 0.
    """

    ids: pa.Array
    ops: npt.NDArray[np.int8]
    before: Addresses
    after: Addresses

    def __len__(self) -> int:
        return len(self.ids)

    def slice(self, start: int, stop: int) -> Pairs:
        """Return a range of the pairs."""
        part = np.s_[start:stop]
        return Pairs(self.ids.slice(start, stop - start), self.ops[part], self.before[part], self.after[part])

    def choose(self, mask: npt.NDArray[np.bool_]) -> Pairs:
        """Return the pairs selected by a mask."""
        return Pairs(self.ids.filter(pa.array(mask)), self.ops[mask], self.before[mask], self.after[mask])


@contextmanager
def open_pairs(
    keys: Iterable[pa.RecordBatch], in_memory_rows: int, directory: Path | None = None
) -> Iterator[Iterator[Pairs]]:
    """Pair keys: batches of the schema `KEYS`, all keys before in front of all keys after.

    More than `in_memory_rows` keys are sorted on disk, below `directory` or in the temporary directory. Temporary
    files are removed when the context ends.
    """
    incoming = iter(keys)
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in incoming:
        held.append(batch)
        rows += batch.num_rows
        if rows > in_memory_rows:
            break
    else:
        yield _pair_in_memory(held)
        return
    # A database is imported only for work of this size.
    from sqlglot import exp

    from omnigraph.engine.database_limits import DatabaseLimits
    from omnigraph.engine.duckdb import Workspace

    limits = DatabaseLimits(memory=SORT_MEMORY, threads=SORT_THREADS)
    with Workspace(directory or Path(tempfile.gettempdir()), limits) as workspace:
        workspace.append(_TABLE, chain(held, incoming))
        held.clear()
        order = exp.select("*").from_(exp.to_identifier(_TABLE)).order_by("id", "after")
        yield pair_sorted(workspace.stream(order))


def _pair_in_memory(batches: list[pa.RecordBatch]) -> Iterator[Pairs]:
    table = pa.Table.from_batches(batches, KEYS).combine_chunks()
    if table.num_rows:
        # A stable sort keeps the key before in front.
        rows = table.take(pc.sort_indices(table["id"]))
        yield _pair(rows, _starts(rows))


def pair_sorted(batches: Iterable[pa.RecordBatch]) -> Iterator[Pairs]:
    """Pair keys that are sorted by id and, within an id, by version. A batch may end between the two keys of an
    id.
    """
    waiting = KEYS.empty_table()
    for batch in batches:
        rows = pa.concat_tables([waiting, pa.Table.from_batches([batch]).cast(KEYS)]).combine_chunks()
        if not rows.num_rows:
            continue
        starts = _starts(rows)
        # The last id may continue in the next batch.
        cut = int(starts[-1])
        waiting = rows.slice(cut)
        if cut:
            yield _pair(rows.slice(0, cut), starts[:-1])
    if waiting.num_rows:
        yield _pair(waiting, np.zeros(1, np.int64))


def _starts(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Return the start of each id."""
    ids = rows["id"].combine_chunks()
    other: Any = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.flatnonzero(other) + 1])


def _pair(rows: pa.Table, starts: npt.NDArray[np.int64]) -> Pairs:
    after: npt.NDArray[np.bool_] = rows["after"].to_numpy()
    addresses: Addresses = rows["address"].to_numpy()
    sizes = np.diff(starts, append=rows.num_rows)
    paired = sizes > 1
    lasts = starts + sizes - 1
    if (sizes > 2).any() or (after[starts] & paired).any() or not after[lasts[paired]].all():
        raise StorageError("the table is corrupt: a version has two rows with one id")
    ops = np.where(paired, UPDATE, np.where(after[starts], INSERT, DELETE)).astype(np.int8)
    none = np.uint64(0)
    return Pairs(
        rows["id"].combine_chunks().take(pa.array(starts)),
        ops,
        np.where(ops != INSERT, addresses[starts], none),
        np.where(ops != DELETE, addresses[lasts], none),
    )

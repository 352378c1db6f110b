"""The vectors of some rows of a table in batches: searching a table does not load all of its vectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from omnigraph.budget.query_budget import require_bytes
from omnigraph.catalog.columns import arrow_type
from omnigraph.engine.memory.cached_table import CachedTable, Ordinals, type_bytes
from omnigraph.engine.memory.row_numbers import NumberedFragment
from omnigraph.engine.memory.table_versions import is_small
from omnigraph.store.tables.vector_search import BATCH_BYTES, read_vectors
from omnigraph.store.tables.version_diff import Slice

# Arrays in memory at a time for each batch: the vectors, and copies in double precision.
_COPIES = 6


def vector_batches(table: CachedTable, name: str, ordinals: Ordinals) -> Iterator[tuple[Ordinals, pa.Array]]:
    """Yield positions and their vectors, in no particular order. `ordinals` are distinct and ascending.

    Vectors of small new fragments are kept in memory; all others are read from storage.
    """
    physical = table.layout.physical(name)
    row_bytes = type_bytes(arrow_type(next(item.type for item in table.layout.columns if item.name == name)))
    require_bytes(_COPIES * int(min(BATCH_BYTES + row_bytes, row_bytes * len(ordinals))))
    small: list[tuple[NumberedFragment, Ordinals]] = []
    slices: list[Slice] = []
    for item, offsets in split_by_fragment(table, ordinals):
        if is_small(item.fragment):
            small.append((item, offsets))
            continue
        is_whole = len(offsets) == item.fragment.rows
        slices.append(Slice(item.fragment.id, None if is_whole else offsets.astype(np.uint32)))
    found = table.small_fragment_values(name, [item.fragment for item, _ in small])
    for (item, offsets), vectors in zip(small, found, strict=True):
        yield item.start + offsets, vectors.take(pa.array(offsets))
    if slices:
        with table.snapshot.reading():
            for addresses, vectors in read_vectors(
                table.snapshot.tables, table.pin, physical, row_bytes, slices
            ):
                yield table.numbers.positions(addresses), vectors


def split_by_fragment(table: CachedTable, ordinals: Ordinals) -> Iterator[tuple[NumberedFragment, Ordinals]]:
    """Yield each fragment that has some of the rows, and their offsets in it. `ordinals` ascend."""
    items = table.numbers.items
    starts = np.searchsorted(ordinals, [item.start for item in items])
    ends = np.append(starts[1:], len(ordinals))
    for item, start, end in zip(items, starts.tolist(), ends.tolist(), strict=True):
        if start < end:
            yield item, ordinals[start:end] - item.start

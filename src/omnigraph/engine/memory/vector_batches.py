"""The vectors of some rows of a table in batches: searching a table does not load all of its vectors."""

from __future__ import annotations

from collections.abc import Container, Iterator

import numpy as np
import pyarrow as pa

from omnigraph.budget.query_budget import require_bytes
from omnigraph.catalog.columns import arrow_type
from omnigraph.engine.memory.cached_table import CachedTable, Ordinals, type_bytes
from omnigraph.engine.memory.row_numbers import NumberedFragment
from omnigraph.engine.memory.table_versions import is_small
from omnigraph.store.tables.vector_files import find_vector_files
from omnigraph.store.tables.vector_search import BATCH_BYTES, batch_rows, read_vectors
from omnigraph.store.tables.version_diff import Slice

# Arrays in memory at a time for each batch: the vectors, and copies in double precision.
_COPIES = 6


def vector_batches(table: CachedTable, name: str, ordinals: Ordinals) -> Iterator[tuple[Ordinals, pa.Array]]:
    """Yield positions and their vectors, in no particular order. `ordinals` are distinct and ascending.

    Vectors of small new fragments are kept in memory; all others are read from storage, those of a local disk
    without Lance if their layout is known.
    """
    physical = table.layout.physical(name)
    row_bytes = type_bytes(arrow_type(next(item.type for item in table.layout.columns if item.name == name)))
    require_bytes(_COPIES * int(min(BATCH_BYTES + row_bytes, row_bytes * len(ordinals))))
    parts = list(split_by_fragment(table, ordinals))
    small = [(item, offsets) for item, offsets in parts if is_small(item.fragment)]
    large = [(item, offsets) for item, offsets in parts if not is_small(item.fragment)]
    found = table.small_fragment_values(name, [item.fragment for item, _ in small])
    for (item, offsets), vectors in zip(small, found, strict=True):
        yield item.start + offsets, vectors.take(pa.array(offsets))
    if not large:
        return
    tables, pin = table.snapshot.tables, table.pin
    with table.snapshot.reading():
        files = find_vector_files(tables, pin, physical, [item.fragment.id for item, _ in large])
        slices: list[Slice] = []
        step = batch_rows(row_bytes)
        for item, offsets in large:
            file = files.get(item.fragment.id)
            if file is None:
                is_whole = len(offsets) == item.fragment.rows
                slices.append(Slice(item.fragment.id, None if is_whole else offsets.astype(np.uint32)))
                continue
            for start in range(0, len(offsets), step):
                part = offsets[start : start + step]
                yield item.start + part, file.read(part)
        if slices:
            for addresses, vectors in read_vectors(tables, pin, physical, row_bytes, slices):
                yield table.numbers.positions(addresses), vectors


def split_by_fragment(
    table: CachedTable, ordinals: Ordinals, without: Container[int] = ()
) -> Iterator[tuple[NumberedFragment, Ordinals]]:
    """Yield each fragment that has some of the rows, and their offsets in it. `ordinals` ascend.

    Fragments whose id is in `without` are left out.
    """
    items = table.numbers.items
    starts = np.searchsorted(ordinals, [item.start for item in items])
    ends = np.append(starts[1:], len(ordinals))
    for item, start, end in zip(items, starts.tolist(), ends.tolist(), strict=True):
        if start < end and item.fragment.id not in without:
            yield item, ordinals[start:end] - item.start

"""Reads of vectors: approximate neighbours from an index, and vectors of rows in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.lang.schema import Metric
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import get_fragment
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.index_segments import index_kind
from omnigraph.store.tables.row_addresses import ROW_ADDRESS, Addresses, make_addresses
from omnigraph.store.tables.table_indexes import list_segments
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.vector_indexes import VectorIndexMethod
from omnigraph.store.tables.version_diff import Slice, take_addresses

# Vectors that are in memory at a time.
BATCH_BYTES: Final = 8 << 20
_MAX_BATCH_ROWS: Final = 8_192
_BATCHES_AHEAD: Final = 2
# Taking one row by address costs about as much as scanning this many rows.
_SCANNED_PER_TAKEN: Final = 16


@dataclass(frozen=True, slots=True)
class StoredVectorIndex:
    """The vector index of a column in one version, and the fragments that its segments cover.

    `fragments` may have fragments that no longer exist.
    """

    method: VectorIndexMethod
    fragments: frozenset[int]

    @property
    def nbytes(self) -> int:
        """Estimated bytes."""
        return 64 + 32 * len(self.fragments)


def find_vector_indexes(tables: Tables, pin: TablePin, column: str) -> list[StoredVectorIndex]:
    """Return the vector indexes of a physical column."""
    found: dict[VectorIndexMethod, frozenset[int]] = {}
    for segment in list_segments(tables, pin):
        if not segment.index.startswith(f"{column}_"):
            continue
        method = VectorIndexMethod.parse(index_kind(column, segment.index))
        if method is not None:
            found[method] = found.get(method, frozenset()) | segment.fragments
    return [StoredVectorIndex(method, fragments) for method, fragments in found.items()]


def search_vector_index(
    tables: Tables,
    pin: TablePin,
    column: str,
    query: Sequence[float],
    metric: Metric,
    count: int,
    nprobes: int,
) -> Addresses | None:
    """Return the addresses of about `count` rows that are nearest according to the index, in no particular order.

    Rows that no segment covers are not searched. Fewer rows are returned if the searched partitions have no more.
    None if the index is damaged.
    """
    dataset = tables.open(pin.path, pin.version)
    rows = tables.indexes.search(
        pin.path,
        dataset,
        columns=["_distance"],
        nearest={
            "column": column,
            "q": np.asarray(query, np.float32),
            "k": count,
            "metric": metric,
            "nprobes": nprobes,
        },
        fast_search=True,
        with_row_address=True,
        disable_scoring_autoprojection=True,
    )
    return None if rows is None else rows[ROW_ADDRESS].to_numpy()


def batch_rows(row_bytes: float) -> int:
    """Return the number of vectors that are read at a time."""
    return int(max(1, min(_MAX_BATCH_ROWS, BATCH_BYTES // max(1.0, row_bytes))))


def read_vectors(
    tables: Tables, pin: TablePin, column: str, row_bytes: float, slices: Sequence[Slice]
) -> Iterator[tuple[Addresses, pa.Array]]:
    """Yield the addresses and the vectors of rows, in no particular order and in batches of bounded size.

    Offsets of a slice belong to live rows and ascend. Fragments of which many rows are needed are scanned.
    """
    step = batch_rows(row_bytes)
    with translate_lance_errors(f"read {pin.path}"):
        dataset = tables.open(pin.path, pin.version)
        taken: list[Addresses] = []
        for item in slices:
            fragment = get_fragment(dataset, item.fragment)
            if item.offsets is not None and len(item.offsets) * _SCANNED_PER_TAKEN < fragment.physical_rows:
                taken.append(make_addresses(item.fragment, item.offsets))
                continue
            scanner = dataset.scanner(
                columns=[column],
                fragments=[fragment],
                with_row_address=True,
                scan_in_order=True,
                batch_size=step,
                batch_readahead=_BATCHES_AHEAD,
            )
            wanted = None if item.offsets is None else make_addresses(item.fragment, item.offsets)
            for batch in scanner.to_batches():
                addresses = batch.column(ROW_ADDRESS).to_numpy()
                vectors = batch.column(column)
                if wanted is not None:
                    nearby = np.minimum(np.searchsorted(wanted, addresses), len(wanted) - 1)
                    places = np.flatnonzero(wanted[nearby] == addresses)
                    addresses, vectors = addresses[places], vectors.take(pa.array(places))
                if len(addresses):
                    yield addresses, vectors
    if taken:
        addresses = np.concatenate(taken)
        for start in range(0, len(addresses), step):
            part = addresses[start : start + step]
            yield part, take_addresses(tables, pin, part, [column])[column].combine_chunks()

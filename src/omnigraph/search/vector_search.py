"""The rows of a table that are nearest to a vector, through the index where that pays off.

The index gives approximate neighbours among the rows that its segments cover. All other rows are compared exactly,
so a row is found in the commit that wrote it. The distances of neighbours are computed again from their vectors.
Distances and their order are therefore those of an exact search; only neighbours that the index did not find are
missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.budget.deadline import check_deadline
from omnigraph.engine.memory.cached_table import NO_ROWS, CachedTable, Ordinals
from omnigraph.engine.memory.vector_batches import split_by_fragment, vector_batches
from omnigraph.lang.schema import Metric, VectorIndexKind
from omnigraph.search.nearest_rows import NearestRows
from omnigraph.search.vector_distance import check_dimension, nearest_distances
from omnigraph.store.tables.vector_search import (
    StoredVectorIndex,
    batch_rows,
    find_vector_indexes,
    search_vector_index,
)

Distances: TypeAlias = npt.NDArray[np.float64]

# A segment has a partition for so many rows. The nearest rows are in more partitions if there are more of them.
MIN_NPROBES: Final = 20
_PARTITION_ROWS: Final = 4_096
_NPROBES_PER_ROOT: Final = 4
# A product quantization orders the neighbours less exactly than the others.
DEFAULT_REFINE: Final[dict[VectorIndexKind, int]] = {"ivf_rq": 5, "ivf_pq": 20, "hnsw": 5}
# Comparing vectors with so many numbers in all costs about as much as a search of the index: those that Lance takes
# by address, and those that are read from local files (`vector_files`).
_EXACT_NUMBERS: Final = 640_000
_LOCAL_EXACT_NUMBERS: Final = 2_048_000
_MIN_LOCAL_DIMENSION: Final = 64
_MAX_LOCAL_EXACT_ROWS: Final = 20_000
MIN_EXACT_ROWS: Final = 1_000
MAX_EXACT_ROWS: Final = 10_000
# The index is asked for at least so many neighbours.
_MIN_NEIGHBOURS: Final = 50
# Of so many rows, fewer neighbours for each are compared.
_MANY_ROWS: Final = 200
# One more partition is searched for so many neighbours.
_NEIGHBOURS_PER_PARTITION: Final = 512
# Neighbours that the index is asked for beyond the expected number, when only some rows are candidates.
_SURPLUS: Final = 1.5
# The squared length of a query vector with which distances in single precision neither overflow nor vanish.
_LENGTHS: Final = (1e-30, 1e30)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a query wants an index to be searched, as in `lang.ir.SearchOptions`. `refine` depends on the index."""

    exact: bool = False
    nprobes: int | None = None
    refine: int | None = None

    def nprobes_for(self, rows: int) -> int:
        """Return the number of partitions to search of an index that covers so many rows.

        >>> [SearchSettings().nprobes_for(rows) for rows in (10_000, 200_000, 1_000_000)]
        [20, 28, 62]
        >>> SearchSettings(nprobes=5).nprobes_for(1_000_000)
        5
        """
        if self.nprobes is not None:
            return self.nprobes
        return max(MIN_NPROBES, round(_NPROBES_PER_ROOT * math.sqrt(rows / _PARTITION_ROWS)))

    def refine_for(self, index: StoredVectorIndex, count: int = 1) -> int:
        """Return the number of neighbours for each of `count` rows whose exact distance is computed.

        By default it is smaller for many rows: the order of neighbours is rough, and few of them are near its end.
        """
        if self.refine is not None:
            return self.refine
        usual = DEFAULT_REFINE[index.method.kind]
        return usual if count < _MANY_ROWS else max(1, usual // 2)


DEFAULT_SETTINGS: Final = SearchSettings()


@dataclass(frozen=True, slots=True)
class SearchPath:
    """How candidates are searched, and why. Without an index, all of them are compared exactly.

    `uncovered` and `covered` are the numbers of rows of the table that the index does not cover, and covers.
    """

    index: StoredVectorIndex | None
    reason: str
    uncovered: int = 0
    covered: int = 0


@dataclass(frozen=True)
class VectorSearch:
    """A search of the rows of a table by the distance of one of their vectors from a query vector."""

    table: CachedTable
    name: str
    query: tuple[float, ...]
    metric: Metric = "l2"
    settings: SearchSettings = DEFAULT_SETTINGS

    def distances(self, ordinals: Ordinals) -> tuple[Ordinals, Distances]:
        """Return those of some rows that have a vector, and their distances. `ordinals` are distinct and ascend."""
        column = self.table.cached_vectors(self.name, len(ordinals))
        if column is not None:
            return nearest_distances(column, ordinals, self.query, self.metric)
        distances = np.empty(len(ordinals))
        known = np.zeros(len(ordinals), np.bool_)
        for positions, vectors in vector_batches(self.table, self.name, ordinals):
            check_deadline()
            rows, found = nearest_distances(vectors, np.arange(len(vectors)), self.query, self.metric)
            places = np.searchsorted(ordinals, positions[rows])
            distances[places] = found
            known[places] = True
        return ordinals[known], distances[known]

    def nearest(self, ordinals: Ordinals, count: int) -> tuple[Ordinals, Distances]:
        """Return the `count` nearest of some rows, ascending by position, and those as near as the last of them.

        `ordinals` are distinct and ascend. Fewer rows are returned only if fewer have a vector.
        """
        check_dimension(self.table.vector_dimension(self.name), self.query)
        path = self.path(len(ordinals))
        if path.index is not None and count < len(ordinals):
            neighbours = self._neighbours(
                ordinals,
                count * self.settings.refine_for(path.index, count),
                self.settings.nprobes_for(path.covered),
            )
            if neighbours is not None:
                uncovered = [
                    item.start + offsets
                    for item, offsets in split_by_fragment(self.table, ordinals, path.index.fragments)
                ]
                # Ascending parts without common rows are merged.
                compared = np.sort(np.concatenate([neighbours, *uncovered]), kind="stable")
                found, distances = self._compare(compared, count)
                # An index has no vectors with a NaN or an infinity in them.
                if np.count_nonzero(np.isfinite(distances)) >= count:
                    return found, distances
        return self._compare(ordinals, count)

    def _compare(self, ordinals: Ordinals, count: int) -> tuple[Ordinals, Distances]:
        """Return the `count` nearest of some rows by their exact distances, ascending by position."""
        if count <= 0:
            return NO_ROWS, np.zeros(0)
        nearest = NearestRows(self.query, self.metric, count)
        column = self.table.cached_vectors(self.name, len(ordinals))
        if column is None:
            for positions, vectors in vector_batches(self.table, self.name, ordinals):
                check_deadline()
                nearest.add(positions, vectors)
            return nearest.result()
        step = batch_rows(4.0 * column.type.list_size)
        for start in range(0, len(ordinals), step):
            check_deadline()
            part = ordinals[start : start + step]
            first, last = int(part[0]), int(part[-1])
            is_run = last - first + 1 == len(part)
            nearest.add(part, column[first : last + 1] if is_run else column.take(pa.array(part)))
        return nearest.result()

    def path(self, candidates: int) -> SearchPath:
        """Return how so many candidates are searched."""
        if self.settings.exact:
            return SearchPath(None, "the option `exact`")
        is_local = self.table.snapshot.tables.root.local is not None
        few = exact_rows(self.table.vector_dimension(self.name), is_local=is_local)
        if candidates <= few:
            return SearchPath(None, f"at most {few:,} candidates")
        indexes = self.table.cache.get_or_build(
            ("vector index", self.table.pin.path, self.table.layout.physical(self.name)),
            self.table.pin.version,
            self._stored_indexes,
        ).items
        if not indexes:
            return SearchPath(None, "the property has no index")
        index = next((item for item in indexes if item.method.metric == self.metric), None)
        if index is None:
            return SearchPath(None, f"the index is for the metric {indexes[0].method.metric}")
        rows = self.table.num_rows
        covered = sum(item.rows for item in self.table.fragments() if item.id in index.fragments)
        if not self.table.snapshot.tables.indexes.is_intact(self.table.pin.path, self.table.pin.version):
            return SearchPath(None, "an index of the table is damaged")
        if covered * candidates <= few * rows:
            return SearchPath(None, f"the index covers about {covered * candidates // rows:,} candidates")
        if not _is_searchable(self.query, self.metric):
            return SearchPath(None, "the query vector is too long or too short for an index")
        return SearchPath(index, f"more than {few:,} candidates", rows - covered, covered)

    def _stored_indexes(self) -> _StoredIndexes:
        with self.table.snapshot.reading():
            physical = self.table.layout.physical(self.name)
            found = find_vector_indexes(self.table.snapshot.tables, self.table.pin, physical)
        return _StoredIndexes(tuple(found))

    def _neighbours(self, ordinals: Ordinals, count: int, nprobes: int) -> Ordinals | None:
        """Return the `count` candidates that are nearest according to the index, or more of them.

        Returns fewer if the index has no more, and None if an exact search costs less. If not all rows are
        candidates, the index is asked for more neighbours until enough of them are.
        """
        numbers = self.table.numbers
        wanted = max(count, _MIN_NEIGHBOURS)
        is_candidate: npt.NDArray[np.bool_] | None = None
        asked = wanted
        if len(ordinals) < self.table.num_rows:
            is_candidate = np.zeros(numbers.size, np.bool_)
            is_candidate[ordinals] = True
            asked = math.ceil(_SURPLUS * wanted * self.table.num_rows / len(ordinals))
            if self.settings.nprobes is None:
                # The nearest of some rows are farther from the query than those of all, and in more partitions.
                nprobes = math.ceil(nprobes * (asked / wanted) ** 0.25)
        searched = -1
        while asked < len(ordinals):
            check_deadline()
            positions = self._search(asked, nprobes + asked // _NEIGHBOURS_PER_PARTITION)
            if positions is None:
                return None
            found = positions if is_candidate is None else positions[is_candidate[positions]]
            if len(found) >= wanted:
                return found
            if len(positions) >= asked:
                asked = math.ceil(asked * max(2.0, _SURPLUS * wanted / max(1, len(found))))
            elif len(positions) == searched:
                # More partitions have no more rows: all of them were searched.
                return found
            else:
                searched = len(positions)
                nprobes *= 4
        return None

    def _search(self, count: int, nprobes: int) -> Ordinals | None:
        table = self.table
        with table.snapshot.reading():
            physical = table.layout.physical(self.name)
            addresses = search_vector_index(
                table.snapshot.tables, table.pin, physical, self.query, self.metric, count, nprobes
            )
        return None if addresses is None else np.sort(table.numbers.positions(addresses))


@dataclass(frozen=True, slots=True)
class _StoredIndexes:
    items: tuple[StoredVectorIndex, ...]

    @property
    def nbytes(self) -> int:
        return 64 + sum(item.nbytes for item in self.items)


def exact_rows(dimension: int, *, is_local: bool = False) -> int:
    """Return the number of candidates up to which vectors of a dimension are compared without an index.

    >>> exact_rows(16), exact_rows(128), exact_rows(1536)
    (10000, 5000, 1000)
    >>> exact_rows(16, is_local=True), exact_rows(128, is_local=True), exact_rows(1536, is_local=True)
    (10000, 16000, 1333)
    """
    if is_local and dimension >= _MIN_LOCAL_DIMENSION:
        return min(_MAX_LOCAL_EXACT_ROWS, max(MIN_EXACT_ROWS, _LOCAL_EXACT_NUMBERS // dimension))
    return min(MAX_EXACT_ROWS, max(MIN_EXACT_ROWS, _EXACT_NUMBERS // dimension))


def _is_searchable(query: tuple[float, ...], metric: Metric) -> bool:
    """Return whether an index can rank by the query, for which it computes in single precision."""
    length = sum(item * item for item in query)
    return length <= _LENGTHS[1] and (metric == "l2" or length >= _LENGTHS[0])

"""The adjacency of one edge type in one direction in compressed sparse row form (CSR), and one-hop kernels.

Nodes and edges are dense ordinals of their tables. Every kernel takes a *frontier*: an array of source ordinals,
which may repeat. A source of -1 is a null binding, which has no neighbours. Results refer to frontier entries by
their index, the *row*. The memory of a kernel is proportional to its result, which may be a read-only view of the
adjacency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.errors import InvalidInput

Ordinals: TypeAlias = npt.NDArray[np.int32]
Positions: TypeAlias = npt.NDArray[np.int64]
Frontier: TypeAlias = npt.NDArray[np.signedinteger[Any]]
Mask: TypeAlias = npt.NDArray[np.bool_]

# Binary searches that run at a time, so that their temporaries stay in the processor's cache.
_SEARCH_BLOCK = 1 << 15
# For at most this many sources, parallel edges are removed from the result instead of from the whole adjacency.
_FEW_SOURCES = 1_024
_NO_TARGETS = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """The targets of every source without parallel edges. Those of source `s` are ascending and distinct."""

    offsets: Positions
    targets: Ordinals


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Edges grouped by source, and within a source sorted by target, then edge. The arrays are read-only.

    `n_pairs` is the number of distinct (source, target) pairs. It is less than the number of edges exactly if
    there are parallel edges.

    >>> adjacency = Adjacency.build(np.array([0, 0, 1, 0]), np.array([1, 0, 1, 1]), n_sources=2, n_targets=2)
    >>> adjacency.offsets.tolist(), adjacency.targets.tolist(), adjacency.edges.tolist()
    ([0, 3, 4], [0, 1, 1, 1], [1, 0, 3, 2])
    >>> adjacency.simple.targets.tolist()
    [0, 1, 1]
    """

    offsets: Positions
    targets: Ordinals
    edges: Ordinals
    n_targets: int
    n_pairs: int
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __post_init__(self) -> None:
        for array in (self.offsets, self.targets, self.edges):
            array.flags.writeable = False

    @classmethod
    def build(
        cls,
        sources: Frontier,
        targets: Frontier,
        n_sources: int,
        n_targets: int,
        edges: Frontier | None = None,
    ) -> Adjacency:
        """Build the adjacency in which edge ``edges[i]``, by default `i`, goes from ``sources[i]`` to
        ``targets[i]``.

        Raises `InvalidInput` for an ordinal out of range.
        """
        if edges is None:
            edges = np.arange(len(sources), dtype=np.int32)
        _check_ordinals(sources, n_sources)
        _check_ordinals(targets, n_targets)
        offsets = np.zeros(n_sources + 1, dtype=np.int64)
        np.cumsum(np.bincount(sources, minlength=n_sources), out=offsets[1:])
        sorted_targets, sorted_edges = _sort_by_source(sources, targets, edges)
        n_pairs = int(np.count_nonzero(_first_of_pair(offsets, sorted_targets)))
        return cls(offsets, sorted_targets, sorted_edges, n_targets, n_pairs)

    @property
    def n_sources(self) -> int:
        """The number of nodes on the source side."""
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, including those of `simple` whether or not they have been built."""
        held = self.offsets.nbytes + self.targets.nbytes + self.edges.nbytes
        if self.n_pairs == len(self.targets):
            return held
        return held + self.offsets.nbytes + self.n_pairs * self.targets.itemsize

    @property
    def has_simple(self) -> bool:
        """Whether `simple` is available without building it."""
        return "_simple" in self.__dict__ or self.n_pairs == len(self.targets)

    @property
    def simple(self) -> Neighbours:
        """The adjacency without parallel edges. Built once; shares the arrays if there are no parallel edges."""
        with self._lock:
            return self._simple

    @cached_property
    def _simple(self) -> Neighbours:
        if self.n_pairs == len(self.targets):
            return Neighbours(self.offsets, self.targets)
        kept = np.flatnonzero(_first_of_pair(self.offsets, self.targets))
        found = Neighbours(np.searchsorted(kept, self.offsets), self.targets.take(kept))
        found.offsets.flags.writeable = found.targets.flags.writeable = False
        return found

    def extended(
        self, sources: Frontier, targets: Frontier, edges: Frontier, n_sources: int, n_targets: int
    ) -> Adjacency:
        """Return the adjacency with more edges, and possibly more nodes at the end of either side.

        The ordinals of the edges must be new. Costs a copy of the arrays and a sort of the new edges.
        """
        added = Adjacency.build(sources, targets, n_sources, n_targets, edges)
        offsets = np.concatenate(
            [self.offsets, np.full(n_sources - self.n_sources, self.offsets[-1], dtype=np.int64)]
        )
        new_sources = np.repeat(np.arange(n_sources), np.diff(added.offsets))
        # The old edges of the same pair are in [start, stop), ascending.
        start, stop = _pair_ranges(
            self.targets, offsets[new_sources], offsets[new_sources + 1], added.targets
        )
        places = _lower_bound(self.edges, start, stop, added.edges)
        new_pairs = np.count_nonzero(_first_of_pair(added.offsets, added.targets) & (start == stop))
        return Adjacency(
            offsets + added.offsets,
            np.insert(self.targets, places, added.targets),
            np.insert(self.edges, places, added.edges),
            n_targets,
            self.n_pairs + int(new_pairs),
        )

    def without(self, edges: Frontier) -> Adjacency:
        """Return the adjacency without some edges. Costs a copy of the arrays."""
        gone = np.zeros(int(self.edges.max(initial=0)) + 1, np.bool_)
        gone[edges] = True
        kept = np.flatnonzero(~gone[self.edges])
        offsets = np.searchsorted(kept, self.offsets)
        targets = self.targets.take(kept)
        n_pairs = int(np.count_nonzero(_first_of_pair(offsets, targets)))
        return Adjacency(offsets, targets, self.edges.take(kept), self.n_targets, n_pairs)


def degrees(adj: Adjacency, frontier: Frontier, *, unique: bool) -> Positions:
    """Return the number of edges of every frontier entry, or with `unique` of distinct targets."""
    start, stop = _source_ranges(adj.simple.offsets if unique else adj.offsets, frontier)
    return stop - start


def expand_total(adj: Adjacency, frontier: Frontier, unique: bool) -> int:
    """Return the number of rows of `expand_unique`, or if not `unique` of `expand_edges`."""
    return int(degrees(adj, frontier, unique=unique).sum())


def expand_edges(adj: Adjacency, frontier: Frontier) -> tuple[Positions, Ordinals, Ordinals]:
    """Return one (row, target, edge) for every edge of every frontier entry; rows ascend."""
    start, stop = _source_ranges(adj.offsets, frontier)
    rows, places = flatten_ranges(start, stop)
    return rows, _take(adj.targets, places), _take(adj.edges, places)


def expand_unique(adj: Adjacency, frontier: Frontier) -> tuple[Positions, Ordinals]:
    """Return one (row, target) for every distinct target of every frontier entry; both ascend."""
    if len(frontier) == 1:
        return _expand_one(adj, int(frontier[0]))
    if len(frontier) <= _FEW_SOURCES and not adj.has_simple:
        rows, targets, _ = expand_edges(adj, frontier)
        first = np.ones(len(rows), np.bool_)
        first[1:] = (rows[1:] != rows[:-1]) | (targets[1:] != targets[:-1])
        return rows[first], targets[first]
    simple = adj.simple
    start, stop = _source_ranges(simple.offsets, frontier)
    rows, places = flatten_ranges(start, stop)
    return rows, _take(simple.targets, places)


def _expand_one(adj: Adjacency, source: int) -> tuple[Positions, Ordinals]:
    """Return the distinct targets of a single source, without array arithmetic."""
    simple = adj.simple if adj.has_simple else adj
    found = (
        simple.targets[simple.offsets[source] : simple.offsets[source + 1]] if source >= 0 else _NO_TARGETS
    )
    if simple is adj and len(found) > 1:
        first = np.empty(len(found), np.bool_)
        first[0] = True
        np.not_equal(found[1:], found[:-1], out=first[1:])
        found = found[first]
    return np.zeros(len(found), np.int64), found


def connected(adj: Adjacency, left: Frontier, right: Frontier) -> Mask:
    """Return whether an edge goes from ``left[i]`` to ``right[i]``."""
    start, stop = _source_ranges(adj.offsets, left)
    if not adj.targets.size:
        return np.zeros(len(left), dtype=np.bool_)
    place = _lower_bound(adj.targets, start, stop, right)
    found: Mask = (place < stop) & (adj.targets.take(place, mode="clip") == right)
    return found


def connecting_edges(adj: Adjacency, left: Frontier, right: Frontier) -> tuple[Positions, Ordinals]:
    """Return one (row, edge) for every edge from ``left[i]`` to ``right[i]``; rows ascend."""
    start, stop = _source_ranges(adj.offsets, left)
    rows, places = flatten_ranges(*_pair_ranges(adj.targets, start, stop, right))
    return rows, _take(adj.edges, places)


def split_by_weight(weights: Positions, limit: int) -> Iterator[slice]:
    """Split a sequence into consecutive slices whose weights sum to at most `limit`, or that have one item.

    >>> list(split_by_weight(np.array([3, 3, 9, 0, 1]), 6))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 5, None)]
    """
    reached = np.cumsum(weights)
    start, done = 0, 0
    while start < len(weights):
        stop = max(int(np.searchsorted(reached, done + limit, side="right")), start + 1)
        yield slice(start, stop)
        start, done = stop, int(reached[stop - 1])


def flatten_ranges(start: Positions, stop: Positions) -> tuple[Positions, Positions | slice]:
    """Return the members of ranges in order, each with the index of its range.

    Adjacent ranges without gaps are returned as one slice, which avoids a copy of the selected values.

    >>> rows, members = flatten_ranges(np.array([7, 4, 1]), np.array([9, 4, 3]))
    >>> rows.tolist(), members.tolist()
    ([0, 0, 2, 2], [7, 8, 1, 2])
    """
    counts = stop - start
    rows = np.repeat(np.arange(len(counts)), counts)
    if len(counts) and (start[1:] == stop[:-1]).all():
        return rows, slice(int(start[0]), int(stop[-1]))
    shift = start - (np.cumsum(counts) - counts)
    return rows, np.arange(len(rows)) + shift.take(rows)


def _take(values: Ordinals, places: Positions | slice) -> Ordinals:
    return values[places] if isinstance(places, slice) else values.take(places)


def _source_ranges(offsets: Positions, frontier: Frontier) -> tuple[Positions, Positions]:
    start, stop = offsets[frontier], offsets[frontier + 1]
    # For -1 this reads the last offset as start and the first as stop; the maximum makes the range empty.
    return start, np.maximum(start, stop)


def _pair_ranges(
    targets: Ordinals, start: Positions, stop: Positions, keys: Frontier
) -> tuple[Positions, Positions]:
    """Return the part of each range of targets that equals the given target."""
    first = _lower_bound(targets, start, stop, keys)
    return first, _lower_bound(targets, first, stop, keys.astype(np.int64) + 1)


def _lower_bound(values: Ordinals, start: Positions, stop: Positions, keys: Frontier) -> Positions:
    """Return for every sorted range of values the first position that is not less than the given value, else its
    end.
    """
    found = start.copy()
    for low in range(0, len(found), _SEARCH_BLOCK):
        block = slice(low, low + _SEARCH_BLOCK)
        _binary_search(values, found[block], stop[block], keys[block])
    return found


def _binary_search(values: Ordinals, place: Positions, stop: Positions, keys: Frontier) -> None:
    """Advance every position in steps of decreasing powers of two while the skipped values are less than the
    target.
    """
    step = (1 << int((stop - place).max(initial=0)).bit_length()) >> 1
    while step:
        wide = np.flatnonzero(stop - place >= step)
        here = place.take(wide)
        less = values.take(here + (step - 1)) < keys.take(wide)
        place[wide] = here + step * less
        step >>= 1


def _first_of_pair(offsets: Positions, targets: Ordinals) -> Mask:
    """Mark the first edge of every (source, target) pair."""
    first = np.ones(len(targets), dtype=np.bool_)
    np.not_equal(targets[1:], targets[:-1], out=first[1:])
    # The first edge of a source may have the same target as the last edge of the previous source.
    starts = offsets[:-1]
    first[starts[starts < len(targets)]] = True
    return first


def _sort_by_source(sources: Frontier, targets: Frontier, edges: Frontier) -> tuple[Ordinals, Ordinals]:
    """Return targets and edges in the order of (source, target, edge).

    Sorting packed integers is several times faster than sorting positions by several keys.
    """
    target_bits, edge_bits = _bits(targets), _bits(edges)
    wide_targets, wide_edges = targets.astype(np.int64), edges.astype(np.int64)
    if _bits(sources) + target_bits + edge_bits <= 63:
        packed = sources.astype(np.int64) << target_bits + edge_bits
        packed |= wide_targets << edge_bits
        packed |= wide_edges
        packed.sort()
        sorted_edges = (packed & (1 << edge_bits) - 1).astype(np.int32)
        packed >>= edge_bits
        packed &= (1 << target_bits) - 1
        return packed.astype(np.int32), sorted_edges
    order = np.argsort(wide_targets << 32 | wide_edges)
    ranked = sources.take(order).astype(np.int64) << 32 | np.arange(len(order))
    ranked.sort()
    order = order.take(ranked & 0xFFFFFFFF)
    return targets.take(order).astype(np.int32), edges.take(order).astype(np.int32)


def _bits(ordinals: Frontier) -> int:
    return int(ordinals.max(initial=0)).bit_length()


def _check_ordinals(ordinals: Frontier, size: int) -> None:
    if len(ordinals) and (ordinals.min() < 0 or ordinals.max() >= size):
        raise InvalidInput(
            f"an edge endpoint is outside the node ordinals 0..{size - 1}",
            details={"least": int(ordinals.min()), "greatest": int(ordinals.max()), "nodes": size},
        )

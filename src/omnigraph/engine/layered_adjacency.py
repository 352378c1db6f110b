"""An adjacency as a base and a small delta of added and removed edges, and the one-hop kernels over both.

A write costs the size of the delta instead of the size of the graph. The sources of changed edges are *touched*. A
kernel answers untouched frontier entries from the base. For the touched ones it collects their edges from base and
delta into an adjacency of their own, so every kernel returns exactly what it returns on a folded adjacency.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from omnigraph.engine import csr
from omnigraph.engine.csr import Adjacency, Frontier, Mask, Ordinals, Positions, flatten_ranges

# The delta is folded into the base when it has more edges than this, and than this share of the base. The cost of
# folds per added edge is thus bounded, and so is the cost of extending the delta.
MAX_DELTA = 4_096
MAX_DELTA_SHARE = 256
# Searching one source among the touched ones costs as much as setting this many flags.
_SEARCHED_PER_FLAG = 64


@dataclass(frozen=True, slots=True, eq=False)
class EdgeList:
    """Edges with their sources and targets, in no particular order."""

    sources: Frontier
    targets: Frontier
    edges: Frontier

    def __len__(self) -> int:
        """The number of edges."""
        return len(self.edges)


@dataclass(frozen=True, eq=False)
class LayeredAdjacency:
    """A base, the edges added to it, and the edges of the base that were removed. The arrays are read-only.

    `added` is sorted by source. `removed` has the edges of the base that are gone, ascending, and
    `removed_sources` their sources, ascending.

    >>> base = Adjacency.build(np.array([0, 0, 1]), np.array([1, 0, 1]), n_sources=2, n_targets=2)
    >>> adjacency = LayeredAdjacency.of(base).changed(
    ...     EdgeList(np.array([1]), np.array([2]), np.array([3])),
    ...     EdgeList(np.array([0]), np.array([0]), np.array([1])), 3, 3)
    >>> rows, targets, edges = expand_edges(adjacency, np.array([1, 0, 2]))
    >>> rows.tolist(), targets.tolist(), edges.tolist()
    ([0, 0, 1], [1, 2, 1], [2, 3, 0])
    """

    base: Adjacency
    added: EdgeList
    removed: Frontier
    removed_sources: Frontier
    n_sources: int
    n_targets: int

    @classmethod
    def of(cls, base: Adjacency) -> LayeredAdjacency:
        """Return a base without changes."""
        none = np.empty(0, np.int32)
        return cls(base, EdgeList(none, none, none), none, none, base.n_sources, base.n_targets)

    @property
    def nbytes(self) -> int:
        """Bytes of the base and the delta."""
        return self.base.nbytes + sum(int(item.nbytes) for item in self.delta_arrays)

    @property
    def delta_arrays(self) -> tuple[Frontier, ...]:
        """The arrays of the delta."""
        return *self._added, self.removed, self.removed_sources

    @property
    def is_changed(self) -> bool:
        """Whether kernels must look at more than the base."""
        return bool(
            self.delta_size or self.n_sources > self.base.n_sources or self.n_targets > self.base.n_targets
        )

    @property
    def _added(self) -> tuple[Frontier, Frontier, Frontier]:
        return self.added.sources, self.added.targets, self.added.edges

    @property
    def delta_size(self) -> int:
        """The number of edges in the delta."""
        return len(self.added) + len(self.removed)

    @cached_property
    def touched(self) -> Frontier:
        """The sources of added and removed edges, ascending and distinct."""
        return np.union1d(self.added.sources, self.removed_sources)

    @cached_property
    def _is_touched(self) -> Mask:
        """A flag for every source. The last one is that of -1, a null binding."""
        flags = np.zeros(self.n_sources + 1, np.bool_)
        flags[self.touched] = True
        return flags

    def changed(self, added: EdgeList, removed: EdgeList, n_sources: int, n_targets: int) -> LayeredAdjacency:
        """Return the adjacency with more and without some edges, and possibly more nodes at the end of either side.

        Edges that are removed must be in the adjacency, and the numbers of added edges must be new.
        """
        sources, targets, edges = self._added
        gone, gone_sources = self.removed, self.removed_sources
        if len(removed):
            in_delta = np.isin(edges, removed.edges)
            of_base = ~np.isin(removed.edges, edges)
            sources, targets, edges = sources[~in_delta], targets[~in_delta], edges[~in_delta]
            # An undirected adjacency has every edge under both of its ends.
            gone = np.union1d(gone, removed.edges[of_base])
            gone_sources = np.union1d(gone_sources, removed.sources[of_base])
        if len(added):
            order = np.argsort(added.sources, kind="stable")
            places = np.searchsorted(sources, added.sources[order], side="right")
            sources = np.insert(sources, places, added.sources[order])
            targets = np.insert(targets, places, added.targets[order])
            edges = np.insert(edges, places, added.edges[order])
        return LayeredAdjacency(
            self.base, EdgeList(sources, targets, edges), gone, gone_sources, n_sources, n_targets
        )

    def folded(self) -> Adjacency:
        """Return the adjacency without a delta. Costs a copy of the base."""
        base = self.base.without(self.removed) if len(self.removed) else self.base
        if not len(self.added) and (base.n_sources, base.n_targets) == (self.n_sources, self.n_targets):
            return base
        return base.extended(*self._added, self.n_sources, self.n_targets)

    @property
    def needs_fold(self) -> bool:
        """Whether the delta is too large."""
        return self.delta_size > max(MAX_DELTA, len(self.base.edges) // MAX_DELTA_SHARE)

    def split(self, frontier: Frontier) -> tuple[Frontier, Positions]:
        """Return the frontier of the base, and the rows of the touched entries, which are null in it."""
        if len(frontier) * _SEARCHED_PER_FLAG > self.n_sources:
            rows = np.flatnonzero(self._is_touched[frontier])
        else:
            rows = np.flatnonzero(_contains(self.touched, frontier))
        if self.base.n_sources < self.n_sources:
            frontier = np.where(frontier < self.base.n_sources, frontier, -1)
        if len(rows):
            frontier = np.array(frontier)
            frontier[rows] = -1
        return frontier, rows

    def collect(self, sources: Frontier) -> tuple[Adjacency, Frontier]:
        """Return an adjacency of these touched sources, and the number of each of them in it."""
        distinct, numbers = np.unique(sources, return_inverse=True)
        of_base = np.where(distinct < self.base.n_sources, distinct, -1)
        rows, targets, edges = csr.expand_edges(self.base, of_base)
        if len(self.removed):
            kept = ~_contains(self.removed, edges)
            rows, targets, edges = rows[kept], targets[kept], edges[kept]
        start = np.searchsorted(self.added.sources, distinct)
        stop = np.searchsorted(self.added.sources, distinct, side="right")
        new_rows, places = flatten_ranges(start, stop)
        return (
            Adjacency.build(
                np.concatenate([rows, new_rows]),
                np.concatenate([targets, self.added.targets[places]]),
                len(distinct),
                self.n_targets,
                np.concatenate([edges, self.added.edges[places]]),
            ),
            numbers,
        )


AnyAdjacency: TypeAlias = Adjacency | LayeredAdjacency


def degrees(adj: AnyAdjacency, frontier: Frontier, *, unique: bool) -> Positions:
    """Return the number of edges of every frontier entry, or with `unique` of distinct targets."""
    if isinstance(adj, Adjacency):
        return csr.degrees(adj, frontier, unique=unique)
    untouched, rows = adj.split(frontier)
    found = csr.degrees(adj.base, untouched, unique=unique)
    if len(rows):
        patch, numbers = adj.collect(frontier[rows])
        found[rows] = csr.degrees(patch, numbers, unique=unique)
    return found


def expand_total(adj: AnyAdjacency, frontier: Frontier, unique: bool) -> int:
    """Return the number of rows of `expand_unique`, or if not `unique` of `expand_edges`."""
    return int(degrees(adj, frontier, unique=unique).sum())


def expand_edges(adj: AnyAdjacency, frontier: Frontier) -> tuple[Positions, Ordinals, Ordinals]:
    """Return one (row, target, edge) for every edge of every frontier entry; rows ascend."""
    if isinstance(adj, Adjacency):
        return csr.expand_edges(adj, frontier)
    untouched, touched = adj.split(frontier)
    rows, targets, edges = csr.expand_edges(adj.base, untouched)
    if not len(touched):
        return rows, targets, edges
    patch, numbers = adj.collect(frontier[touched])
    more_rows, more_targets, more_edges = csr.expand_edges(patch, numbers)
    more_rows = touched[more_rows]
    places = np.searchsorted(rows, more_rows)
    return (
        np.insert(rows, places, more_rows),
        np.insert(targets, places, more_targets),
        np.insert(edges, places, more_edges),
    )


def expand_unique(adj: AnyAdjacency, frontier: Frontier) -> tuple[Positions, Ordinals]:
    """Return one (row, target) for every distinct target of every frontier entry; both ascend."""
    if isinstance(adj, Adjacency):
        return csr.expand_unique(adj, frontier)
    untouched, touched = adj.split(frontier)
    rows, targets = csr.expand_unique(adj.base, untouched)
    if not len(touched):
        return rows, targets
    patch, numbers = adj.collect(frontier[touched])
    more_rows, more_targets = csr.expand_unique(patch, numbers)
    more_rows = touched[more_rows]
    places = np.searchsorted(rows, more_rows)
    return np.insert(rows, places, more_rows), np.insert(targets, places, more_targets)


def connected(adj: AnyAdjacency, left: Frontier, right: Frontier) -> Mask:
    """Return whether an edge goes from ``left[i]`` to ``right[i]``."""
    if isinstance(adj, Adjacency):
        return csr.connected(adj, left, right)
    untouched, touched = adj.split(left)
    found = csr.connected(adj.base, untouched, right)
    if len(touched):
        patch, numbers = adj.collect(left[touched])
        found[touched] = csr.connected(patch, numbers, right[touched])
    return found


def connecting_edges(adj: AnyAdjacency, left: Frontier, right: Frontier) -> tuple[Positions, Ordinals]:
    """Return one (row, edge) for every edge from ``left[i]`` to ``right[i]``; rows ascend."""
    if isinstance(adj, Adjacency):
        return csr.connecting_edges(adj, left, right)
    untouched, touched = adj.split(left)
    rows, edges = csr.connecting_edges(adj.base, untouched, right)
    if not len(touched):
        return rows, edges
    patch, numbers = adj.collect(left[touched])
    more_rows, more_edges = csr.connecting_edges(patch, numbers, right[touched])
    more_rows = touched[more_rows]
    places = np.searchsorted(rows, more_rows)
    return np.insert(rows, places, more_rows), np.insert(edges, places, more_edges)


def _contains(values: Frontier, keys: Frontier) -> Mask:
    """Return whether each given value is among the ascending values."""
    if not len(values):
        return np.zeros(len(keys), np.bool_)
    found: Mask = values.take(np.searchsorted(values, keys), mode="clip") == keys
    return found

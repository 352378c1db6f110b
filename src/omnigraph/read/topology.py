"""The nodes that an edge type connects, as an adjacency over row positions.

There are three methods. The whole adjacency of an edge type (CSR) is built once and cached. Every later version
changes it by the rows of its commit (`engine/layered_adjacency.py`). For few source nodes, their edges are instead
looked up in storage, level by level, and form an adjacency of their own. The edges between few pairs of nodes are
looked up by their ids, if the key of the edge type is its endpoints. The same kernels follow all of them, and all
give the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import table_key
from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.engine.arrow_arrays import single_array
from omnigraph.engine.csr import Adjacency
from omnigraph.engine.layered_adjacency import AnyAdjacency, EdgeList, LayeredAdjacency
from omnigraph.engine.memory.cached_table import CachedTable, Ordinals
from omnigraph.engine.memory.memory_cache import Cache, Sized
from omnigraph.engine.memory.row_numbers import changed_rows
from omnigraph.lang.ir import Direction
from omnigraph.lang.schema import EdgeType
from omnigraph.read.endpoints import NO_MOVES, EndpointResolver, Endpoints, Moves
from omnigraph.store.lance.lance_filters import string_in

ExpandMode: TypeAlias = Literal["csr", "index"]

# The adjacency of at most this many edges is built in a few milliseconds.
SMALL_EDGES = 100_000
# Index lookups pay off for at most this many source nodes, until an edge type has been used repeatedly.
INDEX_FRONTIER = 512
_USES_UNTIL_CACHED = 3
_BYTES_PER_EDGE = 32
# A delta is folded before a read from one source in this many edges, and at this use in other large reads.
_FOLD_SHARE = 16
_USES_UNTIL_FOLDED = 4
_IDS_PER_FILTER = 1_000


@dataclass(frozen=True, eq=False)
class WholeAdjacency:
    """The adjacency of all edges of one version, and the endpoints it was built from."""

    adjacency: LayeredAdjacency
    endpoints: Endpoints

    @property
    def nbytes(self) -> int:
        """Bytes of the adjacency. The endpoints are a cache entry of their own."""
        return self.adjacency.nbytes

    @property
    def parts(self) -> tuple[Sized, ...]:
        """The base, which versions share, and the delta."""
        return self.adjacency.base, *self.adjacency.delta_arrays


@dataclass(frozen=True)
class AdjacencyView:
    """An adjacency in one direction, and the row positions of its nodes and edges.

    `nodes` and `edges` map the numbers of the adjacency to row positions. None means that the numbers are
    positions, except for the nodes in `near_moves` and `far_moves`.
    """

    adjacency: AnyAdjacency
    mode: ExpandMode
    nodes: Ordinals | None = None
    edges: Ordinals | None = None
    near_moves: Moves = NO_MOVES
    far_moves: Moves = NO_MOVES

    def to_local(self, positions: Ordinals, *, far: bool = False) -> Ordinals:
        """Convert positions of nodes on the near or far side to numbers of the adjacency, -1 for nodes that are not
        in it.
        """
        if self.nodes is None:
            return (self.far_moves if far else self.near_moves).numbers_of(positions)
        places = np.searchsorted(self.nodes, positions)
        known = places < len(self.nodes)
        known[known] = self.nodes[places[known]] == positions[known]
        return np.where(known, places, -1)

    def node_positions(self, numbers: Ordinals) -> Ordinals:
        """Convert numbers of nodes on the far side to positions."""
        return self.far_moves.positions_of(numbers) if self.nodes is None else self.nodes[numbers]

    def edge_positions(self, numbers: Ordinals) -> Ordinals:
        """Convert numbers of edges to positions."""
        return numbers if self.edges is None else self.edges[numbers]

    def storage_order(self, rows: Ordinals, targets: Ordinals) -> Ordinals | None:
        """Return the order of a one-hop result by row, then position of the target; None if it has that order."""
        if not len(self.far_moves) or (targets[1:] >= targets[:-1])[rows[1:] == rows[:-1]].all():
            return None
        return np.lexsort((targets, rows))


class Topology:
    """The edges of one type at one commit."""

    def __init__(
        self, edge: EdgeType, edges: CachedTable, source: CachedTable, target: CachedTable, cache: Cache
    ) -> None:
        self.edge = edge
        self.edges = edges
        self.source = source
        # The nodes of one type have one position each.
        self.target = source if target.layout.key == source.layout.key else target
        self.cache = cache

    @cached_property
    def _version(self) -> tuple[object, ...]:
        return self.edges.numbers.token, self.source.numbers.token, self.target.numbers.token

    @property
    def key(self) -> str:
        """The key of the edge table."""
        return table_key("edge", self.edge.name)

    def choose_mode(self, direction: Direction, frontier: Ordinals | None) -> tuple[ExpandMode, str]:
        """Choose how to expand from these nodes, and return the reason."""
        if frontier is not None and not len(frontier):
            return "index", "no source nodes"
        if self.cache.get(self._family(direction), self._version) is not None:
            return "csr", "cached"
        rows = self.edges.num_rows
        if rows <= SMALL_EDGES:
            return "csr", _small(rows)
        if not self.cache.fits(rows * _BYTES_PER_EDGE):
            return "index", f"the adjacency of {rows:,} edges does not fit in the cache"
        if frontier is None or len(frontier) > INDEX_FRONTIER:
            return "csr", "many source nodes"
        if self.cache.latest(self._family(direction)) is not None:
            return "csr", "an earlier version is cached"
        if self.cache.count_use(self._family(direction), None) >= _USES_UNTIL_CACHED:
            return "csr", "used repeatedly"
        return "index", "few source nodes"

    def preview_mode(self, direction: Direction) -> tuple[ExpandMode, str]:
        """Return the mode of an expansion from few nodes, and the reason, without counting a use."""
        if self.cache.get(self._family(direction), self._version) is not None:
            return "csr", "cached"
        if self.edges.num_rows <= SMALL_EDGES:
            return "csr", _small(self.edges.num_rows)
        return "index", f"up to {INDEX_FRONTIER} source nodes; CSR for more, or if used repeatedly"

    def looks_up_pairs(self, direction: Direction, pairs: int, mode: ExpandMode | None = None) -> bool:
        """Return whether the edges between so many pairs of nodes are looked up by their ids."""
        if self.edges.key is None or not self.edges.key.is_pair or pairs > INDEX_FRONTIER or mode == "csr":
            return False
        if mode == "index":
            return True
        family = self._family(direction)
        return self.edges.num_rows > SMALL_EDGES and self.cache.latest(family) is None

    def connections(
        self, direction: Direction, near: Ordinals, far: Ordinals, mode: ExpandMode | None = None
    ) -> AdjacencyView:
        """Return an adjacency that contains all edges between the pairs of nodes in `near` and `far`."""
        if self.looks_up_pairs(direction, len(near), mode):
            return self._look_up_pairs(direction, near, far)
        return self.neighbourhood(direction, near, 1, mode)

    def neighbourhood(
        self, direction: Direction, frontier: Ordinals, depth: int, mode: ExpandMode | None = None
    ) -> AdjacencyView:
        """Return an adjacency that contains all paths of up to `depth` hops from these nodes."""
        chosen = mode or self.choose_mode(direction, frontier)[0]
        if chosen == "csr":
            whole = self._whole(direction)
            if whole.adjacency.is_changed and self._should_fold(direction, len(frontier), depth):
                whole = WholeAdjacency(LayeredAdjacency.of(whole.adjacency.folded()), whole.endpoints)
                self.cache.put(self._family(direction), self._version, whole)
            ends = whole.endpoints
            near, far = ends.source_moves, ends.target_moves
            if direction == "in":
                near, far = far, near
            adjacency = whole.adjacency if whole.adjacency.is_changed else whole.adjacency.base
            return AdjacencyView(adjacency, "csr", near_moves=near, far_moves=far)
        return self._look_up(direction, frontier, depth)

    def _should_fold(self, direction: Direction, sources: int, depth: int) -> bool:
        """Return whether to fold the delta of an adjacency before a read that follows many edges.

        Reads of most of the graph are slower with a delta by about the cost of a fold, and other large reads by a
        part of it.
        """
        if sources * _FOLD_SHARE >= self.edges.num_rows:
            return True
        if depth == 1 and sources <= INDEX_FRONTIER:
            return False
        return self.cache.count_use((*self._family(direction), "delta"), self._version) >= _USES_UNTIL_FOLDED

    # --- whole adjacency ---------------------------------------------------------------------------------

    def adjacency(self, direction: Direction) -> AnyAdjacency:
        """Return the adjacency of all edges in one direction, by the numbers of `endpoints.py`."""
        found = self._whole(direction).adjacency
        return found if found.is_changed else found.base

    def _whole(self, direction: Direction) -> WholeAdjacency:
        return self.cache.get_or_build(self._family(direction), self._version, lambda: self._build(direction))

    def _family(self, direction: Direction) -> tuple[str, str, str, str, str]:
        return ("csr", self.edges.pin.path, self.source.pin.path, self.target.pin.path, direction)

    def _build(self, direction: Direction) -> WholeAdjacency:
        """Change the adjacency of an older version by the edges that differ, or build it from all edges."""
        ends = self._endpoints()
        near_nodes, far_nodes = (ends.source_nodes, ends.target_nodes)
        if direction == "in":
            near_nodes, far_nodes = far_nodes, near_nodes
        old = self._donor(direction, ends)
        if old is None:
            edges = _directed(ends, self.edges.all_rows(), direction)
            base = Adjacency.build(
                edges.sources, edges.targets, near_nodes.size, far_nodes.size, edges.edges.astype(np.int32)
            )
            return WholeAdjacency(LayeredAdjacency.of(base), ends)
        removed, added = changed_rows(old.endpoints.edges, ends.edges)
        adjacency = old.adjacency.changed(
            _directed(ends, added, direction),
            _directed(ends, removed, direction),
            near_nodes.size,
            far_nodes.size,
        )
        if adjacency.needs_fold:
            adjacency = LayeredAdjacency.of(adjacency.folded())
        return WholeAdjacency(adjacency, ends)

    def _donor(self, direction: Direction, ends: Endpoints) -> WholeAdjacency | None:
        """Return the adjacency of the latest older version with the same numbers of nodes."""
        older: list[WholeAdjacency] = [
            item
            for item in self.cache.versions(self._family(direction))
            if item.endpoints.epoch == ends.epoch and ends.edges.continues(item.endpoints.edges)
        ]
        return max(older, key=lambda item: item.endpoints.edges.serial, default=None)

    def _endpoints(self) -> Endpoints:
        family = ("ends", self.edges.pin.path, self.source.pin.path, self.target.pin.path)
        return self.cache.get_or_build(
            family, self._version, lambda: self._resolve(self.cache.versions(family))
        )

    def _resolve(self, known: Sequence[Endpoints]) -> Endpoints:
        resolver = EndpointResolver(self.edges, self.source, self.target)
        numbers = self.edges.numbers
        older = [item for item in known if numbers.continues(item.edges)]
        for item in sorted(older, key=lambda item: item.edges.serial, reverse=True):
            found = resolver.extend(item)
            if found is not None:
                return found
        return resolver.resolve()

    # --- index lookups -----------------------------------------------------------------------------------

    def _look_up(self, direction: Direction, frontier: Ordinals, depth: int) -> AdjacencyView:
        near: list[Ordinals] = []
        far: list[Ordinals] = []
        rows: list[Ordinals] = []
        seen = np.unique(frontier[frontier >= 0]).astype(np.int64)
        level = seen
        start, end = (self.source, self.target) if direction != "in" else (self.target, self.source)
        same = start.layout.key == end.layout.key
        for _ in range(depth if same else 1):
            if not len(level):
                break
            found = self._fetch(direction, level)
            near.append(found[0])
            far.append(found[1])
            rows.append(found[2])
            level = np.setdiff1d(found[1], seen)
            seen = np.union1d(seen, level)
        return _build_view(_concatenate(near), _concatenate(far), _concatenate(rows), seen, same, direction)

    def _look_up_pairs(self, direction: Direction, near: Ordinals, far: Ordinals) -> AdjacencyView:
        pairs = np.unique(np.stack([near, far]).astype(np.int64), axis=1)
        near, far = pairs[:, (pairs >= 0).all(axis=0)]
        found = []
        if direction in ("out", "both"):
            found.append((near, far, self._edges_between(near, far)))
        if direction in ("in", "both"):
            followed = near != far if direction == "both" else slice(None)
            found.append((near[followed], far[followed], self._edges_between(far[followed], near[followed])))
        near, far, rows = (np.concatenate(items) for items in zip(*found, strict=True))
        exists = rows >= 0
        same = self.source.layout.key == self.target.layout.key
        near, far, rows = near[exists], far[exists], rows[exists]
        return _build_view(near, far, rows, np.unique(near), same, direction)

    def _edges_between(self, sources: Ordinals, targets: Ordinals) -> Ordinals:
        """Return the edge from each source to the target at its place, -1 where there is none."""
        assert self.edges.key is not None
        ends = {"src": self.source.values("id", sources), "dst": self.target.values("id", targets)}
        return self.edges.positions(derive_ids(self.edges.key, ends))

    def _fetch(self, direction: Direction, level: Ordinals) -> tuple[Ordinals, Ordinals, Ordinals]:
        """Return near ends, far ends and rows of the edges of these nodes, once for each way to follow them."""
        ends = []
        if direction in ("out", "both"):
            ends.append(self._fetch_end("src", self.source, "dst", self.target, level))
        if direction in ("in", "both"):
            ends.append(self._fetch_end("dst", self.target, "src", self.source, level))
        if direction == "both":
            loops = ends[1][0] == ends[1][1]
            ends[1] = tuple(item[~loops] for item in ends[1])
        near, far, rows = (np.concatenate(items) for items in zip(*ends, strict=True))
        return near, far, rows

    def _fetch_end(
        self, end: str, nodes: CachedTable, other: str, others: CachedTable, level: Ordinals
    ) -> tuple[Any, ...]:
        ids = nodes.values("id", level)
        near, far, rows = [], [], []
        for start in range(0, len(ids), _IDS_PER_FILTER):
            chunk = ids.slice(start, _IDS_PER_FILTER)
            where = string_in(end, chunk.to_pylist())
            places, found = self.edges.find_rows(where, [end, other])
            near.append(level[_index_in(found[end], ids)])
            far.append(others.positions(single_array(found[other])))
            rows.append(places)
        return _concatenate(near), _concatenate(far), _concatenate(rows)


def _small(rows: int) -> str:
    return f"{rows:,} {'edge' if rows == 1 else 'edges'}"


def _directed(ends: Endpoints, edges: Ordinals, direction: Direction) -> EdgeList:
    """Return edges as they are followed in a direction: in both, each under both ends, and a self-loop once."""
    sources, targets = ends.of(edges)
    if direction == "out":
        return EdgeList(sources, targets, edges)
    if direction == "in":
        return EdgeList(targets, sources, edges)
    other = np.flatnonzero(sources != targets)
    return EdgeList(
        np.concatenate([sources, targets[other]]),
        np.concatenate([targets, sources[other]]),
        np.concatenate([edges, edges[other]]),
    )


def _build_view(
    near: Ordinals, far: Ordinals, rows: Ordinals, seen: Ordinals, same: bool, direction: Direction
) -> AdjacencyView:
    """Number the nodes and edges densely. Endpoints of two types share one numbering of positions."""
    if direction == "both":
        # A level may contain an edge that an earlier level followed from its other end.
        followed = np.unique(np.stack([near, far, rows]), axis=1)
        near, far, rows = followed[0], followed[1], followed[2]
    nodes = np.union1d(seen, np.union1d(near, far)) if not same else np.union1d(seen, far)
    edges, numbers = np.unique(rows, return_inverse=True)
    size = len(nodes)
    adjacency = Adjacency.build(
        np.searchsorted(nodes, near).astype(np.int32),
        np.searchsorted(nodes, far).astype(np.int32),
        size,
        size,
        numbers.astype(np.int32),
    )
    return AdjacencyView(adjacency, "index", nodes, edges)


def _index_in(values: pa.ChunkedArray, among: pa.Array) -> Ordinals:
    found: Ordinals = pc.index_in(single_array(values), value_set=among).to_numpy()
    return found


def _concatenate(items: Sequence[Ordinals]) -> Ordinals:
    return np.concatenate([np.zeros(0, np.int64), *items]).astype(np.int64)

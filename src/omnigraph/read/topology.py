"""The nodes that an edge type connects, as an adjacency over row positions.

There are two methods. The whole adjacency of an edge type (CSR) is built once per pair of versions, cached, and
extended if rows were only appended. For few source nodes, their edges are instead looked up in storage, level by
level, and form an adjacency of their own. The same kernels follow both, and both give the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import table_key
from omnigraph.engine.arrow_arrays import single_array
from omnigraph.engine.csr import Adjacency, undirected
from omnigraph.engine.memory.cached_table import CachedTable, Ordinals
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.errors import StorageError
from omnigraph.lang.ir import Direction
from omnigraph.lang.schema import EdgeType
from omnigraph.store.lance.lance_filters import string_in
from omnigraph.store.tables.table_fragments import TableFragment

ExpandMode: TypeAlias = Literal["csr", "index"]

# The adjacency of at most this many edges is built in a few milliseconds.
SMALL_EDGES = 100_000
# Index lookups pay off for at most this many source nodes, until an edge type has been used repeatedly.
INDEX_FRONTIER = 512
_USES_UNTIL_CACHED = 3
_BYTES_PER_EDGE = 32
_IDS_PER_FILTER = 1_000
# The endpoints of at most this many new edges are fetched row by row.
_MAX_FETCHED_ROWS = 4_096


@dataclass(frozen=True)
class Endpoints:
    """The endpoints of all edges of one version, as positions in the node tables."""

    edges: tuple[TableFragment, ...]
    source_nodes: tuple[TableFragment, ...]
    target_nodes: tuple[TableFragment, ...]
    sources: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Bytes of the positions."""
        return int(self.sources.nbytes + self.targets.nbytes)


@dataclass(frozen=True)
class WholeAdjacency:
    """The adjacency of all edges of one version, and the endpoints it was built from."""

    adjacency: Adjacency
    endpoints: Endpoints

    @property
    def nbytes(self) -> int:
        """Bytes of the adjacency. The endpoints are a cache entry of their own."""
        return self.adjacency.nbytes


@dataclass(frozen=True)
class AdjacencyView:
    """An adjacency in one direction, and the row positions of its nodes and edges.

    `nodes` and `edges` map the numbers of the adjacency to row positions. None means that the numbers are
    positions.
    """

    adjacency: Adjacency
    mode: ExpandMode
    nodes: Ordinals | None = None
    edges: Ordinals | None = None

    def to_local(self, positions: Ordinals) -> Ordinals:
        """Convert positions of nodes to numbers of the adjacency, -1 for nodes that are not in it."""
        if self.nodes is None:
            return positions
        places = np.searchsorted(self.nodes, positions)
        known = places < len(self.nodes)
        known[known] = self.nodes[places[known]] == positions[known]
        return np.where(known, places, -1)

    def node_positions(self, numbers: Ordinals) -> Ordinals:
        """Convert numbers of nodes to positions."""
        return numbers if self.nodes is None else self.nodes[numbers]

    def edge_positions(self, numbers: Ordinals) -> Ordinals:
        """Convert numbers of edges to positions."""
        return numbers if self.edges is None else self.edges[numbers]


class Topology:
    """The edges of one type at one commit."""

    def __init__(
        self, edge: EdgeType, edges: CachedTable, source: CachedTable, target: CachedTable, cache: Cache
    ) -> None:
        self.edge = edge
        self.edges = edges
        self.source = source
        self.target = target
        self.cache = cache
        self._version = (edges.version, source.version, target.version)

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

    def neighbourhood(
        self, direction: Direction, frontier: Ordinals, depth: int, mode: ExpandMode | None = None
    ) -> AdjacencyView:
        """Return an adjacency that contains all paths of up to `depth` hops from these nodes."""
        chosen = mode or self.choose_mode(direction, frontier)[0]
        if chosen == "csr":
            return AdjacencyView(self.adjacency(direction), "csr")
        return self._look_up(direction, frontier, depth)

    # --- whole adjacency ---------------------------------------------------------------------------------

    def adjacency(self, direction: Direction) -> Adjacency:
        """Return the adjacency of all edges in one direction."""
        return self.cache.get_or_build(
            self._family(direction), self._version, lambda: self._build(direction)
        ).adjacency

    def _family(self, direction: Direction) -> tuple[str, str, str, str, str]:
        return ("csr", self.edges.pin.path, self.source.pin.path, self.target.pin.path, direction)

    def _build(self, direction: Direction) -> WholeAdjacency:
        ends = self._endpoints()
        if direction == "both":
            return WholeAdjacency(undirected(self.adjacency("out"), self.adjacency("in")), ends)
        tables = (self.source, self.target) if direction == "out" else (self.target, self.source)
        near, far = (ends.sources, ends.targets) if direction == "out" else (ends.targets, ends.sources)
        near_rows, far_rows = (table.num_rows for table in tables)
        old: WholeAdjacency | None = self.cache.latest(self._family(direction))
        # Nodes without edges may have been deleted although the edges are unchanged, or the cached adjacency may
        # be that of a later version.
        grows = (
            old is not None and old.adjacency.n_sources <= near_rows and old.adjacency.n_targets <= far_rows
        )
        if old is not None and grows and _extends(ends, old.endpoints):
            start = len(old.endpoints.sources)
            added = np.arange(start, len(near), dtype=np.int32)
            extended = old.adjacency.extended(near[start:], far[start:], added, near_rows, far_rows)
            return WholeAdjacency(extended, ends)
        return WholeAdjacency(Adjacency.build(near, far, near_rows, far_rows), ends)

    def _endpoints(self) -> Endpoints:
        family = ("ends", self.edges.pin.path, self.source.pin.path, self.target.pin.path)
        return self.cache.get_or_build(
            family, self._version, lambda: self._resolve(self.cache.latest(family))
        )

    def _resolve(self, old: Endpoints | None) -> Endpoints:
        before = None if old is None else (old.edges, old.source_nodes, old.sources)
        sources = self._positions("src", self.source, before)
        before = None if old is None else (old.edges, old.target_nodes, old.targets)
        targets = self._positions("dst", self.target, before)
        return Endpoints(
            self.edges.fragments(), self.source.fragments(), self.target.fragments(), sources, targets
        )

    def _positions(
        self,
        end: str,
        nodes: CachedTable,
        old: tuple[tuple[TableFragment, ...], tuple[TableFragment, ...], Ordinals] | None,
    ) -> npt.NDArray[np.int32]:
        """Return the node positions of one end of every edge; reuse those that an older version has resolved."""
        positions = np.full(self.edges.num_rows, -1, np.int32)
        if old is not None:
            edges, before, numbers = old
            moved = None if nodes.fragments() == before else _new_positions(nodes, before)
            for start, rows in _reusable_fragments(self.edges, edges):
                known = numbers[rows] if moved is None else moved[numbers[rows]]
                positions[start : start + len(known)] = known
        unknown = np.flatnonzero(positions < 0)
        if len(unknown):
            positions[unknown] = self._find_nodes(end, nodes, unknown)
        return positions

    def _find_nodes(self, end: str, nodes: CachedTable, rows: Ordinals) -> Ordinals:
        if len(rows) <= _MAX_FETCHED_ROWS:
            ids = self.edges.fetch(end, rows)
        else:
            ids = self.edges.column(end)
            ids = ids.take(pa.array(rows)) if len(rows) < len(ids) else ids
        positions = nodes.positions(ids)
        missing = int((positions < 0).sum())
        if missing:
            noun = "row" if missing == 1 else "rows"
            raise StorageError(
                f"{self.key} has {missing:,} {noun} whose {end} is not in {nodes.layout.key}",
                hint="the graph is corrupt; read or restore an earlier commit",
            )
        return positions

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


def _extends(ends: Endpoints, old: Endpoints) -> bool:
    """Return whether the edges of an older version are an unchanged prefix of the edges."""
    known = len(old.sources)
    return (
        ends.edges[: len(old.edges)] == old.edges
        and np.array_equal(ends.sources[:known], old.sources)
        and np.array_equal(ends.targets[:known], old.targets)
    )


def _reusable_fragments(
    table: CachedTable, old: tuple[TableFragment, ...]
) -> Iterator[tuple[int, slice | Ordinals]]:
    """Yield for each fragment that an older version had its current start and the older positions of its rows."""
    start = 0
    for fragment, rows in zip(table.fragments(), table.reusable_rows(old), strict=True):
        if rows is not None:
            yield start, rows
        start += fragment.rows


def _new_positions(nodes: CachedTable, before: tuple[TableFragment, ...]) -> Ordinals:
    """Return the current position of every row of an older version, -1 for rows that were removed."""
    moved = np.full(sum(fragment.rows for fragment in before), -1, np.int32)
    for start, rows in _reusable_fragments(nodes, before):
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        moved[rows] = np.arange(start, start + count, dtype=np.int32)
    return moved


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

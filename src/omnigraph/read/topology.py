"""Which nodes an edge type connects, as adjacency over the positions of rows.

There are two ways to it. The whole adjacency of an edge type is built once per pair of versions, kept, and extended
when rows were only appended. Or the edges around a few nodes are looked up in storage, level by level, into an
adjacency of their own. The kernels that walk it are the same, and so are the rows.
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
from omnigraph.engine.csr import Adjacency, undirected
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.engine.memory.table_columns import Frame, Ordinals, one_array
from omnigraph.errors import StorageError
from omnigraph.lang.ir import Direction
from omnigraph.lang.schema import EdgeType
from omnigraph.store.lance.lance_filters import string_in
from omnigraph.store.tables.table_fragments import TableFragment

ExpandMode: TypeAlias = Literal["csr", "index"]

# Below this many edges the whole adjacency is made in a few milliseconds.
SMALL_EDGES = 100_000
# Looking up edges pays for this many nodes at a time, and for this many uses of an edge type before it is hot.
INDEX_FRONTIER = 512
_USES_UNTIL_HOT = 3
_BYTES_PER_EDGE = 32
_IDS_PER_FILTER = 1_000
# Up to here the ends of new edges are fetched row by row.
_FETCHED = 4_096


@dataclass(frozen=True)
class Endpoints:
    """Where the edges of one version begin and end, by position in the node tables."""

    edges: tuple[TableFragment, ...]
    source_nodes: tuple[TableFragment, ...]
    target_nodes: tuple[TableFragment, ...]
    sources: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Memory of both ends."""
        return int(self.sources.nbytes + self.targets.nbytes)


@dataclass(frozen=True)
class Whole:
    """A whole adjacency and the ends it was built from."""

    adjacency: Adjacency
    ends: Endpoints

    @property
    def nbytes(self) -> int:
        """Memory of the adjacency; the ends are an entry of their own."""
        return self.adjacency.nbytes


@dataclass(frozen=True)
class Graphlet:
    """Adjacency in one direction, and what its numbers stand for: None when they are positions of rows."""

    adjacency: Adjacency
    mode: ExpandMode
    nodes: Ordinals | None = None
    edges: Ordinals | None = None

    def inward(self, ordinals: Ordinals) -> Ordinals:
        """Positions of rows as numbers of the adjacency; -1 for what it does not know."""
        if self.nodes is None:
            return ordinals
        places = np.searchsorted(self.nodes, ordinals)
        known = places < len(self.nodes)
        known[known] = self.nodes[places[known]] == ordinals[known]
        return np.where(known, places, -1)

    def outward(self, numbers: Ordinals) -> Ordinals:
        """The positions of nodes."""
        return numbers if self.nodes is None else self.nodes[numbers]

    def edge_rows(self, numbers: Ordinals) -> Ordinals:
        """The positions of edges."""
        return numbers if self.edges is None else self.edges[numbers]


class Topology:
    """The edges of one type at one commit."""

    def __init__(self, edge: EdgeType, edges: Frame, source: Frame, target: Frame, cache: Cache) -> None:
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

    def choose(self, direction: Direction, frontier: Ordinals | None) -> tuple[ExpandMode, str]:
        """How to expand from these nodes, and why."""
        if frontier is not None and not len(frontier):
            return "index", "no nodes to expand from"
        if self.cache.get(self._family(direction), self._version) is not None:
            return "csr", "adjacency in memory"
        rows = self.edges.num_rows
        if rows <= SMALL_EDGES:
            return "csr", f"{rows:,} edges are few"
        if not self.cache.fits(rows * _BYTES_PER_EDGE):
            return "index", f"the adjacency of {rows:,} edges is larger than the cache allows"
        if frontier is None or len(frontier) > INDEX_FRONTIER:
            return "csr", "many nodes to expand from"
        if self.cache.newest(self._family(direction)) is not None:
            return "csr", "adjacency of an earlier version in memory"
        if self.cache.asked(self._family(direction), None) >= _USES_UNTIL_HOT:
            return "csr", "used again and again"
        return "index", "few nodes to expand from"

    def preview(self, direction: Direction) -> tuple[ExpandMode, str]:
        """How an expansion would go from a few nodes, without counting as a use."""
        if self.cache.get(self._family(direction), self._version) is not None:
            return "csr", "adjacency in memory"
        if self.edges.num_rows <= SMALL_EDGES:
            return "csr", f"{self.edges.num_rows:,} edges are few"
        return "index", f"from up to {INDEX_FRONTIER} nodes, csr from more or when used again"

    def around(
        self, direction: Direction, frontier: Ordinals, depth: int, mode: ExpandMode | None = None
    ) -> Graphlet:
        """What is needed to walk from these nodes as far as `depth`."""
        chosen = mode or self.choose(direction, frontier)[0]
        if chosen == "csr":
            return Graphlet(self.adjacency(direction), "csr")
        return self._look_up(direction, frontier, depth)

    # --- the whole ---------------------------------------------------------------------------------------

    def adjacency(self, direction: Direction) -> Adjacency:
        """The whole adjacency in one direction."""
        return self._whole(direction).adjacency

    def _whole(self, direction: Direction) -> Whole:
        return self.cache.make(self._family(direction), self._version, lambda: self._build(direction))

    def _family(self, direction: Direction) -> tuple[str, str, str, str, str]:
        return ("csr", self.edges.pin.path, self.source.pin.path, self.target.pin.path, direction)

    def _build(self, direction: Direction) -> Whole:
        ends = self._endpoints()
        if direction == "both":
            return Whole(undirected(self.adjacency("out"), self.adjacency("in")), ends)
        frames = (self.source, self.target) if direction == "out" else (self.target, self.source)
        near, far = (ends.sources, ends.targets) if direction == "out" else (ends.targets, ends.sources)
        near_rows, far_rows = (frame.num_rows for frame in frames)
        old: Whole | None = self.cache.newest(self._family(direction))
        # A node without edges may be gone, or not be there yet, while the edges are the same.
        grows = (
            old is not None and old.adjacency.n_sources <= near_rows and old.adjacency.n_targets <= far_rows
        )
        if old is not None and grows and _continues(ends, old.ends):
            start = len(old.ends.sources)
            added = np.arange(start, len(near), dtype=np.int32)
            grown = old.adjacency.extended(near[start:], far[start:], added, near_rows, far_rows)
            return Whole(grown, ends)
        return Whole(Adjacency.build(near, far, near_rows, far_rows), ends)

    def _endpoints(self) -> Endpoints:
        family = ("ends", self.edges.pin.path, self.source.pin.path, self.target.pin.path)
        return self.cache.make(family, self._version, lambda: self._resolve(self.cache.newest(family)))

    def _resolve(self, old: Endpoints | None) -> Endpoints:
        before = None if old is None else (old.edges, old.source_nodes, old.sources)
        sources = self._positions("src", self.source, before)
        before = None if old is None else (old.edges, old.target_nodes, old.targets)
        targets = self._positions("dst", self.target, before)
        return Endpoints(self.edges.parts(), self.source.parts(), self.target.parts(), sources, targets)

    def _positions(
        self,
        end: str,
        nodes: Frame,
        old: tuple[tuple[TableFragment, ...], tuple[TableFragment, ...], Ordinals] | None,
    ) -> npt.NDArray[np.int32]:
        """The positions of one end of every edge; what an older version knows is carried over."""
        found = np.full(self.edges.num_rows, -1, np.int32)
        if old is not None:
            edges, before, numbers = old
            moved = None if nodes.parts() == before else _moved(nodes, before)
            for start, rows in _starts(self.edges, edges):
                known = numbers[rows] if moved is None else moved[numbers[rows]]
                found[start : start + len(known)] = known
        unknown = np.flatnonzero(found < 0)
        if len(unknown):
            found[unknown] = self._find(end, nodes, unknown)
        return found

    def _find(self, end: str, nodes: Frame, rows: Ordinals) -> Ordinals:
        if len(rows) <= _FETCHED:
            names = self.edges.fetch(end, rows)
        else:
            names = self.edges.column(end)
            names = names.take(pa.array(rows)) if len(rows) < len(names) else names
        found = nodes.positions(names)
        missing = int((found < 0).sum())
        if missing:
            raise StorageError(
                f"{missing} rows of {self.key} have a {end} that is not in {nodes.table.key}",
                hint="the graph is damaged; read or restore an earlier commit",
            )
        return found

    # --- around a few nodes ------------------------------------------------------------------------------

    def _look_up(self, direction: Direction, frontier: Ordinals, depth: int) -> Graphlet:
        near: list[Ordinals] = []
        far: list[Ordinals] = []
        rows: list[Ordinals] = []
        seen = np.unique(frontier[frontier >= 0]).astype(np.int64)
        level = seen
        start, end = (self.source, self.target) if direction != "in" else (self.target, self.source)
        same = start.table.key == end.table.key
        for _ in range(depth if same else 1):
            if not len(level):
                break
            found = self._fetch(direction, level)
            near.append(found[0])
            far.append(found[1])
            rows.append(found[2])
            level = np.setdiff1d(found[1], seen)
            seen = np.union1d(seen, level)
        return _graphlet(_joined(near), _joined(far), _joined(rows), seen, same, direction)

    def _fetch(self, direction: Direction, level: Ordinals) -> tuple[Ordinals, Ordinals, Ordinals]:
        """The edges at one end of these nodes: near ends, far ends, rows; each as often as it is walked."""
        parts = []
        if direction in ("out", "both"):
            parts.append(self._fetch_end("src", self.source, "dst", self.target, level))
        if direction in ("in", "both"):
            parts.append(self._fetch_end("dst", self.target, "src", self.source, level))
        if direction == "both":
            loops = parts[1][0] == parts[1][1]
            parts[1] = tuple(item[~loops] for item in parts[1])
        near, far, rows = (np.concatenate(items) for items in zip(*parts, strict=True))
        return near, far, rows

    def _fetch_end(
        self, end: str, nodes: Frame, other: str, others: Frame, level: Ordinals
    ) -> tuple[Any, ...]:
        ids = nodes.values("id", level)
        near, far, rows = [], [], []
        for start in range(0, len(ids), _IDS_PER_FILTER):
            chunk = ids.slice(start, _IDS_PER_FILTER)
            where = string_in(end, chunk.to_pylist())
            places, found = self.edges.search(where, [end, other])
            near.append(level[_spots(found[end], ids)])
            far.append(others.positions(one_array(found[other])))
            rows.append(places)
        return _joined(near), _joined(far), _joined(rows)


def _continues(ends: Endpoints, old: Endpoints) -> bool:
    """Whether the edges of an older version stand unchanged before those that came after it."""
    known = len(old.sources)
    return (
        ends.edges[: len(old.edges)] == old.edges
        and np.array_equal(ends.sources[:known], old.sources)
        and np.array_equal(ends.targets[:known], old.targets)
    )


def _starts(frame: Frame, old: tuple[TableFragment, ...]) -> Iterator[tuple[int, slice | Ordinals]]:
    """For each part that an older version had: where it starts now, and where its rows stood then."""
    start = 0
    for part, rows in zip(frame.parts(), frame.shared(old), strict=True):
        if rows is not None:
            yield start, rows
        start += part.rows


def _moved(nodes: Frame, before: tuple[TableFragment, ...]) -> Ordinals:
    """The position now of every row of an older version, -1 for those that are gone."""
    moved = np.full(sum(part.rows for part in before), -1, np.int32)
    for start, rows in _starts(nodes, before):
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        moved[rows] = np.arange(start, start + count, dtype=np.int32)
    return moved


def _graphlet(
    near: Ordinals, far: Ordinals, rows: Ordinals, seen: Ordinals, same: bool, direction: Direction
) -> Graphlet:
    """Number the nodes and edges densely. Ends of two types share one numbering: it only names positions."""
    if direction == "both":
        # A level meets an edge that an earlier one has walked from its other end.
        walked = np.unique(np.stack([near, far, rows]), axis=1)
        near, far, rows = walked[0], walked[1], walked[2]
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
    return Graphlet(adjacency, "index", nodes, edges)


def _spots(values: pa.ChunkedArray, among: pa.Array) -> Ordinals:
    found: Ordinals = pc.index_in(one_array(values), value_set=among).to_numpy()
    return found


def _joined(items: Sequence[Ordinals]) -> Ordinals:
    return np.concatenate([np.zeros(0, np.int64), *items]).astype(np.int64)

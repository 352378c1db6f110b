"""The endpoints of all edges of a type as numbers of nodes, kept up to date from version to version.

The number of a node is its position when its endpoints were first resolved. A node that is updated, or whose
fragment is compacted, moves to another position and keeps its number, so its edges stay as they are. `Moves`
translates between numbers and positions.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.memory.cached_table import CachedTable, Ordinals
from omnigraph.engine.memory.column_chunks import ColumnChunks
from omnigraph.engine.memory.row_numbers import RowNumbers, changed_rows
from omnigraph.errors import NotFound, StorageError

# The endpoints of at most this many new edges are fetched row by row.
_MAX_FETCHED_ROWS = 4_096
# Nodes are numbered again when more have moved than this, and than this share of them.
_MAX_MOVES = 4_096
_MAX_MOVES_SHARE = 64

_EPOCHS = itertools.count()
_NONE: npt.NDArray[np.int64] = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Moves:
    """The nodes whose position is not their number: their numbers, ascending, and their positions.

    >>> moves = Moves().changed(np.array([3]), np.array([7])).changed(np.array([7]), np.array([9]))
    >>> moves.positions_of(np.array([3, 4])).tolist(), moves.numbers_of(np.array([9, 4, -1])).tolist()
    ([9, 4], [3, 4, -1])
    """

    numbers: Ordinals = field(default_factory=lambda: _NONE)
    positions: Ordinals = field(default_factory=lambda: _NONE)

    def __len__(self) -> int:
        """The number of nodes that moved."""
        return len(self.numbers)

    @cached_property
    def _by_position(self) -> tuple[Ordinals, Ordinals]:
        order = np.argsort(self.positions)
        return self.positions[order], self.numbers[order]

    def positions_of(self, numbers: Ordinals) -> Ordinals:
        """Return the positions of nodes by number."""
        return _replace(numbers, self.numbers, self.positions)

    def numbers_of(self, positions: Ordinals) -> Ordinals:
        """Return the numbers of nodes by position; -1 stays."""
        return _replace(positions, *self._by_position)

    def changed(self, before: Ordinals, after: Ordinals) -> Moves:
        """Return the moves after nodes moved on from some positions to others; -1 means that a node was deleted."""
        if not len(before):
            return self
        numbers = self.numbers_of(before)
        kept = ~np.isin(self.numbers, numbers)
        moved = after >= 0
        numbers = np.concatenate([self.numbers[kept], numbers[moved]])
        positions = np.concatenate([self.positions[kept], after[moved]])
        order = np.argsort(numbers)
        return Moves(numbers[order], positions[order])


NO_MOVES = Moves()


@dataclass(frozen=True, eq=False)
class Endpoints:
    """The endpoints of the edges of one version, by position of the edge; -1 where there is no edge.

    Endpoints of equal `epoch` number the nodes alike.
    """

    epoch: int
    edges: RowNumbers
    source_nodes: RowNumbers
    target_nodes: RowNumbers
    sources: ColumnChunks
    targets: ColumnChunks
    source_moves: Moves
    target_moves: Moves

    @property
    def parts(self) -> tuple[Any, ...]:
        """The chunks, which versions share."""
        return *self.sources.chunks, *self.targets.chunks

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers."""
        return sum(int(part.nbytes) for part in self.parts)

    def of(self, edges: Ordinals) -> tuple[Ordinals, Ordinals]:
        """Return the numbers of the source and target nodes of edges by position."""
        return self.sources.take(edges).to_numpy(), self.targets.take(edges).to_numpy()

    def numbered_again(self) -> Endpoints:
        """Return the endpoints with the positions of the nodes as their numbers."""
        return Endpoints(
            next(_EPOCHS),
            self.edges,
            self.source_nodes,
            self.target_nodes,
            _column(self.source_moves.positions_of(self.sources.combined().chunks[0].to_numpy())),
            _column(self.target_moves.positions_of(self.targets.combined().chunks[0].to_numpy())),
            NO_MOVES,
            NO_MOVES,
        )


@dataclass(frozen=True)
class EndpointResolver:
    """Resolves the endpoints of an edge table in the tables of its nodes."""

    edges: CachedTable
    source: CachedTable
    target: CachedTable

    def resolve(self) -> Endpoints:
        """Return the endpoints of all edges, from their ids."""
        return Endpoints(
            next(_EPOCHS),
            self.edges.numbers,
            self.source.numbers,
            self.target.numbers,
            _column(self._find("src", self.source, self.edges.all_rows(), 0)),
            _column(self._find("dst", self.target, self.edges.all_rows(), 0)),
            NO_MOVES,
            NO_MOVES,
        )

    def extend(self, old: Endpoints) -> Endpoints | None:
        """Return the endpoints by extending those of an older version; None if that is not possible.

        The cost follows the rows that changed.
        """
        tables = ((self.edges, old.edges), (self.source, old.source_nodes), (self.target, old.target_nodes))
        if not all(table.numbers.continues(numbers) for table, numbers in tables):
            return None
        source_moves = _follow(self.source, old.source_nodes, old.source_moves)
        target_moves = source_moves
        if self.source.numbers is not self.target.numbers:
            target_moves = _follow(self.target, old.target_nodes, old.target_moves)
        if source_moves is None or target_moves is None:
            return None
        _, added = changed_rows(old.edges, self.edges.numbers)
        start = old.edges.size
        sources = source_moves.numbers_of(self._find("src", self.source, added, start))
        targets = target_moves.numbers_of(self._find("dst", self.target, added, start))
        found = Endpoints(
            old.epoch,
            self.edges.numbers,
            self.source.numbers,
            self.target.numbers,
            old.sources.appended(pa.array(sources, pa.int32())),
            old.targets.appended(pa.array(targets, pa.int32())),
            source_moves,
            target_moves,
        )
        limit = max(_MAX_MOVES, max(self.source.num_rows, self.target.num_rows) // _MAX_MOVES_SHARE)
        return found.numbered_again() if len(source_moves) + len(target_moves) > limit else found

    def _find(self, end: str, nodes: CachedTable, rows: Ordinals, start: int) -> Ordinals:
        """Return the positions of the nodes at one end of edges, by position of the edge from `start` on."""
        found = np.full(self.edges.numbers.size - start, -1, np.int32)
        if not len(rows):
            return found
        if len(rows) <= _MAX_FETCHED_ROWS and not start:
            ids = self.edges.fetch(end, rows)
        else:
            ids = self.edges.rows_from(end, start).take(pa.array(rows - start))
        positions = nodes.positions(ids)
        missing = int((positions < 0).sum())
        if missing:
            noun = "row" if missing == 1 else "rows"
            raise StorageError(
                f"{self.edges.layout.key} has {missing:,} {noun} whose {end} is not in {nodes.layout.key}",
                hint="the graph is corrupt; read or restore an earlier commit",
            )
        found[rows - start] = positions
        return found


def _follow(nodes: CachedTable, before: RowNumbers, moves: Moves) -> Moves | None:
    """Return the moves of nodes at a later version; None if the ids of the rows that moved are not known."""
    lost, gained = changed_rows(before, nodes.numbers)
    if not len(lost):
        return moves
    old_ids = _old_ids(nodes, before, lost)
    if old_ids is None:
        return None
    if not len(gained):
        return moves.changed(lost, np.full(len(lost), -1))
    ids = nodes.rows_from("id", before.size).take(pa.array(gained - before.size))
    places = pc.fill_null(pc.index_in(old_ids, value_set=ids), -1).to_numpy()
    return moves.changed(lost, np.where(places < 0, -1, gained[places]))


def _old_ids(nodes: CachedTable, before: RowNumbers, rows: Ordinals) -> pa.Array | None:
    """Return the ids of rows that only an older version has; None if they are not known."""
    if nodes.is_cached("id"):
        ids = nodes.column_chunks("id").take(rows)
        if not ids.null_count:
            return ids
    try:
        return nodes.old_ids(before, rows)
    except (NotFound, StorageError):
        # Garbage collection has removed the older version.
        return None


def _column(numbers: Ordinals) -> ColumnChunks:
    return ColumnChunks.of(pa.array(numbers, pa.int32()))


def _replace(values: Ordinals, keys: Ordinals, replacements: Ordinals) -> Ordinals:
    """Replace the values that are among the ascending keys."""
    if not len(keys) or not len(values):
        return values
    places = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
    return np.where(keys[places] == values, replacements[places], values)

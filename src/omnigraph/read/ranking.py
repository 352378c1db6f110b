"""Scores of matched rows: distance to a vector, BM25, and the fusion of two rankings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.memory.table_columns import Ordinals
from omnigraph.engine.projection.plan_projection import is_descending
from omnigraph.engine.projection.sorting import order_rows
from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.read.binding_rows import Bound
from omnigraph.read.session import ReadSession
from omnigraph.search.rank_fusion import fuse
from omnigraph.search.text_search import TextSearch
from omnigraph.search.vector_distance import nearest_distances


@dataclass(frozen=True)
class Scores:
    """A score for each row; where `ranked` is false the ranking does not have the row."""

    values: npt.NDArray[np.float64]
    ranked: npt.NDArray[np.bool_]

    def column(self) -> pa.Array:
        """The scores as a result column, null where there is none."""
        return pa.array(self.values, mask=~self.ranked)


def score_rows(session: ReadSession, rank: ir.Rank, rows: Bound) -> Scores:
    """The score of every row."""
    match rank:
        case ir.Nearest() | ir.Bm25():
            entities, scores = _score(session, rank, _entities(rank, rows))
            return _spread(entities, scores, rows.columns[rank.field.variable])
        case ir.Rrf():
            first = _contribution(session, rank.first, _k(session, rank), rows)
            second = _contribution(session, rank.second, _k(session, rank), rows)
            values = np.where(first.ranked, first.values, 0) + np.where(second.ranked, second.values, 0)
            return Scores(values, first.ranked | second.ranked)


def _k(session: ReadSession, rank: ir.Rrf) -> int:
    value = session.constant(rank.k)
    if not isinstance(value, int):
        raise InvalidInput(f"`rrf` needs an integer k, got {value}")
    return value


def _entities(rank: ir.Nearest | ir.Bm25, rows: Bound) -> Ordinals:
    found = np.unique(rows.columns[rank.field.variable])
    return found[found >= 0]


def _score(
    session: ReadSession, rank: ir.Nearest | ir.Bm25, entities: Ordinals
) -> tuple[Ordinals, npt.NDArray[np.float64]]:
    """Those of the entities that the ranking has, ascending, and their scores."""
    nothing = np.zeros(0, np.int64), np.zeros(0)
    frame = session.types[rank.field.variable]
    if isinstance(rank, ir.Nearest):
        vector = session.vector(rank.query)
        if vector is None or not len(entities):
            return nothing
        held = frame.held(rank.field.property)
        if held is not None:
            return nearest_distances(held, entities, vector)
        taken = frame.values(rank.field.property, entities)
        kept, distances = nearest_distances(taken, np.arange(len(entities)), vector)
        return entities[kept], distances
    text = session.text(rank.query)
    if text is None:
        return nothing
    ordinals, scores = TextSearch(frame, rank.field.property).index().bm25(text)
    wanted = np.isin(ordinals, entities)
    return ordinals[wanted], scores[wanted]


def _contribution(session: ReadSession, rank: ir.Nearest | ir.Bm25, k: int, rows: Bound) -> Scores:
    """What one ranking adds to the fused score of each row."""
    entities, scores = _score(session, rank, _entities(rank, rows))
    ids = session.types[rank.field.variable].values("id", entities)
    order = order_rows([(pa.array(scores), is_descending(rank))], [ids], len(entities))
    return _spread(*fuse(entities[order], entities[:0], k), rows.columns[rank.field.variable])


def _spread(entities: Ordinals, scores: npt.NDArray[np.float64], column: Ordinals) -> Scores:
    """Scores of entities, ascending, as scores of rows."""
    if not len(entities):
        return Scores(np.zeros(len(column)), np.zeros(len(column), np.bool_))
    places = np.minimum(np.searchsorted(entities, column), len(entities) - 1)
    return Scores(scores[places], entities[places] == column)

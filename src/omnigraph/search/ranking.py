"""Scores of matched rows: vector distance, BM25, and fusion of rankings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.memory.cached_table import NO_ROWS, CachedTable, Ordinals
from omnigraph.engine.projection.sorting import SortColumn, order_rows
from omnigraph.lang.ir import FusionFn
from omnigraph.lang.schema import Metric
from omnigraph.search.rank_fusion import normalized_scores, reciprocal_ranks
from omnigraph.search.text_query import parse_query
from omnigraph.search.text_scoring import TextEvaluation
from omnigraph.search.text_search import TextField, with_intact_indexes
from omnigraph.search.vector_search import DEFAULT_SETTINGS, SearchSettings, VectorSearch

# With so many times more rows than scored entities, entities are looked up among the rows.
_FEW = 16


@dataclass(frozen=True)
class RowScores:
    """A score for each matched row. Where `ranked` is false, the ranking does not contain the row."""

    values: npt.NDArray[np.float64]
    ranked: npt.NDArray[np.bool_]

    def take(self, rows: Ordinals) -> RowScores:
        """Return the scores of some rows."""
        return RowScores(self.values[rows], self.ranked[rows])

    def column(self) -> pa.Array:
        """Return the scores as a result column, null where there is none."""
        return pa.array(self.values, mask=~self.ranked)


class Ranking(Protocol):
    """A ranking of the rows of a table."""

    @property
    def table(self) -> CachedTable:
        """The ranked table."""

    @property
    def is_descending(self) -> bool:
        """Whether the best score is the highest one, as for BM25 and unlike a distance."""

    def score_entities(
        self, entities: Ordinals, count: int | None = None
    ) -> tuple[Ordinals, npt.NDArray[np.float64]]:
        """Return the entities that the ranking contains, ascending, and their scores.

        With `count`, only that many best entities are needed, and those with the same score as the last of them.
        Others may be left out.
        """


@dataclass(frozen=True)
class VectorRanking:
    """A ranking by the distance to a vector. A null query ranks nothing."""

    table: CachedTable
    property_name: str
    query: tuple[float, ...] | None
    metric: Metric = "l2"
    settings: SearchSettings = DEFAULT_SETTINGS
    is_descending: bool = False

    def score_entities(
        self, entities: Ordinals, count: int | None = None
    ) -> tuple[Ordinals, npt.NDArray[np.float64]]:
        """Return the entities with a vector and their distances."""
        if self.query is None or not len(entities):
            return NO_ROWS, np.zeros(0)
        search = VectorSearch(self.table, self.property_name, self.query, self.metric, self.settings)
        return search.distances(entities) if count is None else search.nearest(entities, count)


@dataclass(frozen=True)
class TextRanking:
    """A ranking by BM25 over one or more text properties. A null query ranks nothing."""

    table: CachedTable
    fields: tuple[TextField, ...]
    query: str | None
    is_descending: bool = True

    def score_entities(
        self, entities: Ordinals, count: int | None = None
    ) -> tuple[Ordinals, npt.NDArray[np.float64]]:
        """Return the entities that match the query, and their scores."""
        del count  # The scores of all matching rows are known anyway.
        if self.query is None or not len(entities):
            return NO_ROWS, np.zeros(0)
        query = parse_query(self.query, [field.analyzer for field in self.fields])

        def evaluate(fields: Sequence[TextField]) -> tuple[Ordinals, npt.NDArray[np.float64]]:
            evaluation = TextEvaluation(query, fields)
            return evaluation.scores(evaluation.statistics())

        ordinals, scores = with_intact_indexes(self.fields, evaluate)
        matched = np.isin(ordinals, entities)
        return ordinals[matched], scores[matched]


def score(ranking: Ranking, ordinals: Ordinals, count: int | None = None) -> RowScores:
    """Return the score of each matched row. `ordinals` are the positions bound in the rows, -1 for null.

    With `count`, rows behind that many best ones may be left out.
    """
    distinct = _distinct(ordinals)
    return _spread(*ranking.score_entities(distinct, count), ordinals, is_ascending=distinct is ordinals)


def contribution(ranking: Ranking, ordinals: Ordinals, fn: FusionFn, k: int, depth: int) -> RowScores:
    """Return what a ranking adds to a fused score of each matched row, before its weight.

    Only the best `depth` entities count. Those with equal scores are ranked by id.
    """
    distinct = _distinct(ordinals)
    found = ranking.score_entities(distinct, depth)
    entities, scores = _best(*found, depth, is_descending=ranking.is_descending)
    # Ids are read of the best entities only, and of those with the same score as the last of them.
    ids = ranking.table.values("id", entities)
    keys: list[SortColumn] = [(pa.array(scores), ranking.is_descending)]
    order = order_rows(keys, [ids], len(entities), limit=depth)
    if fn == "rrf":
        return _spread(*reciprocal_ranks(entities[order], k), ordinals, is_ascending=distinct is ordinals)
    values = normalized_scores(scores[order])
    ascending = np.argsort(entities[order])
    ranked = entities[order][ascending], values[ascending]
    return _spread(*ranked, ordinals, is_ascending=distinct is ordinals)


def _best(
    entities: Ordinals, scores: npt.NDArray[np.float64], count: int, *, is_descending: bool
) -> tuple[Ordinals, npt.NDArray[np.float64]]:
    """Return the entities with the `count` best scores, and those with the same score as the last of them."""
    if len(scores) <= count:
        return entities, scores
    worth = -scores if is_descending else scores
    last = np.partition(worth, count - 1)[count - 1]
    kept = ~(worth > last)
    return entities[kept], scores[kept]


def fuse(parts: Sequence[RowScores], weights: Sequence[float]) -> RowScores:
    """Add the weighted contributions of rankings, in their order. A row needs to be in only one of them."""
    values = np.zeros(len(parts[0].values))
    ranked = np.zeros(len(values), np.bool_)
    for part, weight in zip(parts, weights, strict=True):
        values += weight * np.where(part.ranked, part.values, 0)
        ranked |= part.ranked
    return RowScores(values, ranked)


def _distinct(ordinals: Ordinals) -> Ordinals:
    """Return the positions that are not null, each once and ascending: the given array if it is so."""
    if len(ordinals) and ordinals[0] >= 0 and bool((ordinals[1:] > ordinals[:-1]).all()):
        return ordinals
    found = np.unique(ordinals)
    return found[found >= 0]


def _spread(
    entities: Ordinals, scores: npt.NDArray[np.float64], ordinals: Ordinals, *, is_ascending: bool
) -> RowScores:
    """Convert scores of entities, which are ascending, to scores of the rows that are bound to them.

    `is_ascending` means that the rows are bound to distinct entities in ascending order.
    """
    values, ranked = np.zeros(len(ordinals)), np.zeros(len(ordinals), np.bool_)
    if is_ascending and len(entities) * _FEW < len(ordinals):
        rows = np.searchsorted(ordinals, entities)
        values[rows], ranked[rows] = scores, True
    elif len(entities):
        places = np.minimum(np.searchsorted(entities, ordinals), len(entities) - 1)
        values, ranked = scores[places], entities[places] == ordinals
    return RowScores(values, ranked)

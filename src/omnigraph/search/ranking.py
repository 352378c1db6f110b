"""Scores of matched rows: vector distance, BM25, and reciprocal rank fusion of two rankings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engine.memory.cached_table import NO_ROWS, CachedTable, Ordinals
from omnigraph.engine.projection.sorting import order_rows
from omnigraph.lang.schema import SIMPLE_TEXT, Metric, TextAnalysis
from omnigraph.search.rank_fusion import reciprocal_ranks
from omnigraph.search.text_search import TextSearch
from omnigraph.search.vector_search import DEFAULT_SETTINGS, SearchSettings, VectorSearch


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


@dataclass(frozen=True)
class Ranking:
    """A ranking of the rows of a table by one property.

    The query is a vector for ``nearest`` and a text for ``bm25``. A null query ranks nothing.
    """

    table: CachedTable
    property_name: str
    query: tuple[float, ...] | str | None
    metric: Metric = "l2"
    analysis: TextAnalysis = SIMPLE_TEXT
    settings: SearchSettings = DEFAULT_SETTINGS

    @property
    def is_descending(self) -> bool:
        """Whether the best score is the highest one, as for BM25 and unlike a distance."""
        return isinstance(self.query, str)

    def score(self, ordinals: Ordinals) -> RowScores:
        """Return the score of each matched row. `ordinals` are the positions bound in the rows, -1 for null."""
        return _spread(*self._score_entities(_distinct(ordinals)), ordinals)

    def score_nearest(self, ordinals: Ordinals, count: int) -> RowScores:
        """Return the scores of the rows that are bound to the `count` nearest vectors. All others are not ranked.

        At least `count` rows are ranked if so many have a vector. Vectors as near as the last one are included.
        """
        entities = _distinct(ordinals)
        if self.query is None or isinstance(self.query, str) or not len(entities):
            return self.score(ordinals)
        return _spread(*self._vectors(self.query).nearest(entities, count), ordinals)

    def reciprocal_rank(self, ordinals: Ordinals, k: int) -> RowScores:
        """Return the contribution of this ranking to a fused score: 1 / (k + rank + 1) of each matched row.

        Entities with equal scores are ranked by id.
        """
        entities, scores = self._score_entities(_distinct(ordinals))
        ids = self.table.values("id", entities)
        order = order_rows([(pa.array(scores), self.is_descending)], [ids], len(entities))
        return _spread(*reciprocal_ranks(entities[order], k), ordinals)

    def _score_entities(self, entities: Ordinals) -> tuple[Ordinals, npt.NDArray[np.float64]]:
        """Return the entities that the ranking contains, ascending, and their scores."""
        if self.query is None or not len(entities):
            return NO_ROWS, np.zeros(0)
        if isinstance(self.query, str):
            ordinals, scores = (
                TextSearch(self.table, self.property_name, self.analysis).index().bm25(self.query)
            )
            matched = np.isin(ordinals, entities)
            return ordinals[matched], scores[matched]
        return self._vectors(self.query).distances(entities)

    def _vectors(self, query: tuple[float, ...]) -> VectorSearch:
        return VectorSearch(self.table, self.property_name, query, self.metric, self.settings)


def fuse(first: RowScores, second: RowScores) -> RowScores:
    """Add the contributions of two rankings. A row needs to be in only one of them."""
    values = np.where(first.ranked, first.values, 0) + np.where(second.ranked, second.values, 0)
    return RowScores(values, first.ranked | second.ranked)


def _distinct(ordinals: Ordinals) -> Ordinals:
    """Return the positions that are not null, each once and ascending."""
    if len(ordinals) and ordinals[0] >= 0 and bool((ordinals[1:] > ordinals[:-1]).all()):
        return ordinals
    found = np.unique(ordinals)
    return found[found >= 0]


def _spread(entities: Ordinals, scores: npt.NDArray[np.float64], ordinals: Ordinals) -> RowScores:
    """Convert scores of entities, which are ascending, to scores of the rows that are bound to them."""
    if not len(entities):
        return RowScores(np.zeros(len(ordinals)), np.zeros(len(ordinals), np.bool_))
    places = np.minimum(np.searchsorted(entities, ordinals), len(entities) - 1)
    return RowScores(scores[places], entities[places] == ordinals)

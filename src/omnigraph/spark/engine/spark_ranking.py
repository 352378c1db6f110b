"""Scores of matched rows on Spark: vector distance, BM25, and fusion of rankings.

Scores are bit-identical to those of the local engine, because the same functions compute distances and tokens.
BM25 needs statistics of the whole column before it can score a text: a separate job counts them, and returns a
few numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from omnigraph.engine.parameters import Bindings
from omnigraph.engine.projection.plan_projection import is_descending
from omnigraph.lang import ir
from omnigraph.search.analyzer import Analyzer
from omnigraph.search.rank_fusion import check_depth, check_k
from omnigraph.search.text_index import Statistics
from omnigraph.search.text_query import parse_query, score_terms
from omnigraph.spark.engine.binding_frames import ID, BindingFrame, Names
from omnigraph.spark.engine.pattern_joins import TableFrames
from omnigraph.spark.engine.udfs import bm25_udf, call_batches, distance_udf, token_count_udf

if TYPE_CHECKING:
    from pyspark.sql import Column


class Constants(Protocol):
    """The constants of a query."""

    @property
    def bindings(self) -> Bindings:
        """The parameters of the query."""

    def vector(self, query: ir.Expr) -> tuple[float, ...] | None:
        """Return the query vector of a ranking, or None if it is null."""

    def text(self, query: ir.Expr) -> str | None:
        """Return the query text of a ranking, or None if it is null."""

    def constant(self, expr: ir.Expr) -> ir.Value:
        """Return the value of an expression that is the same for every row."""


@dataclass(frozen=True)
class SparkRanking:
    """Adds scores to rows."""

    tables: TableFrames
    query: ir.ReadQuery
    constants: Constants
    names: Names

    def add(self, rank: ir.Rank, rows: BindingFrame, name: str) -> BindingFrame:
        """Return the rows with a column of scores, null where the ranking does not contain the row."""
        if not isinstance(rank, ir.Rrf):
            return rows.with_frame(rows.frame.withColumn(name, self._score(rank, rows)))
        k = check_k(self.constants.constant(rank.k))
        depth = check_depth(self.constants.constant(rank.depth))
        added = []
        for part in rank.ranks:
            added.append(self.names.take())
            rows = self._add_contribution(part, rank.fn, k, depth, rows, added[-1])
        return rows.with_frame(rows.frame.withColumn(name, _fused(added, rank.weights)))

    def _score(self, rank: ir.Nearest | ir.Bm25, rows: BindingFrame) -> Column:
        from pyspark.sql import functions as F  # noqa: N812 - the conventional name

        nothing = F.lit(None).cast("double")
        column = F.col(rows.columns[rank.field.variable, rank.field.property])
        if isinstance(rank, ir.Nearest):
            vector = self.constants.vector(rank.query)
            return nothing if vector is None else _distance(rank, vector, column)
        text = self.constants.text(rank.query)
        analyzers = [Analyzer(field.analysis) for field in rank.fields]
        query = None if text is None else parse_query(text, analyzers)
        if query is None:
            return nothing
        statistics = [
            self._statistics(field, score_terms(query, number)) for number, field in enumerate(rank.fields)
        ]
        columns = [F.col(rows.columns[field.ref.variable, field.ref.property]) for field in rank.fields]
        return call_batches(bm25_udf(query, rank.fields, statistics), "double", columns)

    def _statistics(self, field: ir.TextField, terms: tuple[str, ...]) -> Statistics:
        from pyspark.sql import functions as F  # noqa: N812

        ref = field.ref
        type_name = next(item.type_name for item in self.query.variables if item.name == ref.variable)
        texts = self.tables.scan(f"node:{type_name}", [ref.property]).toDF("text")
        count = token_count_udf(terms, Analyzer(field.analysis))
        counted = texts.select(call_batches(count, "array<bigint>", [F.col("text")]).alias("n"))
        having = [F.count_if(F.col("n")[place] > 0) for place in range(1, len(terms) + 1)]
        found = counted.agg(F.count("n"), F.coalesce(F.sum(F.col("n")[0]), F.lit(0)), *having).collect()[0]
        return Statistics(found[0], found[1], dict(zip(terms, found[2:], strict=True)))

    def _add_contribution(
        self,
        rank: ir.Nearest | ir.Bm25,
        fn: ir.FusionFn,
        k: int,
        depth: int,
        rows: BindingFrame,
        name: str,
    ) -> BindingFrame:
        """Add what one ranking adds to a fused score. Entities with equal scores are ranked by id."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        id_, key, score = rows.columns[rank.field.variable, ID], self.names.take(), self.names.take()
        best = F.col(score).desc() if is_descending(rank) else F.col(score).asc()
        entities = (
            rows.frame.select(F.col(id_).alias(key), self._score(rank, rows).alias(score))
            .where(F.col(key).isNotNull() & F.col(score).isNotNull())
            .dropDuplicates([key])
        )
        place = self.names.take()
        numbered = entities.select(
            key, score, F.row_number().over(Window.orderBy(best, F.col(key).asc())).alias(place)
        ).where(F.col(place) <= F.lit(depth))
        if fn == "rrf":
            # These ranks count from 1.
            ranked = numbered.select(key, (F.lit(1.0) / (F.col(place) + F.lit(k))).alias(name))
        else:
            ranked = numbered.select(
                key, _normalized(F.col(score), descending=is_descending(rank)).alias(name)
            )
        return rows.with_frame(rows.frame.join(ranked, F.col(id_) == F.col(key), "left").drop(key))


def _normalized(score: Column, *, descending: bool) -> Column:
    """Return the scores between 1 for the best and 0 for the worst, as `normalized_scores` does."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    infinite = F.isnan(score) | (F.abs(score) == F.lit(float("inf")))
    finite = F.when(~infinite, score)
    everything = Window.partitionBy()
    low, high = F.min(finite).over(everything), F.max(finite).over(everything)
    best, worst = (high, low) if descending else (low, high)
    inside = F.when(best == worst, F.lit(1.0)).otherwise((score - worst) / (best - worst))
    return F.when(infinite, F.lit(0.0)).otherwise(inside)


def _distance(rank: ir.Nearest, vector: tuple[float, ...], column: Column) -> Column:
    return call_batches(distance_udf(rank.field.type, vector, rank.metric), "double", [column])


def _fused(names: Sequence[str], weights: Sequence[float]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    either, total = F.lit(False), F.lit(0.0)
    for name, weight in zip(names, weights, strict=True):
        either = either | F.col(name).isNotNull()
        total = total + F.lit(weight) * F.coalesce(F.col(name), F.lit(0.0))
    return F.when(either, total)

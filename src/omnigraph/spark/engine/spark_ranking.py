"""Scores of matched rows on Spark: vector distance, BM25, and reciprocal rank fusion of two rankings.

Scores are bit-identical to those of the local engine, because the same functions compute distances and tokens.
BM25 needs statistics of the whole column before it can score a text: a separate job counts them, and returns a
few numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from omnigraph.engine.parameters import Bindings
from omnigraph.engine.projection.plan_projection import is_descending
from omnigraph.lang import ir
from omnigraph.search.analyzer import Analyzer
from omnigraph.search.rank_fusion import check_k
from omnigraph.spark.engine.binding_frames import ID, BindingFrame, Names
from omnigraph.spark.engine.pattern_joins import TableFrames
from omnigraph.spark.engine.udfs import Corpus, bm25_udf, call_batches, distance_udf, token_count_udf

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
        first, second = self.names.take(), self.names.take()
        for part, column in ((rank.first, first), (rank.second, second)):
            rows = self._add_reciprocal_rank(part, k, rows, column)
        return rows.with_frame(rows.frame.withColumn(name, _fused(first, second)))

    def _score(self, rank: ir.Nearest | ir.Bm25, rows: BindingFrame) -> Column:
        from pyspark.sql import functions as F  # noqa: N812 - the conventional name

        nothing = F.lit(None).cast("double")
        column = F.col(rows.columns[rank.field.variable, rank.field.property])
        if isinstance(rank, ir.Nearest):
            vector = self.constants.vector(rank.query)
            return nothing if vector is None else _distance(rank, vector, column)
        text = self.constants.text(rank.query)
        analyzer = Analyzer(rank.analysis)
        terms = () if text is None else tuple(analyzer.query_terms(text))
        if not terms:
            return nothing
        corpus = self._corpus(rank.field, terms, analyzer)
        return call_batches(bm25_udf(terms, analyzer, corpus), "double", [column])

    def _corpus(self, field: ir.PropertyRef, terms: tuple[str, ...], analyzer: Analyzer) -> Corpus:
        from pyspark.sql import functions as F  # noqa: N812

        type_name = next(item.type_name for item in self.query.variables if item.name == field.variable)
        texts = self.tables.scan(f"node:{type_name}", [field.property]).toDF("text")
        counted = texts.select(
            call_batches(token_count_udf(terms, analyzer), "array<bigint>", [F.col("text")]).alias("n")
        )
        having = [F.count_if(F.col("n")[place] > 0) for place in range(1, len(terms) + 1)]
        found = counted.agg(F.count("n"), F.coalesce(F.sum(F.col("n")[0]), F.lit(0)), *having).collect()[0]
        return Corpus(found[0], found[1], tuple(found[2:]))

    def _add_reciprocal_rank(
        self, rank: ir.Nearest | ir.Bm25, k: int, rows: BindingFrame, name: str
    ) -> BindingFrame:
        """Add the contribution of one ranking to a fused score. Entities with equal scores are ranked by id."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        id_, key, score = rows.columns[rank.field.variable, ID], self.names.take(), self.names.take()
        best = F.col(score).desc() if is_descending(rank) else F.col(score).asc()
        entities = (
            rows.frame.select(F.col(id_).alias(key), self._score(rank, rows).alias(score))
            .where(F.col(key).isNotNull() & F.col(score).isNotNull())
            .dropDuplicates([key])
        )
        place = F.row_number().over(Window.orderBy(best, F.col(key).asc()))
        # These ranks count from 1.
        ranked = entities.select(key, (F.lit(1.0) / (place + F.lit(k))).alias(name))
        return rows.with_frame(rows.frame.join(ranked, F.col(id_) == F.col(key), "left").drop(key))


def _distance(rank: ir.Nearest, vector: tuple[float, ...], column: Column) -> Column:
    return call_batches(distance_udf(rank.field.type, vector, rank.metric), "double", [column])


def _fused(first: str, second: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    either = F.col(first).isNotNull() | F.col(second).isNotNull()
    parts = [F.coalesce(F.col(name), F.lit(0.0)) for name in (first, second)]
    return F.when(either, parts[0] + parts[1])

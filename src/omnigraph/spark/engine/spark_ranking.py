"""Scores of matched rows on Spark: distance to a vector, BM25, and the fusion of two rankings.

Scores are those of the other engine to the last bit: the same functions compute distances and take texts apart.
BM25 needs to know the whole column before it can score one text: a job of its own counts, and gives back a
few numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from omnigraph.engine.parameters import Bindings
from omnigraph.engine.projection.plan_projection import is_descending
from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.search.text_index import query_terms
from omnigraph.spark.engine.binding_frames import ID, Names, Rows
from omnigraph.spark.engine.pattern_joins import Tables
from omnigraph.spark.engine.udfs import Corpus, call_batches, counting, measuring, scoring

if TYPE_CHECKING:
    from pyspark.sql import Column


class Constants(Protocol):
    """What a query is run with."""

    @property
    def bindings(self) -> Bindings:
        """Its parameters."""

    def vector(self, query: ir.Expr) -> tuple[float, ...] | None:
        """The vector that a ranking asks for; None when it is null."""

    def text(self, query: ir.Expr) -> str | None:
        """The text that a ranking asks for; None when it is null."""

    def constant(self, expr: ir.Expr) -> ir.Value:
        """The value of an expression that is the same for every row."""


@dataclass(frozen=True)
class Ranking:
    """Adds scores to rows."""

    tables: Tables
    query: ir.ReadQuery
    constants: Constants
    names: Names

    def add(self, rank: ir.Rank, rows: Rows, name: str) -> Rows:
        """The rows with a column of scores: null where the ranking does not have the row."""
        if not isinstance(rank, ir.Rrf):
            return rows.with_frame(rows.frame.withColumn(name, self._score(rank, rows)))
        k = self._k(rank)
        first, second = self.names.take(), self.names.take()
        for part, column in ((rank.first, first), (rank.second, second)):
            rows = self._contribute(part, k, rows, column)
        return rows.with_frame(rows.frame.withColumn(name, _fused(first, second)))

    def _k(self, rank: ir.Rrf) -> int:
        value = self.constants.constant(rank.k)
        if not isinstance(value, int) or value <= 0:
            raise InvalidInput(f"rrf needs a k above 0, not {value}")
        return value

    def _score(self, rank: ir.Nearest | ir.Bm25, rows: Rows) -> Column:
        from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

        nothing = F.lit(None).cast("double")
        column = F.col(rows.columns[rank.field.variable, rank.field.property])
        if isinstance(rank, ir.Nearest):
            vector = self.constants.vector(rank.query)
            return nothing if vector is None else _measured(rank, vector, column)
        text = self.constants.text(rank.query)
        terms = () if text is None else tuple(query_terms(text))
        if not terms:
            return nothing
        return call_batches(scoring(terms, self._corpus(rank.field, terms)), "double", [column])

    def _corpus(self, field: ir.PropertyRef, terms: tuple[str, ...]) -> Corpus:
        from pyspark.sql import functions as F  # noqa: N812

        type_name = next(item.type_name for item in self.query.variables if item.name == field.variable)
        texts = self.tables.scan(f"node:{type_name}", [field.property]).toDF("text")
        counted = texts.select(call_batches(counting(terms), "array<bigint>", [F.col("text")]).alias("n"))
        having = [F.count_if(F.col("n")[place] > 0) for place in range(1, len(terms) + 1)]
        found = counted.agg(F.count("n"), F.coalesce(F.sum(F.col("n")[0]), F.lit(0)), *having).collect()[0]
        return Corpus(found[0], found[1], tuple(found[2:]))

    def _contribute(self, rank: ir.Nearest | ir.Bm25, k: int, rows: Rows, name: str) -> Rows:
        """What one ranking adds to the fused score: places are those of entities, equal ones stand by id."""
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
        # Places count from 1 here.
        ranked = entities.select(key, (F.lit(1.0) / (place + F.lit(k))).alias(name))
        return rows.with_frame(rows.frame.join(ranked, F.col(id_) == F.col(key), "left").drop(key))


def _measured(rank: ir.Nearest, vector: tuple[float, ...], column: Column) -> Column:
    return call_batches(measuring(rank.field.type, vector), "double", [column])


def _fused(first: str, second: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    either = F.col(first).isNotNull() | F.col(second).isNotNull()
    parts = [F.coalesce(F.col(name), F.lit(0.0)) for name in (first, second)]
    return F.when(either, parts[0] + parts[1])

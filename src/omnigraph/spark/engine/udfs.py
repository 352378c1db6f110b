"""Functions that Spark's Python workers run on batches, with the same implementations as in the local engine.

Results do not depend on which rows share a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.arrow_expressions import RowRef, evaluate, truth_values
from omnigraph.engine.parameters import Bindings
from omnigraph.lang import ir
from omnigraph.lang.schema import Metric
from omnigraph.lang.types import PropType
from omnigraph.search.analyzer import Analyzer
from omnigraph.search.text_index import K1, B, TextIndex
from omnigraph.search.text_search import max_edits
from omnigraph.search.vector_distance import nearest_distances
from omnigraph.spark.engine.arrow_columns import as_stored

if TYPE_CHECKING:
    from pyspark.sql import Column

BatchFunction = Callable[..., pa.Array]


def call_batches(work: BatchFunction, kind: str, columns: Sequence[Column]) -> Column:
    """Return the column that a function over Arrow arrays computes from others, in the Spark type `kind`.

    Spark detects by the annotations of the function that it works on arrays.
    """
    from pyspark.sql.pandas.functions import arrow_udf

    # The type stubs require the deprecated argument for the kind of function.
    make: Any = arrow_udf
    column: Column = make(work, kind)(*columns)
    return column


# --- predicates ------------------------------------------------------------------------------------------------


def predicate_udf(
    predicate: ir.Predicate, refs: Sequence[ir.PropertyRef | ir.EntityRef], bindings: Bindings
) -> BatchFunction:
    """Return the truth of a predicate over the columns of its references: true, false, or null for unknown."""

    def evaluate_batch(*columns: pa.Array) -> pa.Array:
        values = {ref: as_stored(column, ref.type) for ref, column in zip(refs, columns, strict=True)}
        return truth_values(predicate, BatchSource(len(columns[0]), values, bindings), bindings)

    return evaluate_batch


@dataclass(frozen=True)
class BatchSource:
    """The rows of one batch as a column source."""

    num_rows: int
    columns: Mapping[ir.PropertyRef | ir.EntityRef, pa.Array]
    bindings: Bindings

    def column(self, ref: RowRef) -> pa.Array:
        """Return the values of a reference."""
        assert not isinstance(ref, ir.ColumnRef)
        return self.columns[ref]

    def search(self, match: ir.TextMatch) -> pa.Array:
        """Return which rows match a text search, null where text or query is null."""
        texts = self.columns[match.field]
        queries = evaluate(match.query, self, self.bindings)
        if isinstance(queries, pa.Scalar):
            queries = pa.array([queries.as_py()] * self.num_rows, pa.string())
        index = TextIndex.build(texts, Analyzer(match.analysis))
        found = np.zeros(self.num_rows, np.bool_)
        for query in pc.unique(queries.drop_null()).to_pylist():
            asked = pc.fill_null(pc.equal(queries, query), False).to_numpy(zero_copy_only=False)
            found[asked] = self._hits(index, match, query)[asked]
        unknown = pc.or_(pc.is_null(texts), pc.is_null(queries))
        return pa.array(found, pa.bool_(), mask=unknown.to_numpy(zero_copy_only=False))

    def _hits(self, index: TextIndex, match: ir.TextMatch, query: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if match.fn != "fuzzy":
            return index.matches_any(query)
        return index.matches_fuzzy(query, max_edits(match, self.bindings))


# --- distances -------------------------------------------------------------------------------------------------


def distance_udf(kind: PropType, query: Sequence[float], metric: Metric) -> BatchFunction:
    """Return the distance of each vector to the query, null where there is no vector."""

    def measure(vectors: pa.Array) -> pa.Array:
        rows = np.arange(len(vectors))
        found, distances = nearest_distances(as_stored(vectors, kind), rows, query, metric)
        values = np.zeros(len(vectors))
        missing = np.ones(len(vectors), np.bool_)
        values[found], missing[found] = distances, False
        return pa.array(values, pa.float64(), mask=missing)

    return measure


# --- BM25 ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Corpus:
    """The BM25 statistics of a column: the number of texts, of tokens, and of texts that have each term."""

    texts: int
    tokens: int
    having: tuple[int, ...]


def token_count_udf(terms: Sequence[str], analyzer: Analyzer) -> BatchFunction:
    """Return the number of tokens of each text, followed by the count of each term; null where there is no text."""

    def count(texts: pa.Array) -> pa.Array:
        counted = [
            None if text is None else _counts(analyzer.tokens(text), terms) for text in texts.to_pylist()
        ]
        return pa.array(counted, pa.list_(pa.int64()))

    return count


def _counts(tokens: list[str], terms: Sequence[str]) -> list[int]:
    return [len(tokens), *(tokens.count(term) for term in terms)]


def bm25_udf(terms: Sequence[str], analyzer: Analyzer, corpus: Corpus) -> BatchFunction:
    """Return the BM25 score of each text, null where it has none of the terms."""
    count = token_count_udf(terms, analyzer)
    weights = [
        math.log1p((corpus.texts - having + 0.5) / (having + 0.5)) * (K1 + 1) for having in corpus.having
    ]

    def score(texts: pa.Array) -> pa.Array:
        counted = count(texts)
        known = counted.is_valid().to_numpy(zero_copy_only=False)
        values = counted.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
        table = values.reshape(np.count_nonzero(known), len(weights) + 1)
        scores = np.zeros(len(texts))
        found = np.zeros(len(table))
        if len(table) and corpus.tokens:
            norms = K1 * (1 - B + B * (table[:, 0] * corpus.texts / corpus.tokens))
            for place, weight in enumerate(weights, start=1):
                found += weight * table[:, place] / (table[:, place] + norms)
        scores[known] = found
        return pa.array(scores, pa.float64(), mask=scores == 0)

    return score

"""Functions that Spark's Python workers run on batches, with the same implementations as in the local engine.

Results do not depend on which rows share a batch.
"""

from __future__ import annotations

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
from omnigraph.search.snippets import text_snippets
from omnigraph.search.text_index import Mask, Ordinals, Statistics, TextIndex
from omnigraph.search.text_query import Node
from omnigraph.search.text_scoring import TextEvaluation
from omnigraph.search.text_search import has_operators, match_text, max_edits
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
        """Return which rows match a text search, null where all texts or the query are null."""
        fields = [BatchField.of(field, self.columns[field.ref]) for field in match.fields]
        queries = evaluate(match.query, self, self.bindings)
        if isinstance(queries, pa.Scalar):
            queries = pa.array([queries.as_py()] * self.num_rows, pa.string())
        found = np.zeros(self.num_rows, np.bool_)
        edits = max_edits(match, self.bindings)
        for query in pc.unique(queries.drop_null()).to_pylist():
            asked = pc.fill_null(pc.equal(queries, query), False).to_numpy(zero_copy_only=False)
            hits = match_text(match.fn, query, edits, fields, has_operators=has_operators(match))
            found[asked] = hits[asked]
        unknown = pc.is_null(queries).to_numpy(zero_copy_only=False)
        unknown = unknown | np.logical_and.reduce([field.null_mask for field in fields])
        return pa.array(found, pa.bool_(), mask=unknown)


@dataclass(frozen=True)
class BatchField:
    """A searched property of the rows of one batch."""

    column: pa.Array
    index: TextIndex
    analyzer: Analyzer
    boost: float

    @classmethod
    def of(cls, field: ir.TextField, column: pa.Array) -> BatchField:
        """Return the field with an index of the batch."""
        analyzer = Analyzer(field.analysis)
        return cls(column, TextIndex.build(column, analyzer), analyzer, field.boost)

    @property
    def null_mask(self) -> Mask:
        """Which rows have no text."""
        mask: Mask = pc.is_null(self.column).to_numpy(zero_copy_only=False)
        return mask

    def texts(self, ordinals: Ordinals) -> pa.Array:
        """Return the texts of some rows."""
        return self.column.take(pa.array(ordinals))


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


def bm25_udf(query: Node, fields: Sequence[ir.TextField], statistics: Sequence[Statistics]) -> BatchFunction:
    """Return the BM25 score of each row by its texts, null where the row does not match the query."""

    def score(*columns: pa.Array) -> pa.Array:
        batch = [BatchField.of(field, column) for field, column in zip(fields, columns, strict=True)]
        ordinals, found = TextEvaluation(query, batch).scores(statistics)
        scores = np.zeros(len(columns[0]))
        scores[ordinals] = found
        return pa.array(scores, pa.float64(), mask=scores == 0)

    return score


def snippet_udf(call: ir.Snippet, query: str | None) -> BatchFunction:
    """Return the snippet of each text."""

    def cut(texts: pa.Array) -> pa.Array:
        return text_snippets(call, texts, query)

    return cut

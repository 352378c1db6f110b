"""What Spark has no words for, run by its Python workers batch by batch, with the functions that run it elsewhere.

Nothing in here depends on which rows share a batch, but for how fast it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.arrow_expressions import RowRef, evaluate, matches
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.lang.types import PropType
from omnigraph.search.text_index import K1, B, TextIndex, tokenize
from omnigraph.search.vector_distance import nearest_distances
from omnigraph.spark.engine.arrow_columns import as_stored

if TYPE_CHECKING:
    from pyspark.sql import Column

Batch = Callable[..., pa.Array]

_DEFAULT_EDITS = 2


def call_batches(work: Batch, kind: str, columns: Sequence[Column]) -> Column:
    """The column that a function over Arrow arrays makes of others, in the Spark type `kind`.

    Spark knows by the annotations of the function that it is one over arrays.
    """
    from pyspark.sql.pandas.functions import arrow_udf

    # Its stubs want the kind of function said as well, which it then advises against.
    make: Any = arrow_udf
    column: Column = make(work, kind)(*columns)
    return column


# --- predicates ------------------------------------------------------------------------------------------------


def judging(
    predicate: ir.Predicate, refs: Sequence[ir.PropertyRef | ir.EntityRef], bindings: Bindings
) -> Batch:
    """The truth of a predicate over the columns of its references: true, false, or null for unknown."""

    def judge(*columns: pa.Array) -> pa.Array:
        given = {ref: as_stored(column, ref.type) for ref, column in zip(refs, columns, strict=True)}
        rows = BatchRows(len(columns[0]), given, bindings)
        true = matches(predicate, rows, bindings)
        false = matches(ir.Not(predicate), rows, bindings)
        unknown = pc.invert(pc.or_(true, false))
        return pa.array(
            true.to_numpy(zero_copy_only=False), pa.bool_(), mask=unknown.to_numpy(zero_copy_only=False)
        )

    return judge


@dataclass(frozen=True)
class BatchRows:
    """The rows of one batch as the evaluator sees them."""

    num_rows: int
    columns: Mapping[ir.PropertyRef | ir.EntityRef, pa.Array]
    bindings: Bindings

    def column(self, ref: RowRef) -> pa.Array:
        """The values of a reference."""
        assert not isinstance(ref, ir.ColumnRef)
        return self.columns[ref]

    def search(self, match: ir.TextMatch) -> pa.Array:
        """Which rows a search finds; null where there is no text or nothing to search for."""
        texts = self.columns[match.field]
        queries = evaluate(match.query, self, self.bindings)
        if isinstance(queries, pa.Scalar):
            queries = pa.array([queries.as_py()] * self.num_rows, pa.string())
        index = TextIndex.build(texts)
        found = np.zeros(self.num_rows, np.bool_)
        for query in pc.unique(queries.drop_null()).to_pylist():
            asked = pc.fill_null(pc.equal(queries, query), False).to_numpy(zero_copy_only=False)
            found[asked] = self._hits(index, match, query)[asked]
        unknown = pc.or_(pc.is_null(texts), pc.is_null(queries))
        return pa.array(found, pa.bool_(), mask=unknown.to_numpy(zero_copy_only=False))

    def _hits(self, index: TextIndex, match: ir.TextMatch, query: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if match.fn != "fuzzy":
            return index.matches_any(query)
        return index.matches_fuzzy(query, edits_of(match, self.bindings))


def edits_of(match: ir.TextMatch, bindings: Bindings) -> int:
    """How many edits a search forgives; anything but a number from 0 on is `InvalidInput`."""
    if match.max_edits is None:
        return _DEFAULT_EDITS
    if not isinstance(match.max_edits, ir.Const | ir.ParamRef | ir.Now):
        raise InvalidInput("the number of edits must be a literal or a parameter")
    value = bindings.value(match.max_edits)
    if not isinstance(value, int) or value < 0:
        raise InvalidInput(f"`fuzzy` needs a number of edits of at least 0, got {value}")
    return value


# --- distances -------------------------------------------------------------------------------------------------


def measuring(kind: PropType, query: Sequence[float]) -> Batch:
    """The squared distance of each vector to the query; null where there is no vector."""

    def measure(vectors: pa.Array) -> pa.Array:
        found, distances = nearest_distances(as_stored(vectors, kind), np.arange(len(vectors)), query)
        values = np.zeros(len(vectors))
        missing = np.ones(len(vectors), np.bool_)
        values[found], missing[found] = distances, False
        return pa.array(values, pa.float64(), mask=missing)

    return measure


# --- BM25 ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Corpus:
    """What BM25 weighs terms by: of all texts their number, their tokens, and how many have each term."""

    texts: int
    tokens: int
    having: tuple[int, ...]


def counting(terms: Sequence[str]) -> Batch:
    """The number of tokens of each text, then how often each term is among them; null where there is no text."""

    def count(texts: pa.Array) -> pa.Array:
        counted = [None if text is None else _counts(text, terms) for text in texts.to_pylist()]
        return pa.array(counted, pa.list_(pa.int64()))

    return count


def _counts(text: str, terms: Sequence[str]) -> list[int]:
    tokens = tokenize(text)
    return [len(tokens), *(tokens.count(term) for term in terms)]


def scoring(terms: Sequence[str], corpus: Corpus) -> Batch:
    """The BM25 score of each text; null where it has none of the terms."""
    count = counting(terms)
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

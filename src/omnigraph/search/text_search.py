"""Full-text search in the columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.budget.deadline import check_deadline
from omnigraph.engine.memory.cached_table import CachedTable, Ordinals
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import InvalidInput, NotFound, StorageError
from omnigraph.lang import ir
from omnigraph.lang.schema import TextAnalysis
from omnigraph.search.analyzer import Analyzer
from omnigraph.search.inverted.indexed_columns import report_index_damage, table_text_index
from omnigraph.search.inverted.table_text_index import TableTextIndex
from omnigraph.search.text_index import Mask
from omnigraph.search.text_query import parse_query, plain_query
from omnigraph.search.text_scoring import SearchedField, TextEvaluation

_DEFAULT_EDITS = 2
_CONSTANT = (ir.Const, ir.ParamRef, ir.Now)


def match_text(
    fn: ir.TextFn, query: str, edits: int, fields: Sequence[SearchedField], *, has_operators: bool
) -> Mask:
    """Return which rows of the fields match a query; without text they do not.

    `edits` is the maximum distance of ``fuzzy``, whose query is words.
    """
    if fn == "fuzzy":
        found = [field.index.matches_fuzzy(query, edits) for field in fields]
        mask: Mask = np.logical_or.reduce(found)
        return mask
    parse = parse_query if has_operators else plain_query
    return TextEvaluation(parse(query, [field.analyzer for field in fields]), fields).matches()


def has_operators(match: ir.TextMatch) -> bool:
    """Return whether the query is one text for all rows, written by the caller in the query language."""
    return isinstance(match.query, _CONSTANT)


def max_edits(match: ir.TextMatch, bindings: Bindings) -> int:
    """Return the maximum number of edits of ``fuzzy``; raise `InvalidInput` unless it is an integer from 0 on."""
    if match.max_edits is None:
        return _DEFAULT_EDITS
    if not isinstance(match.max_edits, _CONSTANT):
        raise InvalidInput("the maximum number of edits must be a literal or a parameter")
    value = bindings.value(match.max_edits)
    if not isinstance(value, int) or value < 0:
        raise InvalidInput(f"`fuzzy` needs a maximum number of edits of at least 0, got {value}")
    return value


@dataclass(frozen=True)
class TextField:
    """A searched text property of one version of a table."""

    table: CachedTable
    name: str
    analysis: TextAnalysis
    boost: float = 1.0

    @property
    def analyzer(self) -> Analyzer:
        """The analysis of the texts."""
        return Analyzer(self.analysis)

    def texts(self, ordinals: Ordinals) -> pa.Array:
        """Return the texts of some rows."""
        return self.table.values(self.name, ordinals)

    @cached_property
    def index(self) -> TableTextIndex:
        """The index of the column at this version."""
        return table_text_index(self.table, self.name, self.analyzer)


def text_fields(table: CachedTable, fields: Sequence[ir.TextField]) -> tuple[TextField, ...]:
    """Return the fields of a search in a table."""
    return tuple(TextField(table, field.ref.property, field.analysis, field.boost) for field in fields)


T = TypeVar("T")


def with_intact_indexes(fields: Sequence[TextField], evaluate: Callable[[Sequence[TextField]], T]) -> T:
    """Return what `evaluate` returns for fields; if a stored index is damaged, evaluate without the stored ones.

    The index is not used again for this version, and the damage is logged once.
    """
    try:
        return evaluate(fields)
    except (NotFound, StorageError) as error:
        if not report_index_damage(fields[0].table, error):
            raise
    # Fields keep their index, so new ones are made.
    return evaluate([replace(field) for field in fields])


@dataclass(frozen=True)
class TextSearch:
    """A search in one or more text properties of the rows of a table.

    `has_operators` is false for queries that come from the rows: their texts are words, not a query language.
    """

    fn: ir.TextFn
    fields: tuple[TextField, ...]
    edits: int
    has_operators: bool

    def rows(self, queries: pa.Array | pa.Scalar, ordinals: Ordinals | None) -> pa.Array:
        """Return which of the rows at `ordinals`, or of all rows, match; null where query or all texts are null.

        `queries` is one text for all rows, or one text per row.
        """
        if isinstance(queries, pa.Scalar):
            return self._match(queries.as_py(), ordinals)
        places = np.arange(self.fields[0].table.numbers.size) if ordinals is None else ordinals
        encoded = queries.dictionary_encode()
        codes = pc.fill_null(encoded.indices, -1).to_numpy()
        found = np.zeros(len(places), np.bool_)
        known = np.zeros(len(places), np.bool_)
        for code, query in enumerate(encoded.dictionary.to_pylist()):
            check_deadline()
            rows = np.flatnonzero(codes == code)
            matched = self._match(query, places[rows])
            found[rows] = pc.fill_null(matched, False).to_numpy(zero_copy_only=False)
            known[rows] = matched.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(found, mask=~known)

    def _match(self, query: str | None, ordinals: Ordinals | None) -> pa.Array:
        table = self.fields[0].table
        count = table.numbers.size if ordinals is None else len(ordinals)
        if query is None:
            return pa.nulls(count, pa.bool_())
        mask, null = with_intact_indexes(self.fields, lambda fields: self._evaluate(query, fields))
        if ordinals is None:
            return pa.array(mask, mask=null)
        # Position -1, the last one, is a variable that is null.
        found = np.append(mask, False)[ordinals]
        return pa.array(found, mask=ordinals < 0 if null is None else np.append(null, True)[ordinals])

    def _evaluate(self, query: str, fields: Sequence[TextField]) -> tuple[Mask, Mask | None]:
        """Return which positions match, and which have no text in any field."""
        mask = match_text(self.fn, query, self.edits, fields, has_operators=self.has_operators)
        null: Mask | None = None
        for field in fields:
            missing = field.index.missing()
            if missing is None:
                return mask, None
            null = missing if null is None else null & missing
        return mask, null

"""Full-text search in a column of a table, with a cached index that every version extends by its new texts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.budget.deadline import check_deadline
from omnigraph.engine.memory.cached_table import CachedTable, Ordinals
from omnigraph.engine.memory.memory_cache import Sized
from omnigraph.engine.memory.row_numbers import RowNumbers
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.lang.schema import TextAnalysis
from omnigraph.search.analyzer import Analyzer
from omnigraph.search.text_index import TextIndex

_DEFAULT_EDITS = 2


def max_edits(match: ir.TextMatch, bindings: Bindings) -> int:
    """Return the maximum number of edits of ``fuzzy``; raise `InvalidInput` unless it is an integer from 0 on."""
    if match.max_edits is None:
        return _DEFAULT_EDITS
    if not isinstance(match.max_edits, ir.Const | ir.ParamRef | ir.Now):
        raise InvalidInput("the maximum number of edits must be a literal or a parameter")
    value = bindings.value(match.max_edits)
    if not isinstance(value, int) or value < 0:
        raise InvalidInput(f"`fuzzy` needs a maximum number of edits of at least 0, got {value}")
    return value


@dataclass(frozen=True, eq=False)
class IndexedColumn:
    """The text index of one version of a column: `written` indexes all positions, `index` those with a row."""

    numbers: RowNumbers
    written: TextIndex
    index: TextIndex

    @property
    def nbytes(self) -> int:
        """Bytes of the index."""
        return self.written.nbytes

    @property
    def parts(self) -> tuple[Sized, ...]:
        """The segments, which versions share."""
        return self.written.segments


@dataclass(frozen=True)
class TextSearch:
    """Searches in one text property, whose words the analysis of the schema makes tokens."""

    table: CachedTable
    property: str
    analysis: TextAnalysis

    def rows(
        self, fn: ir.TextFn, queries: pa.Array | pa.Scalar, edits: int, ordinals: Ordinals | None
    ) -> pa.Array:
        """Return which of the rows at `ordinals`, or of all rows, match; null where text or query is null.

        `queries` is one text for all rows, or one text per row. `edits` is the maximum distance of ``fuzzy``.
        """
        if isinstance(queries, pa.Scalar):
            return self._match(fn, queries.as_py(), edits, ordinals)
        places = np.arange(self.table.numbers.size) if ordinals is None else ordinals
        encoded = queries.dictionary_encode()
        codes = pc.fill_null(encoded.indices, -1).to_numpy()
        found = np.zeros(len(places), np.bool_)
        known = np.zeros(len(places), np.bool_)
        for code, query in enumerate(encoded.dictionary.to_pylist()):
            check_deadline()
            rows = np.flatnonzero(codes == code)
            matched = self._match(fn, query, edits, places[rows])
            found[rows] = pc.fill_null(matched, False).to_numpy(zero_copy_only=False)
            known[rows] = matched.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(found, mask=~known)

    def _match(self, fn: ir.TextFn, query: str | None, edits: int, ordinals: Ordinals | None) -> pa.Array:
        count = self.table.numbers.size if ordinals is None else len(ordinals)
        if query is None:
            return pa.nulls(count, pa.bool_())
        index = self.index()
        mask = index.matches_fuzzy(query, edits) if fn == "fuzzy" else index.matches_any(query)
        null = self.table.column_chunks(self.property).null_mask()
        if ordinals is None:
            return pa.array(mask, mask=null)
        # Position -1, the last one, is a variable that is null.
        found, missing = np.append(mask, False), np.append(null, True)
        return pa.array(found[ordinals], mask=missing[ordinals])

    def index(self) -> TextIndex:
        """Return the index of the column at this version."""
        numbers, cache = self.table.numbers, self.table.cache
        physical = self.table.layout.physical(self.property)
        family: Hashable = ("text", self.table.pin.path, physical, self.analysis, numbers.lineage)
        return cache.get_or_build(family, numbers.serial, lambda: self._build(cache.versions(family))).index

    def _build(self, known: Sequence[IndexedColumn]) -> IndexedColumn:
        """Extend the index of the version before by the texts behind it. Deleted texts are masked."""
        numbers, texts = self.table.numbers, self.table.column_chunks(self.property)
        older = [item for item in known if numbers.continues(item.numbers)]
        donor = max(older, key=lambda item: item.numbers.serial).written if older else None
        donor = donor or TextIndex.empty(Analyzer(self.analysis))
        index = donor.extended(texts.values_from(len(donor)))
        live = numbers.live_mask()
        if live is None:
            return IndexedColumn(numbers, index, index)
        return IndexedColumn(numbers, index, index.restricted(live, int((live & ~texts.null_mask()).sum())))

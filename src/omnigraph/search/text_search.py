"""Full-text search in a column of a table, with a cached index that is extended when rows are appended."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.memory.cached_table import CachedTable, Ordinals
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.search.text_index import TextIndex
from omnigraph.store.tables.table_fragments import TableFragment

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


@dataclass(frozen=True)
class IndexedColumn:
    """The text index of one version of a column."""

    fragments: tuple[TableFragment, ...]
    index: TextIndex

    @property
    def nbytes(self) -> int:
        """Bytes of the index."""
        return self.index.nbytes


@dataclass(frozen=True)
class TextSearch:
    """Searches in one text property."""

    table: CachedTable
    property: str

    def rows(
        self, fn: ir.TextFn, queries: pa.Array | pa.Scalar, edits: int, ordinals: Ordinals | None
    ) -> pa.Array:
        """Return which of the rows at `ordinals`, or of all rows, match; null where text or query is null.

        `queries` is one text for all rows, or one text per row. `edits` is the maximum distance of ``fuzzy``.
        """
        if isinstance(queries, pa.Scalar):
            return self._match(fn, queries.as_py(), edits, ordinals)
        places = np.arange(self.table.num_rows) if ordinals is None else ordinals
        encoded = queries.dictionary_encode()
        codes = pc.fill_null(encoded.indices, -1).to_numpy()
        found = np.zeros(len(places), np.bool_)
        known = np.zeros(len(places), np.bool_)
        for code, query in enumerate(encoded.dictionary.to_pylist()):
            rows = np.flatnonzero(codes == code)
            matched = self._match(fn, query, edits, places[rows])
            found[rows] = pc.fill_null(matched, False).to_numpy(zero_copy_only=False)
            known[rows] = matched.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(found, mask=~known)

    def _match(self, fn: ir.TextFn, query: str | None, edits: int, ordinals: Ordinals | None) -> pa.Array:
        count = self.table.num_rows if ordinals is None else len(ordinals)
        if query is None:
            return pa.nulls(count, pa.bool_())
        index = self.index()
        mask = index.matches_fuzzy(query, edits) if fn == "fuzzy" else index.matches_any(query)
        texts = self.table.column(self.property)
        null: npt.NDArray[np.bool_] = texts.is_null().to_numpy(zero_copy_only=False)
        if ordinals is None:
            return pa.array(mask, mask=null)
        # Position -1, the last one, is a variable that is null.
        found, missing = np.append(mask, False), np.append(null, True)
        return pa.array(found[ordinals], mask=missing[ordinals])

    def index(self) -> TextIndex:
        """Return the index of the column at this version."""
        family: Hashable = ("text", self.table.pin.path, self.table.layout.physical(self.property))
        cache = self.table.cache
        return cache.get_or_build(
            family, self.table.pin.version, lambda: self._build(cache.latest(family))
        ).index

    def _build(self, old: IndexedColumn | None) -> IndexedColumn:
        fragments = self.table.fragments()
        texts = self.table.column(self.property)
        if old is not None and fragments[: len(old.fragments)] == old.fragments:
            return IndexedColumn(fragments, old.index.extended(texts.slice(len(old.index))))
        return IndexedColumn(fragments, TextIndex.build(texts))

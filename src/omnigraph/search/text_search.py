"""Text search over a column of a table: an inverted index in memory, extended when rows were appended."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.memory.cached_table import CachedTable, Ordinals
from omnigraph.lang import ir
from omnigraph.search.text_index import TextIndex
from omnigraph.store.tables.table_fragments import TableFragment


@dataclass(frozen=True)
class Indexed:
    """The index of one version of a column."""

    parts: tuple[TableFragment, ...]
    index: TextIndex

    @property
    def nbytes(self) -> int:
        """Memory of the index."""
        return self.index.nbytes


@dataclass(frozen=True)
class TextSearch:
    """Searches in one text property."""

    table: CachedTable
    property: str

    def rows(
        self, fn: ir.TextFn, queries: pa.Array | pa.Scalar, edits: int, ordinals: Ordinals | None
    ) -> pa.Array:
        """Which rows match, of the given positions or of all; null where there is no text or no query.

        `queries` is one text for all rows, or a text for each.
        """
        if isinstance(queries, pa.Scalar):
            return self._matching(fn, queries.as_py(), edits, ordinals)
        places = np.arange(self.table.num_rows) if ordinals is None else ordinals
        coded = queries.dictionary_encode()
        codes = pc.fill_null(coded.indices, -1).to_numpy()
        found = np.zeros(len(places), np.bool_)
        known = np.zeros(len(places), np.bool_)
        for code, query in enumerate(coded.dictionary.to_pylist()):
            rows = np.flatnonzero(codes == code)
            part = self._matching(fn, query, edits, places[rows])
            found[rows] = pc.fill_null(part, False).to_numpy(zero_copy_only=False)
            known[rows] = part.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(found, mask=~known)

    def _matching(self, fn: ir.TextFn, query: str | None, edits: int, ordinals: Ordinals | None) -> pa.Array:
        count = self.table.num_rows if ordinals is None else len(ordinals)
        if query is None:
            return pa.nulls(count, pa.bool_())
        index = self.index()
        mask = index.matches_fuzzy(query, edits) if fn == "fuzzy" else index.matches_any(query)
        texts = self.table.column(self.property)
        empty: npt.NDArray[np.bool_] = texts.is_null().to_numpy(zero_copy_only=False)
        if ordinals is None:
            return pa.array(mask, mask=empty)
        # The last place stands for a variable that is null.
        found, missing = np.append(mask, False), np.append(empty, True)
        return pa.array(found[ordinals], mask=missing[ordinals])

    def index(self) -> TextIndex:
        """The index of the column at this version."""
        physical = self.table.layout.physical(self.property)
        family: Hashable = ("text", self.table.pin.path, physical)
        cache = self.table.cache
        return cache.get_or_build(
            family, self.table.pin.version, lambda: self._build(cache.latest(family))
        ).index

    def _build(self, old: Indexed | None) -> Indexed:
        parts = self.table.parts()
        texts = self.table.column(self.property)
        if old is not None and parts[: len(old.parts)] == old.parts:
            return Indexed(parts, old.index.extended(texts.slice(len(old.index))))
        return Indexed(parts, TextIndex.build(texts))

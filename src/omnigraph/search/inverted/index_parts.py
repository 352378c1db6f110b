"""The parts of a full-text index of a table: segments in storage, and an index in memory of the other rows.

The place of a row counts the rows of the covered fragments, deleted ones included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.budget.deadline import check_deadline
from omnigraph.search.analyzer import Analyzer
from omnigraph.search.inverted.edit_distance import near_terms
from omnigraph.search.text_index import (
    NO_OCCURRENCES,
    Occurrences,
    Ordinals,
    TextIndex,
    fuzzy_terms,
    rows_with_all,
)
from omnigraph.store.text.text_segment_format import CoveredFragment
from omnigraph.store.text.text_segment_reader import StoredTerms, TextSegment


class IndexPart(Protocol):
    """An inverted index over the rows of some fragments, by place."""

    @property
    def fragments(self) -> Sequence[CoveredFragment]:
        """What the part knows about each of its fragments."""

    def occurrences(self, term: str) -> Occurrences:
        """Return the places with a token."""

    def places_with_prefix(self, prefix: str) -> Ordinals:
        """Return the places with a token that begins with the prefix, ascending."""

    def fuzzy_places(self, query: str, max_edits: int) -> Ordinals:
        """Return the places with a token near one of the query, ascending."""

    def phrase(self, terms: Sequence[tuple[str, int]]) -> tuple[Occurrences, Ordinals]:
        """Return the places with tokens at distances from each other, and those whose texts decide."""

    def sizes(self, fragment: int) -> npt.NDArray[np.uint32]:
        """Return for each row of a fragment, by its number, 0 without a text, else 1 more than its tokens."""


@dataclass(frozen=True)
class StoredPart:
    """A segment in storage. Raises `NotFound` and `StorageError` if a file is missing or damaged."""

    segment: TextSegment
    analyzer: Analyzer

    @property
    def fragments(self) -> Sequence[CoveredFragment]:
        """What the header states about each fragment."""
        return self.segment.header.fragments

    def occurrences(self, term: str) -> Occurrences:
        """Return the places with a token."""
        check_deadline()
        terms = self.segment.find(term)
        return NO_OCCURRENCES if terms is None else self._read(terms)

    def _read(self, terms: StoredTerms) -> Occurrences:
        found = self.segment.postings(terms)
        return Occurrences(found.places, found.counts.astype(np.float64), found.lengths.astype(np.float64))

    def places_with_prefix(self, prefix: str) -> Ordinals:
        """Return the places with a token that begins with the prefix, ascending."""
        check_deadline()
        terms = self.segment.starting_with(prefix)
        return NO_OCCURRENCES.rows if terms is None else np.unique(self.segment.postings(terms).places)

    def fuzzy_places(self, query: str, max_edits: int) -> Ordinals:
        """Return the places with a token near one of the query, ascending. Reads the dictionary."""
        terms, words = fuzzy_terms(self.analyzer, query, max_edits)
        found = [self.occurrences(term).rows for term in terms]
        for some in self.segment.all_terms() if words else ():
            near = {number for word in words for number in near_terms(some.terms, word, max_edits)}
            for number in sorted(near):
                check_deadline()
                found.append(self.segment.postings(some.part(number, number + 1)).places)
        return np.unique(np.concatenate([NO_OCCURRENCES.rows, *found]))

    def phrase(self, terms: Sequence[tuple[str, int]]) -> tuple[Occurrences, Ordinals]:
        """Return the places with tokens at distances from each other, and those whose texts decide."""
        if not self.segment.with_positions:
            return NO_OCCURRENCES, rows_with_all(self, [term for term, _ in terms])
        stored = {term: self.segment.find(term) for term, _ in terms}
        if any(item is None for item in stored.values()):
            return NO_OCCURRENCES, NO_OCCURRENCES.rows
        postings = {term: self._read(item) for term, item in stored.items() if item is not None}
        places = postings[terms[0][0]].rows
        for term, _ in terms[1:]:
            places = np.intersect1d(places, postings[term].rows, assume_unique=True)
        # The first position of the phrase that each occurrence of a token implies, as one number with its place.
        starts: npt.NDArray[np.int64] | None = None
        for term, distance in terms:
            check_deadline()
            item, found = stored[term], postings[term]
            assert item is not None
            counts = found.counts.astype(np.int64)
            positions = self.segment.positions(item, counts) - distance
            chosen = np.repeat(np.isin(found.rows, places, assume_unique=True), counts) & (positions >= 0)
            keys = (np.repeat(found.rows, counts)[chosen] << 32) | positions[chosen]
            starts = keys if starts is None else np.intersect1d(starts, keys, assume_unique=True)
        assert starts is not None
        rows, counts = np.unique(starts >> 32, return_counts=True)
        first = postings[terms[0][0]]
        lengths = first.lengths[np.searchsorted(first.rows, rows)]
        return Occurrences(rows, counts.astype(np.float64), lengths), NO_OCCURRENCES.rows

    def sizes(self, fragment: int) -> npt.NDArray[np.uint32]:
        """Return the sizes of the rows of a fragment."""
        return self.segment.sizes(fragment)


@dataclass(frozen=True, eq=False)
class MemoryPart:
    """An index in memory. `missing` marks the rows without a text, and `files` identifies the fragments."""

    index: TextIndex
    missing: npt.NDArray[np.bool_]
    fragments: tuple[CoveredFragment, ...] = ()
    files: tuple[str, ...] = ()

    @classmethod
    def empty(cls, analyzer: Analyzer) -> MemoryPart:
        """Return the part without rows."""
        return cls(TextIndex.empty(analyzer), np.zeros(0, np.bool_))

    def extended(self, id_: int, files: str, texts: pa.Array) -> MemoryPart:
        """Return the part with one more fragment."""
        index = self.index.extended(texts)
        before, after = self.index.totals(), index.totals()
        added = CoveredFragment(id_, len(texts), after[0] - before[0], after[1] - before[1])
        missing = texts.is_null().to_numpy(zero_copy_only=False)
        return MemoryPart(
            index,
            np.concatenate([self.missing, missing]),
            (*self.fragments, added),
            (*self.files, files),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.index.nbytes + 5 * len(self.missing)

    @cached_property
    def _sizes(self) -> npt.NDArray[np.uint32]:
        return np.where(self.missing, 0, self.index.lengths() + 1).astype(np.uint32)

    def occurrences(self, term: str) -> Occurrences:
        """Return the places with a token."""
        return self.index.occurrences(term)

    def places_with_prefix(self, prefix: str) -> Ordinals:
        """Return the places with a token that begins with the prefix, ascending."""
        return self.index.rows_with_prefix(prefix)

    def fuzzy_places(self, query: str, max_edits: int) -> Ordinals:
        """Return the places with a token near one of the query, ascending."""
        return np.flatnonzero(self.index.matches_fuzzy(query, max_edits))

    def phrase(self, terms: Sequence[tuple[str, int]]) -> tuple[Occurrences, Ordinals]:
        """Return the places whose texts decide: positions are not kept in memory."""
        return self.index.phrase_occurrences(terms)

    def sizes(self, fragment: int) -> npt.NDArray[np.uint32]:
        """Return the sizes of the rows of a fragment."""
        start = sum(item.rows for item in self.fragments[:fragment])
        return self._sizes[start : start + self.fragments[fragment].rows]

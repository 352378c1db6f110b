"""Inverted index of a text column: rows by token, by prefix and by edit distance, and the statistics of BM25."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.budget.deadline import check_deadline
from omnigraph.errors import InvalidInput, ResourceLimit
from omnigraph.search.analyzer import SIMPLE, Analyzer
from omnigraph.search.inverted.edit_distance import near_terms
from omnigraph.search.inverted.inverted_texts import InvertedTexts, invert_texts, merge_texts, text_slices
from omnigraph.search.words import UNSPACED

Ordinals: TypeAlias = npt.NDArray[np.int64]
Scores: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

K1 = 1.2
B = 0.75

_MAX_ROWS = 1 << 32
MAX_FUZZY_WORD = 1_024
"""The code points of a word of `fuzzy`, at most. The cost of a comparison is the product of two lengths."""

# --- index -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Statistics:
    """The BM25 statistics of a column: the number of texts, of their tokens, and of the texts with each token."""

    texts: int
    tokens: int
    having: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Occurrences:
    """The rows with a token, ascending, how often each has it, and the number of tokens of each."""

    rows: Ordinals
    counts: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.float64]


NO_OCCURRENCES = Occurrences(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


class TermLookup(Protocol):
    """An inverted index."""

    def occurrences(self, term: str) -> Occurrences:
        """Return the rows with a token."""


class SearchedIndex(TermLookup, Protocol):
    """An inverted index of a text column, in memory or stored. The ordinal of a row is its position."""

    def __len__(self) -> int:
        """The number of rows."""

    def totals(self) -> tuple[int, int]:
        """Return the number of texts, and of their tokens."""

    def rows_with_prefix(self, prefix: str) -> Ordinals:
        """Return the rows with a token that begins with the prefix, ascending."""

    def matches_fuzzy(self, query: str, max_edits: int) -> Mask:
        """Return for each row whether its text has a token within `max_edits` edits of a token of the query."""

    def phrase_occurrences(self, terms: Sequence[tuple[str, int]]) -> tuple[Occurrences, Ordinals]:
        """Return rows with tokens at distances from each other, and the rows whose texts decide.

        The latter are those with all tokens where the index has no positions.
        """


@dataclass(frozen=True, slots=True, eq=False)
class TextIndex:
    """An immutable inverted index of a text column. The ordinal of a row is its position in the column.

    Null texts have no tokens and do not count in the statistics of BM25; empty texts do. Results depend only on
    the texts, to the last bit, and not on the steps in which the index was built.

    >>> index = TextIndex.build(pa.array(["red fox", None, "red red wine"])).extended(pa.array(["blue"]))
    >>> index.matches_fuzzy("reed bleu", 1)
    array([ True, False,  True, False])
    >>> found = index.occurrences("red")
    >>> found.rows, found.counts, found.lengths, index.totals()
    (array([0, 2]), array([1., 2.]), array([2., 3.]), (3, 6))
    """

    # Sizes at least halve from each segment to the next, so there are few segments and rows are rarely merged.
    _segments: tuple[InvertedTexts, ...] = ()
    _starts: tuple[int, ...] = ()
    _rows: int = 0
    _texts: int = 0
    _analyzer: Analyzer = SIMPLE

    @classmethod
    def empty(cls, analyzer: Analyzer = SIMPLE) -> TextIndex:
        """Return the index of no rows."""
        return cls(_analyzer=analyzer)

    @classmethod
    def build(cls, column: pa.Array | pa.ChunkedArray, analyzer: Analyzer = SIMPLE) -> TextIndex:
        """Build the index of a text column."""
        return cls.empty(analyzer).extended(column)

    def extended(self, more: pa.Array | pa.ChunkedArray) -> TextIndex:
        """Return the index of this column with `more` rows appended. Costs about as much as indexing only these
        rows.

        Raises `ResourceLimit` for more than 2**32 rows.
        """
        segments, rows = list(self._segments), self._rows + len(more)
        if rows > _MAX_ROWS:
            raise ResourceLimit(
                f"a text index holds at most {_MAX_ROWS:,} rows, got {rows:,}", details={"rows": rows}
            )
        for texts in text_slices(more):
            check_deadline()
            segments.append(invert_texts(texts, self._analyzer))
            while len(segments) > 1 and segments[-2].size < 2 * segments[-1].size:
                last = segments.pop()
                segments[-1] = merge_texts(segments[-1], last)
        starts = [0, *accumulate(segment.rows for segment in segments)][:-1]
        found = self._texts + len(more) - more.null_count
        return TextIndex(tuple(segments), tuple(starts), rows, found, self._analyzer)

    def __len__(self) -> int:
        """The number of rows, including null ones."""
        return self._rows

    @property
    def segments(self) -> tuple[InvertedTexts, ...]:
        """The parts of the index, which an extended index shares."""
        return self._segments

    @property
    def nbytes(self) -> int:
        """Bytes of the index."""
        return sum(segment.nbytes for segment in self._segments)

    @property
    def analyzer(self) -> Analyzer:
        """The analysis of the texts."""
        return self._analyzer

    def matches_fuzzy(self, query: str, max_edits: int) -> Mask:
        """Return for each row whether its text has a token within `max_edits` edits of a token of the query.

        An edit inserts, removes or replaces one code point; a transposition takes two edits. Pairs of characters
        from a run without spaces match only exactly, because a few edits would turn any pair into any other, and
        one common pair is already enough for a match. Raises `ResourceLimit` for a word of more than
        `MAX_FUZZY_WORD` characters.
        """
        terms, words = fuzzy_terms(self._analyzer, query, max_edits)
        return self._containing(
            [
                segment.ids(terms)
                + [found for word in words for found in near_terms(segment.terms, word, max_edits)]
                for segment in self._segments
            ]
        )

    def rows_with_prefix(self, prefix: str) -> Ordinals:
        """Return the rows whose text has a token that begins with the prefix, ascending."""
        return np.flatnonzero(self._containing([range(*segment.range(prefix)) for segment in self._segments]))

    def occurrences(self, term: str) -> Occurrences:
        """Return the rows whose text has a token, ascending, how often, and the numbers of their tokens."""
        found = [
            (
                start + segment.postings(number).astype(np.int64),
                segment.counts[segment.bounds[number] : segment.bounds[number + 1]].astype(np.float64),
                segment.lengths[segment.postings(number)].astype(np.float64),
            )
            for segment, start in zip(self._segments, self._starts, strict=True)
            for number in segment.ids([term])
        ]
        if not found:
            return NO_OCCURRENCES
        rows, counts, lengths = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return Occurrences(rows, counts, lengths)

    def phrase_occurrences(self, terms: Sequence[tuple[str, int]]) -> tuple[Occurrences, Ordinals]:
        """Return no occurrences, and the rows whose text has all of the tokens: their texts decide."""
        return NO_OCCURRENCES, rows_with_all(self, [term for term, _ in terms])

    def lengths(self) -> npt.NDArray[np.uint32]:
        """Return the number of tokens of each row."""
        return np.concatenate([np.zeros(0, np.uint32), *(segment.lengths for segment in self._segments)])

    def totals(self) -> tuple[int, int]:
        """Return the number of texts, and of their tokens."""
        return self._texts, sum(segment.tokens for segment in self._segments)

    def _containing(self, terms: Sequence[Sequence[int]]) -> Mask:
        mask = np.zeros(self._rows, np.bool_)
        for segment, start, ids in zip(self._segments, self._starts, terms, strict=True):
            for term in ids:
                check_deadline()
                mask[start : start + segment.rows][segment.postings(term)] = True
        return mask


def rows_with_all(index: TermLookup, terms: Sequence[str]) -> Ordinals:
    """Return the rows that have all of the tokens, ascending."""
    found = index.occurrences(terms[0]).rows
    for term in terms[1:]:
        check_deadline()
        found = np.intersect1d(found, index.occurrences(term).rows, assume_unique=True)
    return found


def fuzzy_terms(analyzer: Analyzer, query: str, max_edits: int) -> tuple[list[str], list[str]]:
    """Return the tokens of a fuzzy query, and those of them that are words.

    Raises `InvalidInput` for a negative number of edits, and `ResourceLimit` for a word of more than
    `MAX_FUZZY_WORD` characters.
    """
    if max_edits < 0:
        raise InvalidInput(f"`fuzzy` needs a maximum number of edits of at least 0, got {max_edits}")
    terms = analyzer.query_terms(query)
    words = [term for term in terms if not UNSPACED.match(term)]
    longest = max(map(len, words), default=0)
    if longest > MAX_FUZZY_WORD and max_edits:
        raise ResourceLimit(
            f"a word of `fuzzy` has at most {MAX_FUZZY_WORD:,} characters, got {longest:,}",
            details={"resource": "fuzzy_word_characters", "limit": MAX_FUZZY_WORD, "actual": longest},
            hint="search for long words with `search`, which needs no edit distance",
        )
    return terms, words

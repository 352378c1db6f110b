"""Inverted index of a text column: rows by token, by prefix and by edit distance, and the statistics of BM25."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.budget.deadline import check_deadline
from omnigraph.errors import InvalidInput, ResourceLimit
from omnigraph.search.analyzer import SIMPLE, Analyzer
from omnigraph.search.words import UNSPACED

Ordinals: TypeAlias = npt.NDArray[np.int64]
Scores: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

K1 = 1.2
B = 0.75

# Bytes of text that are tokenized at a time. Limits the memory for building an index.
_SLICE_BYTES = 1 << 26
# Words that are analyzed between two checks of the deadline.
_PIECES = 1 << 12
# Cells of edit distance tables in memory at a time.
_TABLE_CELLS = 1 << 20
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
class TextIndex:
    """An immutable inverted index of a text column. The ordinal of a row is its position in the column.

    Null texts have no tokens and do not count in the statistics of BM25; empty texts do. Results depend only on
    the texts, to the last bit, and not on the steps in which the index was built.

    >>> index = TextIndex.build(pa.array(["red fox", None, "red red wine"])).extended(pa.array(["blue"]))
    >>> index.matches_terms(["red"]), index.matches_fuzzy("reed bleu", 1)
    (array([ True, False,  True, False]), array([ True, False,  True, False]))
    >>> index.occurrences("red"), index.statistics(["red"])
    ((array([0, 2]), array([1., 2.])), Statistics(texts=3, tokens=6, having={'red': 2}))
    """

    # Sizes at least halve from each segment to the next, so there are few segments and rows are rarely merged.
    _segments: tuple[_Segment, ...] = ()
    _starts: tuple[int, ...] = ()
    _rows: int = 0
    _texts: int = 0
    _analyzer: Analyzer = SIMPLE
    # The rows that searches consider, and the number of their tokens; None means all rows.
    _live: Mask | None = None
    _live_tokens: int = 0

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
        for texts in _slices(more):
            check_deadline()
            segments.append(_index(texts, self._analyzer))
            while len(segments) > 1 and segments[-2].size < 2 * segments[-1].size:
                last = segments.pop()
                segments[-1] = _merge(segments[-1], last)
        starts = [0, *accumulate(segment.rows for segment in segments)][:-1]
        found = self._texts + len(more) - more.null_count
        return TextIndex(tuple(segments), tuple(starts), rows, found, self._analyzer)

    def restricted(self, live: Mask, texts: int) -> TextIndex:
        """Return the index of the rows that `live` marks, of which `texts` are not null. Shares the postings.

        The other rows match no query and do not count in the statistics. The result cannot be extended.
        """
        tokens = sum(
            int(segment.lengths[live[start : start + segment.rows]].sum(dtype=np.int64))
            for segment, start in zip(self._segments, self._starts, strict=True)
        )
        return TextIndex(self._segments, self._starts, self._rows, texts, self._analyzer, live, tokens)

    def __len__(self) -> int:
        """The number of rows, including null ones."""
        return self._rows

    @property
    def segments(self) -> tuple[_Segment, ...]:
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
        if max_edits < 0:
            raise InvalidInput(f"`fuzzy` needs a maximum number of edits of at least 0, got {max_edits}")
        terms = self._analyzer.query_terms(query)
        words = [term for term in terms if not UNSPACED.match(term)]
        longest = max(map(len, words), default=0)
        if longest > MAX_FUZZY_WORD and max_edits:
            raise ResourceLimit(
                f"a word of `fuzzy` has at most {MAX_FUZZY_WORD:,} characters, got {longest:,}",
                details={"resource": "fuzzy_word_characters", "limit": MAX_FUZZY_WORD, "actual": longest},
                hint="search for long words with `search`, which needs no edit distance",
            )
        return self._containing(
            [
                _ids(segment, terms) + [found for word in words for found in _near(segment, word, max_edits)]
                for segment in self._segments
            ]
        )

    def matches_terms(self, terms: Sequence[str]) -> Mask:
        """Return for each row whether its text has at least one of the tokens."""
        return self._containing([_ids(segment, terms) for segment in self._segments])

    def matches_all(self, terms: Sequence[str]) -> Mask:
        """Return for each row whether its text has all of the tokens."""
        found = self.matches_terms(terms[:1])
        for term in terms[1:]:
            check_deadline()
            found &= self.matches_terms([term])
        return found

    def matches_prefix(self, prefix: str) -> Mask:
        """Return for each row whether its text has a token that begins with the prefix."""
        mask = np.zeros(self._rows, np.bool_)
        for segment, start in zip(self._segments, self._starts, strict=True):
            check_deadline()
            first, stop = _range(segment, prefix)
            mask[start : start + segment.rows][
                segment.places[segment.bounds[first] : segment.bounds[stop]]
            ] = True
        return mask if self._live is None else mask & self._live

    def occurrences(self, term: str) -> tuple[Ordinals, npt.NDArray[np.float64]]:
        """Return the rows whose text has a token, ascending, and how often."""
        found = [
            (start + rows.astype(np.int64), counts)
            for segment, start in zip(self._segments, self._starts, strict=True)
            for number in _ids(segment, [term])
            for rows, counts in [self._postings(segment, start, number)]
        ]
        if not found:
            return np.zeros(0, np.int64), np.zeros(0)
        return np.concatenate([rows for rows, _ in found]), np.concatenate([counts for _, counts in found])

    def lengths(self, ordinals: Ordinals) -> npt.NDArray[np.float64]:
        """Return the number of tokens of some rows, which ascend."""
        bounds = np.searchsorted(ordinals, [*self._starts, self._rows])
        lengths = np.empty(len(ordinals))
        for segment, start, (low, high) in zip(self._segments, self._starts, pairwise(bounds), strict=True):
            lengths[low:high] = segment.lengths[ordinals[low:high] - start]
        return lengths

    def statistics(self, terms: Sequence[str]) -> Statistics:
        """Return what BM25 needs to know about all texts: their number, and how many have each token."""
        tokens = self._live_tokens
        if self._live is None:
            tokens = sum(segment.tokens for segment in self._segments)
        return Statistics(self._texts, tokens, {term: len(self.occurrences(term)[0]) for term in terms})

    def _postings(
        self, segment: _Segment, start: int, term: int
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float64]]:
        """Return the rows of a segment that contain a term, and how often."""
        rows = segment.postings(term)
        counts = segment.counts[segment.bounds[term] : segment.bounds[term + 1]].astype(np.float64)
        if self._live is None:
            return rows, counts
        kept = self._live[start + rows.astype(np.int64)]
        return rows[kept], counts[kept]

    def _containing(self, terms: Sequence[Sequence[int]]) -> Mask:
        mask = np.zeros(self._rows, np.bool_)
        for segment, start, ids in zip(self._segments, self._starts, terms, strict=True):
            for term in ids:
                mask[start : start + segment.rows][segment.postings(term)] = True
        return mask if self._live is None else mask & self._live


@dataclass(frozen=True, slots=True, eq=False)
class _Segment:
    """The index of some consecutive rows. Term n has the postings from bounds[n] to bounds[n + 1]."""

    terms: pa.Array  # in code point order, which is also the order of their UTF-8 bytes
    bounds: npt.NDArray[np.int64]
    places: npt.NDArray[np.uint32]  # rows of the segment, ascending within a term
    counts: npt.NDArray[np.uint32]  # number of occurrences of the term in that row
    lengths: npt.NDArray[np.uint32]  # number of tokens of each row of the segment
    tokens: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", int(self.lengths.sum(dtype=np.int64)))

    @property
    def rows(self) -> int:
        return len(self.lengths)

    @property
    def size(self) -> int:
        return len(self.lengths) + len(self.places)

    @property
    def nbytes(self) -> int:
        arrays = (self.bounds, self.places, self.counts, self.lengths)
        return int(self.terms.nbytes) + sum(array.nbytes for array in arrays)

    def postings(self, term: int) -> npt.NDArray[np.uint32]:
        return self.places[self.bounds[term] : self.bounds[term + 1]]


def _ids(segment: _Segment, terms: Sequence[str]) -> list[int]:
    """Return the numbers of the given terms that the segment has."""

    def spelled(number: int) -> str:
        return str(segment.terms[number].as_py())

    numbers = range(len(segment.terms))
    found = [(bisect_left(numbers, term, key=spelled), term) for term in terms]
    return [number for number, term in found if number < len(numbers) and spelled(number) == term]


def _range(segment: _Segment, prefix: str) -> tuple[int, int]:
    """Return the first number of the terms that begin with a prefix, and the number behind the last one."""

    def head(number: int) -> str:
        return str(segment.terms[number].as_py())[: len(prefix)]

    numbers = range(len(segment.terms))
    return bisect_left(numbers, prefix, key=head), bisect_right(numbers, prefix, key=head)


# --- building --------------------------------------------------------------------------------------------

_CODES = np.arange(256)
# ASCII bytes that separate words in any context. Bytes from 128 on belong to other characters.
_SEPARATES = (_CODES < 128) & ~np.array([chr(code).isalnum() for code in _CODES])


def _slices(column: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yield the column as arrays of large strings of a limited number of bytes. Only a single long text exceeds
    it.
    """
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        texts = pc.fill_null(chunk.cast(pa.large_string()), "")
        ends = _offsets(texts)[1:]
        start = 0
        while start < len(texts):
            limit = (ends[start - 1] if start else _offsets(texts)[0]) + _SLICE_BYTES
            stop = max(start + 1, int(np.searchsorted(ends, limit, side="right")))
            yield texts.slice(start, stop - start)
            start = stop


def _offsets(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Return the start of each text in the buffer of a large string array, and the end of the last text."""
    if not len(texts):
        return np.zeros(1, np.int64)
    return np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]


def _index(texts: pa.Array, analyzer: Analyzer) -> _Segment:
    pieces, owners = _split(texts)
    encoded = pieces.dictionary_encode()
    terms, sizes, numbers = _tokenize_distinct(encoded.dictionary, analyzer)
    # Each occurrence of a piece has the tokens of the piece: `within` counts them from 0 for every occurrence.
    which = encoded.indices.to_numpy().astype(np.int64)
    repeats = sizes[which]
    owners = np.repeat(owners, repeats)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    first = np.cumsum(sizes) - sizes
    tokens = numbers[np.repeat(first[which], repeats) + within]
    pairs, counts = np.unique(tokens * len(texts) + owners, return_counts=True)
    found, places = np.divmod(pairs, len(texts))
    return _segment(terms, found, places, counts, np.bincount(owners, minlength=len(texts)))


def _split(texts: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Split texts at ASCII separators, and return the row of each piece. A split never cuts a word."""
    offsets = _offsets(texts)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    kept = ~_SEPARATES[data]
    begins = kept.copy()
    begins[1:] &= ~kept[:-1]
    # A text that starts with a letter starts a piece, whatever the previous text ended with.
    starts = offsets[:-1][offsets[:-1] < offsets[1:]]
    begins[starts] |= kept[starts]
    ends = kept.copy()
    ends[:-1] &= ~kept[1:] | begins[1:]
    at = np.flatnonzero(begins)
    bounds = np.zeros(len(at) + 1, np.int64)
    np.cumsum(np.flatnonzero(ends) + 1 - at, out=bounds[1:])
    pieces = pa.LargeStringArray.from_buffers(len(at), pa.py_buffer(bounds), pa.py_buffer(data[kept]))
    owners = np.repeat(np.arange(len(texts)), np.diff(np.searchsorted(at, offsets)))
    return pieces, owners


def _tokenize_distinct(
    pieces: pa.Array, analyzer: Analyzer
) -> tuple[pa.Array, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the terms of pieces, the number of tokens of each piece, and the term number of each token."""
    # An ASCII piece is one word, which is its own token in a simple analysis.
    plain = pc.string_is_ascii(pieces).to_numpy(zero_copy_only=False) & analyzer.is_simple
    others = []
    for number, piece in enumerate(pieces.filter(pa.array(~plain)).to_pylist()):
        if number % _PIECES == 0:
            check_deadline()
        others.append(analyzer.tokens(piece))
    sizes = np.ones(len(pieces), np.int64)
    sizes[~plain] = [len(tokens) for tokens in others]
    spelled = pa.concat_arrays(
        [
            pc.ascii_lower(pieces.filter(pa.array(plain))),
            pa.array([token for tokens in others for token in tokens], pa.large_string()),
        ]
    )
    terms, ranks = _rank(spelled)
    # The tokens of ASCII pieces come first; restore the order of the pieces.
    of_plain = np.repeat(plain, sizes)
    numbers = np.empty(len(spelled), np.int64)
    numbers[of_plain] = ranks[: np.count_nonzero(plain)]
    numbers[~of_plain] = ranks[np.count_nonzero(plain) :]
    return terms, sizes, numbers


def _rank(spelled: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the distinct strings in order, and the position of each given string among them."""
    encoded = spelled.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy().astype(np.int64)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return encoded.dictionary.take(pa.array(order)), ranks[encoded.indices.to_numpy()]


def _merge(first: _Segment, second: _Segment) -> _Segment:
    """Merge two adjacent segments."""
    terms, ranks = _rank(pa.concat_arrays([first.terms, second.terms]))
    sizes = np.concatenate([np.diff(first.bounds), np.diff(second.bounds)])
    found = np.repeat(ranks, sizes)
    places = np.concatenate([first.places, second.places + np.uint32(first.rows)])
    counts = np.concatenate([first.counts, second.counts])
    # Stable, so that rows stay ascending within a term. This sort is fastest for two sorted runs.
    order = np.argsort(found, kind="stable")
    lengths = np.concatenate([first.lengths, second.lengths])
    return _segment(terms, found[order], places[order], counts[order], lengths)


def _segment(
    terms: pa.Array,
    found: npt.NDArray[np.int64],
    places: npt.NDArray[np.integer],
    counts: npt.NDArray[np.integer],
    lengths: npt.NDArray[np.integer],
) -> _Segment:
    """Build a segment from postings that are sorted by term number, then by row."""
    bounds = np.searchsorted(found, np.arange(len(terms) + 1))
    return _Segment(
        terms, bounds, places.astype(np.uint32), counts.astype(np.uint32), lengths.astype(np.uint32)
    )


# --- edit distance ---------------------------------------------------------------------------------------


def _near(segment: _Segment, word: str, max_edits: int) -> list[int]:
    """Return the numbers of the segment's terms that are words within `max_edits` edits of the word."""
    lengths = pc.utf8_length(segment.terms).to_numpy().astype(np.int64)
    near: list[int] = []
    check_deadline()
    for length in np.unique(lengths[np.abs(lengths - len(word)) <= max_edits]).tolist():
        numbers = np.flatnonzero(lengths == length)
        step = max(1, _TABLE_CELLS // (length + 1))
        for start in range(0, len(numbers), step):
            some = numbers[start : start + step]
            spelled = segment.terms.take(pa.array(some))
            codes = np.frombuffer("".join(spelled.to_pylist()).encode("utf-32-le"), "<u4")
            edits = min(max_edits, max(length, len(word)))
            close = some[_within(codes.reshape(-1, length), word, edits)].tolist()
            near += [number for number in close if not UNSPACED.match(segment.terms[number].as_py())]
    return near


def _within(codes: npt.NDArray[np.uint32], word: str, max_edits: int) -> Mask:
    """Return for each row of code points whether it is within `max_edits` edits of the word.

    The usual dynamic programming table, one row per prefix of the word, for all candidates at once. Cells further
    than `max_edits` from the diagonal are never filled, because they cannot be part of the result.
    """
    count, length = codes.shape
    columns = np.ascontiguousarray(codes.T)
    too_far = max_edits + 1
    above = np.full((length + 1, count), too_far, np.int64)
    above[: max_edits + 1] = np.arange(min(length, max_edits) + 1)[:, None]
    here = np.full_like(above, too_far)
    for done, char in enumerate(word, start=1):
        check_deadline()
        low, high = max(done - max_edits, 1), min(done + max_edits, length)
        # The left edge of the table, or a cell outside the band, which is too far in any case.
        here[low - 1] = done
        for j in range(low, high + 1):
            replaced = above[j - 1] + (columns[j - 1] != ord(char))
            here[j] = np.minimum(replaced, np.minimum(above[j], here[j - 1]) + 1)
        above, here = here, above
    return above[length] <= max_edits

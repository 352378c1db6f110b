"""Inversion of texts in memory: terms, and for each of them the rows that have it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.budget.deadline import check_deadline
from omnigraph.search.analyzer import Analyzer

# Bytes of text that are tokenized at a time. Limits the memory for building an index.
SLICE_BYTES = 1 << 26
# Words that are analyzed between two checks of the deadline.
_PIECES = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class InvertedTexts:
    """The terms of some consecutive texts. Term n has the postings from bounds[n] to bounds[n + 1]."""

    terms: pa.Array  # in code point order, which is also the order of their UTF-8 bytes
    bounds: npt.NDArray[np.int64]
    places: npt.NDArray[np.uint32]  # rows of the segment, ascending within a term
    counts: npt.NDArray[np.uint32]  # number of occurrences of the term in that row
    lengths: npt.NDArray[np.uint32]  # number of tokens of each row of the segment
    # The positions of each posting one after the other, ascending, as many as its count; None if not asked for.
    positions: npt.NDArray[np.uint32] | None = None
    tokens: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", int(self.lengths.sum(dtype=np.int64)))

    @property
    def rows(self) -> int:
        """The number of texts."""
        return len(self.lengths)

    @property
    def size(self) -> int:
        """The number of texts and postings."""
        return len(self.lengths) + len(self.places)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self.bounds, self.places, self.counts, self.lengths)
        positions = 0 if self.positions is None else self.positions.nbytes
        return int(self.terms.nbytes) + sum(array.nbytes for array in arrays) + positions

    def postings(self, term: int) -> npt.NDArray[np.uint32]:
        """Return the rows with a term, ascending."""
        return self.places[self.bounds[term] : self.bounds[term + 1]]

    def ids(self, terms: Sequence[str]) -> list[int]:
        """Return the numbers of those of some terms that the texts have."""

        def spelled(number: int) -> str:
            return str(self.terms[number].as_py())

        numbers = range(len(self.terms))
        found = [(bisect_left(numbers, term, key=spelled), term) for term in terms]
        return [number for number, term in found if number < len(numbers) and spelled(number) == term]

    def range(self, prefix: str) -> tuple[int, int]:
        """Return the first number of the terms that begin with a prefix, and the number behind the last one."""

        def head(number: int) -> str:
            return str(self.terms[number].as_py())[: len(prefix)]

        numbers = range(len(self.terms))
        return bisect_left(numbers, prefix, key=head), bisect_right(numbers, prefix, key=head)


# --- building --------------------------------------------------------------------------------------------

_CODES = np.arange(256)
# ASCII bytes that separate words in any context. Bytes from 128 on belong to other characters.
_SEPARATES = (_CODES < 128) & ~np.array([chr(code).isalnum() for code in _CODES])


def text_slices(column: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yield the column as arrays of large strings of a limited number of bytes. Only a single long text exceeds
    it.
    """
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        texts = pc.fill_null(chunk.cast(pa.large_string()), "")
        ends = _offsets(texts)[1:]
        start = 0
        while start < len(texts):
            limit = (ends[start - 1] if start else _offsets(texts)[0]) + SLICE_BYTES
            stop = max(start + 1, int(np.searchsorted(ends, limit, side="right")))
            yield texts.slice(start, stop - start)
            start = stop


def _offsets(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Return the start of each text in the buffer of a large string array, and the end of the last text."""
    if not len(texts):
        return np.zeros(1, np.int64)
    return np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]


def invert_texts(texts: pa.Array, analyzer: Analyzer, *, with_positions: bool = False) -> InvertedTexts:
    """Return the terms of texts, a large string array without nulls."""
    pieces, owners = _split(texts)
    encoded = pieces.dictionary_encode()
    distinct = _tokenize_distinct(encoded.dictionary, analyzer, with_positions=with_positions)
    # Each occurrence of a piece has the tokens of the piece: `within` counts them from 0 for every occurrence.
    which = encoded.indices.to_numpy().astype(np.int64)
    repeats = distinct.sizes[which]
    rows = np.repeat(owners, repeats)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    first = np.cumsum(distinct.sizes) - distinct.sizes
    occurrences = np.repeat(first[which], repeats) + within
    keys = distinct.numbers[occurrences] * len(texts) + rows
    positions = None
    if with_positions:
        begins = np.repeat(_begins(distinct.widths[which], owners), repeats)
        # Stable, because the occurrences of a token in a text are in the order of their positions.
        order = np.argsort(keys, kind="stable")
        positions = (begins + distinct.offsets[occurrences])[order].astype(np.uint32)
    pairs, counts = np.unique(keys, return_counts=True)
    found, places = np.divmod(pairs, len(texts))
    lengths = np.bincount(rows, minlength=len(texts))
    return _inverted(distinct.terms, found, places, counts, lengths, positions)


def _begins(widths: npt.NDArray[np.int64], owners: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the position of the first token of each piece in its text."""
    begins: npt.NDArray[np.int64] = np.cumsum(widths) - widths
    return begins - begins[np.searchsorted(owners, owners)] if len(begins) else begins


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


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The tokens of distinct pieces: `sizes` counts those of each piece, and `numbers` has the term of each token.

    `offsets` are the positions of the tokens behind the start of their piece, and `widths` those that pieces take.
    """

    terms: pa.Array
    sizes: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    widths: npt.NDArray[np.int64]


def _tokenize_distinct(pieces: pa.Array, analyzer: Analyzer, *, with_positions: bool) -> _Pieces:
    # An ASCII piece is one word, which is its own token in a simple analysis.
    plain = pc.string_is_ascii(pieces).to_numpy(zero_copy_only=False) & analyzer.is_simple
    others: list[list[str]] = []
    offsets: list[int] = []
    others_widths: list[int] = []
    widths = np.ones(len(pieces), np.int64)
    for number, piece in enumerate(pieces.filter(pa.array(~plain)).to_pylist()):
        if number % _PIECES == 0:
            check_deadline()
        if with_positions:
            placed, width = analyzer.measured_tokens(piece)
            others.append([token for token, _ in placed])
            offsets += [place for _, place in placed]
            others_widths.append(width)
        else:
            others.append(analyzer.tokens(piece))
    sizes = np.ones(len(pieces), np.int64)
    sizes[~plain] = [len(tokens) for tokens in others]
    spelled = pa.concat_arrays(
        [
            pc.ascii_lower(pieces.filter(pa.array(plain))),
            pa.array([token for tokens in others for token in tokens], pa.large_string()),
        ]
    )
    terms, ranks = rank_terms(spelled)
    # The tokens of ASCII pieces come first; restore the order of the pieces.
    of_plain = np.repeat(plain, sizes)
    numbers = np.empty(len(spelled), np.int64)
    numbers[of_plain] = ranks[: np.count_nonzero(plain)]
    numbers[~of_plain] = ranks[np.count_nonzero(plain) :]
    within = np.zeros(len(spelled), np.int64)
    if with_positions:
        within[~of_plain] = offsets
        widths[~plain] = others_widths
    return _Pieces(terms, sizes, numbers, within, widths)


def rank_terms(spelled: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the distinct strings in order, and the position of each given string among them."""
    encoded = spelled.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy().astype(np.int64)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return encoded.dictionary.take(pa.array(order)), ranks[encoded.indices.to_numpy()]


def merge_texts(first: InvertedTexts, second: InvertedTexts) -> InvertedTexts:
    """Return the terms of two adjacent runs of texts together. Positions are left out."""
    terms, ranks = rank_terms(pa.concat_arrays([first.terms, second.terms]))
    sizes = np.concatenate([np.diff(first.bounds), np.diff(second.bounds)])
    found = np.repeat(ranks, sizes)
    places = np.concatenate([first.places, second.places + np.uint32(first.rows)])
    counts = np.concatenate([first.counts, second.counts])
    # Stable, so that rows stay ascending within a term. This sort is fastest for two sorted runs.
    order = np.argsort(found, kind="stable")
    lengths = np.concatenate([first.lengths, second.lengths])
    return _inverted(terms, found[order], places[order], counts[order], lengths)


def _inverted(
    terms: pa.Array,
    found: npt.NDArray[np.int64],
    places: npt.NDArray[np.integer],
    counts: npt.NDArray[np.integer],
    lengths: npt.NDArray[np.integer],
    positions: npt.NDArray[np.uint32] | None = None,
) -> InvertedTexts:
    """Build from postings that are sorted by term number, then by row."""
    bounds = np.searchsorted(found, np.arange(len(terms) + 1))
    return InvertedTexts(
        terms,
        bounds,
        places.astype(np.uint32),
        counts.astype(np.uint32),
        lengths.astype(np.uint32),
        positions,
    )

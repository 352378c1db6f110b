"""Reading of a full-text segment: a search reads the header, and for each term a block and its postings."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cachetools import LRUCache
from lance.file import LanceFileReader

from omnigraph.errors import StorageError
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.text.text_segment_format import (
    BLOCK_TERMS,
    INDEX,
    POSITIONS,
    POSTINGS,
    SCHEMAS,
    SIZES,
    TERMS,
    Numbers,
    SegmentHeader,
    checksum,
    from_differences,
)

# Blocks of the dictionary that are read at a time when all terms are compared.
_BLOCKS_AT_A_TIME: Final = 256
_BATCH_ROWS: Final = 1 << 20
# Blocks of the dictionary that searches have read are kept up to this size, and no more than all of them take.
_RECENT_BYTES: Final = 2 << 20
_TERM_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class StoredTerms:
    """Some terms of a segment that follow each other, and where their postings are."""

    terms: pa.Array
    rows: Numbers
    last: Numbers
    tokens: Numbers
    lengths: Numbers
    position_sums: Numbers
    postings: int
    positions: int

    def part(self, first: int, stop: int) -> StoredTerms:
        """Return the terms from `first` to `stop`."""
        return StoredTerms(
            self.terms.slice(first, stop - first),
            self.rows[first:stop],
            self.last[first:stop],
            self.tokens[first:stop],
            self.lengths[first:stop],
            self.position_sums[first:stop],
            self.postings + int(self.rows[:first].sum()),
            self.positions + int(self.tokens[:first].sum()),
        )

    @property
    def firsts(self) -> npt.NDArray[np.int64]:
        """The first posting of each term, counted from the first of all."""
        return np.cumsum(self.rows) - self.rows


@dataclass(frozen=True, slots=True)
class StoredPostings:
    """The postings of some terms one after the other: places, occurrences, and tokens of the rows."""

    places: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]


class TextSegment:
    """A segment of a full-text index. Immutable, and safe to share between threads.

    Every method raises `NotFound` or `StorageError` if a file is missing or damaged.
    """

    def __init__(self, root: LanceRoot, path: str, segment_id: str) -> None:
        self.path = path
        self.id = segment_id
        self._folder = f"_indices/{segment_id}"
        self._session = root.folder_session(f"{path}/{self._folder}")
        self._lock = Lock()
        self._readers: dict[str, LanceFileReader] = {}
        with self._reading(INDEX):
            blocks = self._reader(INDEX).read_all(batch_size=_BATCH_ROWS).to_table()
            self.header = SegmentHeader.parse(blocks)
        self._first_terms: list[str] = blocks["first"].to_pylist()
        self._postings = blocks["postings"].to_numpy()
        self._positions = blocks["positions"].to_numpy()
        self._checksums = blocks["checksum"].to_numpy()
        self._recent: LRUCache[int, StoredTerms] = LRUCache(self._recent_bytes, getsizeof=_block_bytes)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        terms = sum(80 + len(term) for term in self._first_terms)
        fixed = 2_048 + terms + 20 * len(self._first_terms) + 100 * len(self.header.fragments)
        return fixed + self._recent_bytes

    @property
    def _recent_bytes(self) -> int:
        """The bytes of the blocks of the dictionary that are kept."""
        return min(_RECENT_BYTES, _TERM_BYTES * self.header.terms)

    @property
    def with_positions(self) -> bool:
        """Whether the positions of tokens are stored."""
        return self.header.with_positions

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """The place of the first row of each fragment, and the number of places."""
        return np.cumsum([0, *(item.rows for item in self.header.fragments)])

    # --- dictionary --------------------------------------------------------------------------------------

    def find(self, term: str) -> StoredTerms | None:
        """Return a term; None if no row has it."""
        block = bisect_right(self._first_terms, term) - 1
        if block < 0:
            return None
        found = self._block(block)
        numbers = range(len(found.terms))
        place = bisect_left(numbers, term, key=lambda number: found.terms[number].as_py())
        if place == len(numbers) or found.terms[place].as_py() != term:
            return None
        return found.part(place, place + 1)

    def starting_with(self, prefix: str) -> StoredTerms | None:
        """Return the terms that begin with a prefix; None if there are none."""

        def head(term: str) -> str:
            return term[: len(prefix)]

        first = max(0, bisect_left(self._first_terms, prefix, key=head) - 1)
        stop = bisect_right(self._first_terms, prefix, key=head)
        if first >= stop:
            return None
        found = self._blocks(first, stop)
        heads = [head(term) for term in found.terms.to_pylist()]
        low, high = bisect_left(heads, prefix), bisect_right(heads, prefix)
        return found.part(low, high) if low < high else None

    def all_terms(self) -> Iterator[StoredTerms]:
        """Yield all terms in order, some at a time."""
        for first in range(0, len(self._first_terms), _BLOCKS_AT_A_TIME):
            yield self._blocks(first, min(first + _BLOCKS_AT_A_TIME, len(self._first_terms)))

    def _block(self, number: int) -> StoredTerms:
        """Return a block, which is kept for the next search."""
        with self._lock:
            known = self._recent.get(number)
        if known is not None:
            return known
        found = self._blocks(number, number + 1)
        with self._lock:
            if _block_bytes(found) <= self._recent.maxsize:
                self._recent[number] = found
        return found

    def _blocks(self, first: int, stop: int) -> StoredTerms:
        low, high = first * BLOCK_TERMS, min(stop * BLOCK_TERMS, self.header.terms)
        rows = self._read(TERMS, low, high).combine_chunks()
        with self._reading(TERMS):
            for number in range(first, stop):
                block = rows.slice((number - first) * BLOCK_TERMS, BLOCK_TERMS)
                columns = [column.combine_chunks() for column in block.columns]
                if checksum(columns) != self._checksums[number]:
                    raise ValueError(f"the checksum of block {number} differs")
        count, last, tokens, lengths, sums = (
            rows[name].to_numpy().astype(np.int64) for name in rows.schema.names[1:]
        )
        postings, positions = int(self._postings[first]), int(self._positions[first])
        terms = rows["term"].combine_chunks()
        return StoredTerms(terms, count, last, tokens, lengths, sums, postings, positions)

    # --- postings ----------------------------------------------------------------------------------------

    def postings(self, terms: StoredTerms) -> StoredPostings:
        """Return the postings of terms that follow each other."""
        start, count = terms.postings, int(terms.rows.sum())
        rows = self._read(POSTINGS, start, start + count)
        places, counts, lengths = (rows[name].to_numpy() for name in ("place", "count", "length"))
        firsts = terms.firsts
        found = StoredPostings(
            from_differences(places, firsts), counts.astype(np.int64), lengths.astype(np.int64)
        )
        with self._reading(POSTINGS):
            _check_equal("places", found.places[firsts + terms.rows - 1], terms.last)
            _check_equal("occurrences", np.add.reduceat(found.counts, firsts), terms.tokens)
            _check_equal("lengths", np.add.reduceat(found.lengths, firsts), terms.lengths)
        return found

    def positions(self, term: StoredTerms, counts: Numbers) -> npt.NDArray[np.int64]:
        """Return the positions of a term, ascending for each posting, given the occurrences of all its postings."""
        start, count = term.positions, int(term.tokens[0])
        differences = self._read(POSITIONS, start, start + count)["position"].to_numpy()
        with self._reading(POSITIONS):
            _check_equal("positions", differences.sum(dtype=np.int64), term.position_sums[0])
        return from_differences(differences, np.cumsum(counts) - counts)

    def sizes(self, fragment: int) -> npt.NDArray[np.uint32]:
        """Return for each row of a fragment 0 without a text, otherwise 1 more than the number of its tokens.

        `fragment` is the number of the fragment in the header.
        """
        covered = self.header.fragments[fragment]
        start = int(self.starts[fragment])
        found: npt.NDArray[np.uint32] = self._read(SIZES, start, start + covered.rows)["size"].to_numpy()
        with self._reading(SIZES):
            _check_equal("texts", np.count_nonzero(found), covered.texts)
            _check_equal("tokens", found.sum(dtype=np.int64), covered.texts + covered.tokens)
        return found

    # --- files -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Read all files and compare them with their checksums."""
        for number in range(len(self.header.fragments)):
            self.sizes(number)
        for terms in self.all_terms():
            counts = self.postings(terms).counts
            if self.with_positions:
                ends = np.cumsum(terms.rows)
                for number in range(len(terms.terms)):
                    one = terms.part(number, number + 1)
                    self.positions(one, counts[ends[number] - int(one.rows[0]) : ends[number]])

    def _read(self, name: str, start: int, stop: int) -> pa.Table:
        with self._reading(name):
            reader = self._reader(name)
            rows = reader.read_range(start, stop - start, batch_size=_BATCH_ROWS).to_table()
            if rows.num_rows != stop - start or not rows.schema.equals(SCHEMAS[name]):
                raise ValueError(f"expected {stop - start} values, got {rows.num_rows}: {rows.schema}")
            return rows

    def _reader(self, name: str) -> LanceFileReader:
        with self._lock:
            if name not in self._readers:
                self._readers[name] = self._session.open_reader(name)
            return self._readers[name]

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Raise the errors of a file with its name, which Lance does not always give."""
        file = f"{self._folder}/{name}"
        try:
            with translate_lance_errors(f"read {self.path}/{file}"):
                yield
        except StorageError as error:
            error.details.setdefault("file", file)
            raise


def _block_bytes(block: StoredTerms) -> int:
    return int(block.terms.nbytes) + 5 * block.rows.nbytes


def _check_equal(what: str, found: Any, stated: Any) -> None:
    if not np.array_equal(found, stated):
        raise ValueError(f"the {what} differ from what the dictionary states")

"""The full-text index of one version of a column, by row position: stored segments, and memory for all other rows.

The segments may cover fragments that are gone or have lost rows since. Results are those of an index of exactly the
rows of the version, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from omnigraph.engine.memory.memory_cache import Sized
from omnigraph.engine.memory.row_numbers import NumberedFragment, RowNumbers
from omnigraph.search.inverted.index_parts import IndexPart, MemoryPart
from omnigraph.search.text_index import NO_OCCURRENCES, Mask, Occurrences, Ordinals


@dataclass(frozen=True, eq=False)
class PlacedPart:
    """A part, and the fragment of the version for each of its fragments: None if it is gone or covered twice."""

    part: IndexPart
    items: tuple[NumberedFragment | None, ...]
    starts: Ordinals

    @classmethod
    def of(cls, part: IndexPart, items: Iterable[NumberedFragment | None]) -> PlacedPart:
        """Return a part with the places of its fragments."""
        return cls(part, tuple(items), np.cumsum([0, *(item.rows for item in part.fragments)]))

    def positions(self, places: Ordinals) -> tuple[Ordinals, Mask]:
        """Return the positions of places, which ascend, and which of them are live rows."""
        positions = places.copy()
        live = np.ones(len(places), np.bool_)
        bounds = np.searchsorted(places, self.starts).tolist()
        for item, start, (low, high) in zip(self.items, self.starts.tolist(), pairwise(bounds), strict=False):
            if low == high:
                continue
            if item is None:
                live[low:high] = False
                continue
            if item.num_deleted:
                live[low:high] = np.isin(places[low:high] - start, item.deleted, invert=True)
            positions[low:high] += item.start - start
        return positions, live

    def rows(self, places: Ordinals) -> Ordinals:
        """Return the positions of those places that are live rows."""
        positions, live = self.positions(places)
        return positions[live]

    def occurrences(self, found: Occurrences) -> Occurrences:
        """Return occurrences by place as occurrences by position."""
        positions, live = self.positions(found.rows)
        if live.all():
            return Occurrences(positions, found.counts, found.lengths)
        return Occurrences(positions[live], found.counts[live], found.lengths[live])

    def totals(self) -> tuple[int, int]:
        """Return the number of live texts and of their tokens."""
        texts = tokens = 0
        for number, (item, stated) in enumerate(zip(self.items, self.part.fragments, strict=True)):
            if item is None:
                continue
            texts, tokens = texts + stated.texts, tokens + stated.tokens
            if item.num_deleted:
                deleted = self.part.sizes(number)[item.deleted]
                lost = int(np.count_nonzero(deleted))
                texts, tokens = texts - lost, tokens - (int(deleted.sum(dtype=np.int64)) - lost)
        return texts, tokens


class TableTextIndex:
    """An immutable index of a column at one version. `memory` is the part in memory, which is among `parts`."""

    def __init__(self, numbers: RowNumbers, parts: Sequence[PlacedPart], memory: MemoryPart) -> None:
        self.numbers = numbers
        self.memory = memory
        self._parts = parts
        self._totals: tuple[int, int] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the index."""
        return 1_024 + 100 * len(self.numbers.items) + self.memory.nbytes

    @property
    def parts(self) -> tuple[Sized, ...]:
        """The memory, which versions share."""
        return self.memory.index.segments

    def __len__(self) -> int:
        """The number of positions."""
        return self.numbers.size

    def totals(self) -> tuple[int, int]:
        """Return the number of texts, and of their tokens."""
        if self._totals is None:
            found = [part.totals() for part in self._parts]
            self._totals = sum(texts for texts, _ in found), sum(tokens for _, tokens in found)
        return self._totals

    def occurrences(self, term: str) -> Occurrences:
        """Return the rows with a token."""
        return _joined([placed.occurrences(placed.part.occurrences(term)) for placed in self._parts])

    def rows_with_prefix(self, prefix: str) -> Ordinals:
        """Return the rows with a token that begins with the prefix, ascending."""
        return self._rows(lambda part: part.places_with_prefix(prefix))

    def matches_fuzzy(self, query: str, max_edits: int) -> Mask:
        """Return for each row whether its text has a token within `max_edits` edits of a token of the query."""
        found = np.zeros(len(self), np.bool_)
        found[self._rows(lambda part: part.fuzzy_places(query, max_edits))] = True
        return found

    def phrase_occurrences(self, terms: Sequence[tuple[str, int]]) -> tuple[Occurrences, Ordinals]:
        """Return rows with tokens at distances from each other, and the rows whose texts decide."""
        found, undecided = [], [NO_OCCURRENCES.rows]
        for placed in self._parts:
            decided, others = placed.part.phrase(terms)
            found.append(placed.occurrences(decided))
            undecided.append(placed.rows(others))
        return _joined(found), np.sort(np.concatenate(undecided))

    def missing(self) -> Mask | None:
        """Return which positions have no text; None if all rows have one."""
        mask: npt.NDArray[np.bool_] | None = None
        for placed in self._parts:
            for number, (item, stated) in enumerate(zip(placed.items, placed.part.fragments, strict=True)):
                if item is not None and stated.texts < stated.rows:
                    mask = np.zeros(len(self), np.bool_) if mask is None else mask
                    mask[item.start : item.start + stated.rows] = placed.part.sizes(number) == 0
        return mask

    def _rows(self, find: Callable[[IndexPart], Ordinals]) -> Ordinals:
        found = [placed.rows(find(placed.part)) for placed in self._parts]
        return np.sort(np.concatenate([NO_OCCURRENCES.rows, *found]))


def _joined(found: Sequence[Occurrences]) -> Occurrences:
    """Return the occurrences of several parts, in the order of the rows."""
    found = [item for item in found if len(item.rows)]
    if len(found) < 2:
        return found[0] if found else NO_OCCURRENCES
    rows = np.concatenate([item.rows for item in found])
    counts = np.concatenate([item.counts for item in found])
    lengths = np.concatenate([item.lengths for item in found])
    if bool((rows[1:] > rows[:-1]).all()):
        return Occurrences(rows, counts, lengths)
    order = np.argsort(rows)
    return Occurrences(rows[order], counts[order], lengths[order])

"""An index from ids to the locations of rows.

An id index outlives the versions that it was built from. It holds the file and offset of every row that was ever
written with an id. Which of these rows a version still has is decided by the version itself. A new version
therefore adds only the ids of its new files, whatever rows it deleted or rewrote.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# A file, by its number in the index, and the offset of a row in it.
RowLocation: TypeAlias = tuple[int, int]

# The index is sorted again when it has more unsorted ids than this.
MAX_UNSORTED_IDS = 4_096
_BYTES_PER_UNSORTED_ID = 200
_MIN_STRIDE = 64
_MAX_FENCES = 8_192


@dataclass(frozen=True)
class IdIndex:
    """The ids of the rows in some files: most of them sorted, recently added ones in a dict."""

    files: tuple[str, ...]
    ids: pa.Array
    order: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.uint32]
    unsorted: dict[str, tuple[RowLocation, ...]] = field(default_factory=dict)
    # Counts rows, not ids: a key that is written repeatedly has a row in every file.
    unsorted_rows: int = 0

    @classmethod
    def build(cls, fragments: Sequence[tuple[str, npt.NDArray[np.uint32], pa.Array]]) -> IdIndex:
        """Build the index of fragments, each given as a file, the offsets of its rows in it, and their ids."""
        ids = (
            pa.concat_arrays([fragment[2] for fragment in fragments])
            if fragments
            else pa.array([], pa.string())
        )
        return cls(
            files=tuple(fragment[0] for fragment in fragments),
            ids=ids,
            order=pc.sort_indices(ids).to_numpy(),
            starts=np.cumsum([0, *(len(fragment[1]) for fragment in fragments)]),
            offsets=np.concatenate([np.zeros(0, np.uint32), *(fragment[1] for fragment in fragments)]),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the index."""
        sorted_part = self.ids.nbytes + self.order.nbytes + self.offsets.nbytes
        return int(sorted_part) + _BYTES_PER_UNSORTED_ID * self.unsorted_rows

    @cached_property
    def covered(self) -> frozenset[str]:
        """The files whose ids are in the index."""
        return frozenset(self.files)

    @cached_property
    def _file_starts(self) -> list[int]:
        return [int(start) for start in self.starts]

    @cached_property
    def _fences(self) -> tuple[int, list[str]]:
        """A sparse index: every n-th id in sorted order, as Python strings that one `bisect` call searches."""
        stride = max(_MIN_STRIDE, len(self.order) // _MAX_FENCES)
        return stride, self.ids.take(pa.array(self.order[::stride])).to_pylist()

    def extended(self, fragments: Sequence[tuple[str, npt.NDArray[np.uint32], pa.Array]]) -> IdIndex:
        """Return the index with more fragments, whose ids stay unsorted."""
        unsorted = dict(self.unsorted)
        files = list(self.files)
        for file, offsets, ids in fragments:
            number = len(files)
            files.append(file)
            for id_, offset in zip(ids.to_pylist(), offsets.tolist(), strict=True):
                unsorted[id_] = ((number, offset), *unsorted.get(id_, ()))
        rows = self.unsorted_rows + sum(len(offsets) for _, offsets, _ in fragments)
        found = IdIndex(tuple(files), self.ids, self.order, self.starts, self.offsets, unsorted, rows)
        found.__dict__.update(_fences=self._fences, _file_starts=self._file_starts)
        return found

    def locations(self, id_: str) -> Iterator[RowLocation]:
        """Yield the locations of all rows ever written with an id; unsorted ones first, newest first."""
        yield from self.unsorted.get(id_, ())
        ids, order = self.ids, self.order
        stride, fences = self._fences
        fence = bisect_left(fences, id_)
        low, high = max(0, (fence - 1) * stride), min(len(order), fence * stride + 1)
        while low < high:
            middle = (low + high) // 2
            if ids[int(order[middle])].as_py() < id_:
                low = middle + 1
            else:
                high = middle
        while low < len(order) and ids[int(order[low])].as_py() == id_:
            row = int(order[low])
            yield bisect_right(self._file_starts, row) - 1, int(self.offsets[row])
            low += 1

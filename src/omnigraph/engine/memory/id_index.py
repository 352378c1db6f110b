"""An index from ids to the locations of rows.

An id index outlives the versions that it was built from. It holds the file and offset of every row that was ever
written with an id. Which of these rows a version still has is decided by the version itself. A new version
therefore adds only the ids of its new files, whatever rows it deleted or rewrote.

New ids are added to a dict. A full dict becomes a sorted segment, and a segment is merged with the one before it
when they are of similar size, so that every id is sorted a few times however many versions there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# A file, and the offset of a row in it.
RowLocation: TypeAlias = tuple[str, int]
# A file, the offsets of rows in it, and their ids.
FileIds: TypeAlias = tuple[str, npt.NDArray[np.uint32], pa.Array]

# Ids in the dict, at most.
MAX_UNSORTED_IDS = 4_096
# A segment is merged with the one before it unless that one is this many times as large.
_MIN_RATIO = 4
_BYTES_PER_UNSORTED_ID = 200
_MIN_STRIDE = 64
_MAX_FENCES = 8_192


@dataclass(frozen=True, eq=False)
class _Segment:
    """The ids of the rows in some files, sorted."""

    files: tuple[str, ...]
    ids: pa.Array
    order: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.uint32]

    @classmethod
    def build(cls, files: Sequence[FileIds]) -> _Segment:
        ids = pa.concat_arrays([item[2] for item in files]) if files else pa.array([], pa.string())
        return cls(
            files=tuple(item[0] for item in files),
            ids=ids,
            order=pc.sort_indices(ids).to_numpy(),
            starts=np.cumsum([0, *(len(item[1]) for item in files)]),
            offsets=np.concatenate([np.zeros(0, np.uint32), *(item[1] for item in files)]),
        )

    @property
    def nbytes(self) -> int:
        return int(self.ids.nbytes + self.order.nbytes + self.offsets.nbytes)

    def __len__(self) -> int:
        return len(self.ids)

    def contents(self, selects: Callable[[str], bool]) -> list[FileIds]:
        """Return the ids of the selected files."""
        return [
            (file, self.offsets[start:stop], self.ids.slice(start, stop - start))
            for file, start, stop in zip(self.files, self._file_starts, self._file_starts[1:], strict=False)
            if selects(file)
        ]

    @cached_property
    def _file_starts(self) -> list[int]:
        return [int(start) for start in self.starts]

    @cached_property
    def _fences(self) -> tuple[int, list[str]]:
        """A sparse index: every n-th id in sorted order, as Python strings that one `bisect` call searches."""
        stride = max(_MIN_STRIDE, len(self.order) // _MAX_FENCES)
        return stride, self.ids.take(pa.array(self.order[::stride])).to_pylist()

    def locations(self, id_: str) -> Iterator[RowLocation]:
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
            yield self.files[bisect_right(self._file_starts, row) - 1], int(self.offsets[row])
            low += 1


class _UnsortedIds:
    """The ids of the rows in files that were added last, in a dict.

    Indexes that follow each other share it, and files are only added. An index that is older than a file may thus
    find its rows. A version ignores the rows of files that it does not have, so this changes no result.
    """

    def __init__(self) -> None:
        self.files: dict[str, FileIds] = {}
        # Counts rows, not ids: a key that is written repeatedly has a row in every file.
        self.num_rows = 0
        self._locations: dict[str, tuple[RowLocation, ...]] = {}

    def add(self, files: Sequence[FileIds]) -> None:
        """Add files. One thread at a time may do so, and others may read meanwhile."""
        for item in files:
            file, offsets, ids = item
            for id_, offset in zip(ids.to_pylist(), offsets.tolist(), strict=True):
                self._locations[id_] = ((file, offset), *self._locations.get(id_, ()))
            self.num_rows += len(offsets)
            # Last, because a reader that finds the file relies on its ids.
            self.files[file] = item

    def locations(self, id_: str) -> tuple[RowLocation, ...]:
        """Return the locations of the rows with an id, newest first."""
        return self._locations.get(id_, ())


@dataclass(frozen=True, eq=False)
class IdIndex:
    """The ids of the rows in some files: most of them in sorted segments, recently added ones in a dict."""

    segments: tuple[_Segment, ...] = ()
    unsorted: _UnsortedIds = field(default_factory=_UnsortedIds)

    @classmethod
    def build(cls, files: Sequence[FileIds]) -> IdIndex:
        """Build the index of files."""
        return cls((_Segment.build(files),))

    @property
    def nbytes(self) -> int:
        """Bytes of the index."""
        return sum(item.nbytes for item in self.segments) + _BYTES_PER_UNSORTED_ID * self.unsorted.num_rows

    def covers(self, files: Iterable[str]) -> bool:
        """Return whether the ids of all these files are in the index."""
        added = self.unsorted.files
        return all(file in added or file in self._sorted_files for file in files)

    @cached_property
    def _sorted_files(self) -> frozenset[str]:
        return frozenset(file for item in self.segments for file in item.files)

    def extended(self, files: Sequence[FileIds], selects: Callable[[str], bool] = lambda _: True) -> IdIndex:
        """Return the index with more files. The cost follows their rows, on average over many calls.

        Files that `selects` rejects are dropped when their ids are sorted again.
        """
        if self.unsorted.num_rows + sum(len(item[1]) for item in files) > MAX_UNSORTED_IDS:
            return self._sorted([*self.unsorted.files.values(), *files], selects)
        self.unsorted.add(files)
        found = IdIndex(self.segments, self.unsorted)
        found.__dict__["_sorted_files"] = self._sorted_files
        return found

    def _sorted(self, files: Sequence[FileIds], selects: Callable[[str], bool]) -> IdIndex:
        kept = [item for item in files if selects(item[0])]
        segments = list(self.segments)
        rows = sum(len(item[1]) for item in kept)
        while segments and len(segments[-1]) < _MIN_RATIO * rows:
            kept = [*segments.pop().contents(selects), *kept]
            rows = sum(len(item[1]) for item in kept)
        return IdIndex((*segments, _Segment.build(kept)))

    def locations(self, id_: str) -> Iterator[RowLocation]:
        """Yield the locations of all rows ever written with an id; unsorted ones first, newest first."""
        yield from self.unsorted.locations(id_)
        for segment in reversed(self.segments):
            yield from segment.locations(id_)

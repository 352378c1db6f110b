"""Where the row with an id is, without looking at all of them.

An index of ids outlives the versions that it was made from. It says in which file, and where in it, rows with an
id have been written; which of them a version still has, the version itself knows. So a new version only adds the
ids of the files that it added, whatever else it deleted or rewrote.
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

# A file, by its number in the index, and the place of a row in it.
Spot: TypeAlias = tuple[int, int]

# So many ids are kept one by one before all are sorted again.
LOOSE_IDS = 4_096
_BYTES_PER_LOOSE = 200
_LEAST_STRIDE = 64
_MOST_FENCES = 8_192


@dataclass(frozen=True)
class IdIndex:
    """Ids of the rows in some files: most of them sorted, the newest one by one."""

    files: tuple[str, ...]
    ids: pa.Array
    order: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.uint32]
    loose: dict[str, tuple[Spot, ...]] = field(default_factory=dict)
    # All of them: a key that is written again and again has a row in every file.
    loose_rows: int = 0

    @classmethod
    def build(cls, parts: Sequence[tuple[str, npt.NDArray[np.uint32], pa.Array]]) -> IdIndex:
        """The index of parts: for each its file, the places of its rows in it, and their ids."""
        ids = pa.concat_arrays([part[2] for part in parts]) if parts else pa.array([], pa.string())
        return cls(
            files=tuple(part[0] for part in parts),
            ids=ids,
            order=pc.sort_indices(ids).to_numpy(),
            starts=np.cumsum([0, *(len(part[1]) for part in parts)]),
            offsets=np.concatenate([np.zeros(0, np.uint32), *(part[1] for part in parts)]),
        )

    @property
    def nbytes(self) -> int:
        """Memory of it all."""
        sorted_part = self.ids.nbytes + self.order.nbytes + self.offsets.nbytes
        return int(sorted_part) + _BYTES_PER_LOOSE * self.loose_rows

    @cached_property
    def covered(self) -> frozenset[str]:
        """The files whose ids it has."""
        return frozenset(self.files)

    @cached_property
    def _file_starts(self) -> list[int]:
        return [int(start) for start in self.starts]

    @cached_property
    def _fences(self) -> tuple[int, list[str]]:
        """Every so many ids of the order: a search among these is one call, in the rest it is one a step."""
        stride = max(_LEAST_STRIDE, len(self.order) // _MOST_FENCES)
        return stride, self.ids.take(pa.array(self.order[::stride])).to_pylist()

    def extended(self, parts: Sequence[tuple[str, npt.NDArray[np.uint32], pa.Array]]) -> IdIndex:
        """The index with some more parts, each id kept by itself."""
        loose = dict(self.loose)
        files = list(self.files)
        for file, offsets, ids in parts:
            number = len(files)
            files.append(file)
            for id_, offset in zip(ids.to_pylist(), offsets.tolist(), strict=True):
                loose[id_] = ((number, offset), *loose.get(id_, ()))
        rows = self.loose_rows + sum(len(offsets) for _, offsets, _ in parts)
        found = IdIndex(tuple(files), self.ids, self.order, self.starts, self.offsets, loose, rows)
        found.__dict__.update(_fences=self._fences, _file_starts=self._file_starts)
        return found

    def spots(self, id_: str) -> Iterator[Spot]:
        """Where rows with an id have been written, the newest first."""
        yield from self.loose.get(id_, ())
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

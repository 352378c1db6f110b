"""A column as a large base and few smaller chunks, so that rows are appended without a copy of the base."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ordinals = npt.NDArray[Any]

# A chunk is merged with the one before it unless that one is this many times as long. Every value is thus copied a
# few times however the column grows, and a column of a billion rows has at most 15 chunks.
_MIN_RATIO = 4
# Chunks up to this length are merged in any case: a copy costs less than a further chunk.
_SHORT = 1_024
# The size limit of an Arrow string array with 32-bit offsets.
_MAX_STRING_BYTES = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class ColumnChunks:
    """The values of a column by position. The chunks are immutable, and shared by the versions of a lineage.

    >>> column = ColumnChunks.of(pa.array(["a", "b"])).appended(pa.array(["c"]))
    >>> column.take(np.array([2, -1, 0])).to_pylist(), len(column)
    (['c', None, 'a'], 3)
    """

    chunks: tuple[pa.Array, ...]
    starts: tuple[int, ...]

    @classmethod
    def of(cls, *chunks: pa.Array) -> ColumnChunks:
        """Return the column that consists of chunks."""
        starts = [0]
        for chunk in chunks:
            starts.append(starts[-1] + len(chunk))
        return cls(chunks, tuple(starts))

    def __len__(self) -> int:
        """The number of values."""
        return self.starts[-1]

    @property
    def type(self) -> pa.DataType:
        """The type of the values."""
        return self.chunks[0].type

    def appended(self, values: pa.Array) -> ColumnChunks:
        """Return the column with more values. The cost follows their number, on average over many calls."""
        if not len(values):
            return self
        if not len(self):
            return ColumnChunks.of(values)
        chunks = [*self.chunks, values]
        while len(chunks) > 1 and len(chunks[-2]) < max(_SHORT, _MIN_RATIO * len(chunks[-1])):
            last = chunks.pop()
            chunks[-1] = concatenate([chunks[-1], last])
        return ColumnChunks.of(*chunks)

    def values_from(self, start: int) -> pa.Array:
        """Return the values from a position on."""
        parts = [
            chunk.slice(max(0, start - first))
            for chunk, first in zip(self.chunks, self.starts, strict=False)
            if first + len(chunk) > start
        ]
        return concatenate(parts) if parts else self.chunks[0].slice(0, 0)

    def null_mask(self) -> npt.NDArray[np.bool_]:
        """Return which values are null."""
        parts = [chunk.is_null().to_numpy(zero_copy_only=False) for chunk in self.chunks]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def combined(self) -> ColumnChunks:
        """Return the column as one chunk."""
        return self if len(self.chunks) == 1 else ColumnChunks.of(concatenate(list(self.chunks)))

    def take(self, ordinals: Ordinals) -> pa.Array:
        """Return values by position. A negative position gives null."""
        if len(ordinals) == 1 and ordinals[0] >= 0:
            place = int(ordinals[0])
            at = int(np.searchsorted(self.starts, place, side="right")) - 1 if len(self.chunks) > 1 else 0
            return self.chunks[at].slice(place - self.starts[at], 1)
        if len(self.chunks) == 1:
            return self.chunks[0].take(to_indices(ordinals))
        owners = np.searchsorted(self.starts, ordinals, side="right") - 1
        owners = np.where(ordinals < 0, 0, owners)
        used = np.unique(owners).tolist()
        if len(used) <= 1:
            at = used[0] if used else 0
            local = np.where(ordinals < 0, -1, ordinals - self.starts[at])
            return self.chunks[at].take(to_indices(local))
        parts, places = [], np.empty(len(ordinals), np.int64)
        done = 0
        for at in used:
            mine = np.flatnonzero(owners == at)
            local = np.where(ordinals[mine] < 0, -1, ordinals[mine] - self.starts[at])
            parts.append(self.chunks[at].take(to_indices(local)))
            places[mine] = np.arange(done, done + len(mine))
            done += len(mine)
        return concatenate(parts).take(pa.array(places))


def concatenate(chunks: list[pa.Array]) -> pa.Array:
    """Return several arrays of one type as one; texts become large strings where their bytes require it."""
    if len(chunks) == 1:
        return chunks[0]
    if any(pa.types.is_large_string(chunk.type) for chunk in chunks) or (
        pa.types.is_string(chunks[0].type) and sum(chunk.nbytes for chunk in chunks) > _MAX_STRING_BYTES
    ):
        chunks = [chunk.cast(pa.large_string()) for chunk in chunks]
    return pa.concat_arrays(chunks)


def to_indices(ordinals: Ordinals) -> pa.Array:
    """Convert positions to Arrow indices. A negative position becomes null."""
    if len(ordinals) and ordinals.min() < 0:
        return pa.array(ordinals, mask=ordinals < 0)
    return pa.array(ordinals)

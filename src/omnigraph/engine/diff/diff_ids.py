"""Which ids of a difference are asked for: some, those after one, or a share of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InvalidInput

_LOOKED_AT = 65_536
# Odd, so that no power of it is ever zero; digits of the golden ratio, as in Fibonacci hashing.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class IdFilter:
    """Which ids are asked for."""

    ids: pa.Array | None
    after_id: str | None
    part: tuple[int, int] | None

    @classmethod
    def of(
        cls, ids: pa.Array | pa.ChunkedArray | None, after_id: str | None, part: tuple[int, int] | None
    ) -> IdFilter:
        """Those among `ids`, greater than `after_id`, and of number k, from 0, of n shares; `None` is no limit."""
        texts = None if ids is None else ids.cast(pa.string())
        return cls(texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts, after_id, part)

    def __post_init__(self) -> None:
        if self.part is not None and not 0 <= self.part[0] < self.part[1]:
            raise InvalidInput(f"there is no part {self.part[0]} of {self.part[1]}")

    @property
    def everything(self) -> bool:
        """Whether no id is left out."""
        return self.ids is None and self.after_id is None and self.part is None

    @property
    def nothing(self) -> bool:
        """Whether no id at all is asked for."""
        return self.ids is not None and not len(self.ids)

    @property
    def quantum(self) -> int:
        """How many ids to look at in one go: Arrow takes in all wanted ids anew each time."""
        return max(_LOOKED_AT, 0 if self.ids is None else len(self.ids))

    def mask(self, ids: pa.Array) -> npt.NDArray[np.bool_]:
        """Which of these are asked for."""
        found = np.ones(len(ids), bool)
        if self.after_id is not None:
            found &= pc.greater(ids, self.after_id).to_numpy(zero_copy_only=False)
        if self.part is not None:
            share, shares = self.part
            found &= hash_ids(ids) % np.uint64(shares) == share
        if self.ids is not None:
            found &= pc.is_in(ids, value_set=self.ids).to_numpy(zero_copy_only=False)
        return found


def hash_ids(ids: pa.Array) -> npt.NDArray[np.uint64]:
    """A number for every id, the same in every process.

    >>> hash_ids(pa.array(["a", "b", ""])).tolist() == hash_ids(pa.array(["x", "a", "b", ""]).slice(1)).tolist()
    True
    """
    if not len(ids):
        return np.empty(0, np.uint64)
    _, offsets, data = ids.buffers()
    ends = np.frombuffer(offsets, np.int32)[ids.offset : ids.offset + len(ids) + 1].astype(np.int64)
    first, last = int(ends[0]), int(ends[-1])
    text: npt.NDArray[np.uint8] = np.frombuffer(data or b"", np.uint8)[first:last]
    lengths = np.diff(ends)
    places = np.arange(last - first) - np.repeat(ends[:-1] - first, lengths)
    factors = np.cumprod(np.full(int(lengths.max()) + 1, _FACTOR))
    # Sums that run over leave their differences right.
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum((text + np.uint64(1)) * factors[places])])
    found: npt.NDArray[np.uint64] = sums[ends[1:] - first] - sums[ends[:-1] - first]
    # The low digits of a sum of products say little of all but a few bits of the text.
    found = (found ^ (found >> np.uint64(32))) * _FACTOR
    return found ^ (found >> np.uint64(29))

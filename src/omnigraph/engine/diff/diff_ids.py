"""Select the ids of a difference: given ids, ids after an id, or a hash partition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InvalidInput

_MIN_BATCH_IDS = 65_536
# Odd, so that no power of it is zero modulo 2**64; the digits of the golden ratio, as in Fibonacci hashing.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class IdFilter:
    """A filter of ids."""

    ids: pa.Array | None
    after_id: str | None
    part: tuple[int, int] | None

    @classmethod
    def of(
        cls, ids: pa.Array | pa.ChunkedArray | None, after_id: str | None, part: tuple[int, int] | None
    ) -> IdFilter:
        """Select ids among `ids`, greater than `after_id`, and in hash partition ``(k, n)``; None is no
        restriction.
        """
        texts = None if ids is None else ids.cast(pa.string())
        return cls(texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts, after_id, part)

    def __post_init__(self) -> None:
        if self.part is not None and not 0 <= self.part[0] < self.part[1]:
            raise InvalidInput(f"invalid partition {self.part[0]} of {self.part[1]}")

    @property
    def selects_all(self) -> bool:
        """Whether the filter selects all ids."""
        return self.ids is None and self.after_id is None and self.part is None

    @property
    def selects_none(self) -> bool:
        """Whether the filter selects no id."""
        return self.ids is not None and not len(self.ids)

    @property
    def batch_ids(self) -> int:
        """The number of ids to filter at a time. Arrow hashes all of `ids` anew for each batch."""
        return max(_MIN_BATCH_IDS, 0 if self.ids is None else len(self.ids))

    def mask(self, ids: pa.Array) -> npt.NDArray[np.bool_]:
        """Return which of the given ids are selected."""
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
    """Return a hash of every id that is the same in every process.

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
    # Differences of sums are exact even if the sums overflow.
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum((text + np.uint64(1)) * factors[places])])
    found: npt.NDArray[np.uint64] = sums[ends[1:] - first] - sums[ends[:-1] - first]
    # Mix the bits: the low bits of a sum of products depend on few bits of the text.
    found = (found ^ (found >> np.uint64(32))) * _FACTOR
    return found ^ (found >> np.uint64(29))

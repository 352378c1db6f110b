"""Fresh ids for many rows at once."""

from __future__ import annotations

import secrets

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from ulid import ULID

_ALPHABET = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)
_LENGTH = 26
# The last eight characters count; they begin in the lower half, so that the count never carries over.
_COUNTED = 8
_SHIFTS = np.arange(5 * (_COUNTED - 1), -1, -5)


class FreshIds:
    """ULIDs of one moment, ascending in the order they are asked for.

    All share one random beginning and differ in a count that starts at random, so the ids of two sources are as
    unlikely to meet as any two ULIDs.

    >>> ids = FreshIds().take(3).to_pylist()
    >>> ids == sorted(set(ids)), {len(item) for item in ids}
    (True, {26})
    """

    def __init__(self) -> None:
        self._beginning = np.frombuffer(str(ULID()).encode()[: _LENGTH - _COUNTED], np.uint8)
        self._next = secrets.randbits(5 * _COUNTED - 1)

    def take(self, count: int) -> pa.Array:
        """So many ids that were never given before."""
        numbers = np.arange(self._next, self._next + count, dtype=np.int64)
        self._next += count
        text = np.empty((count, _LENGTH), np.uint8)
        text[:, : _LENGTH - _COUNTED] = self._beginning
        text[:, _LENGTH - _COUNTED :] = _ALPHABET[(numbers[:, None] >> _SHIFTS) & 31]
        offsets = np.arange(count + 1, dtype=np.int32) * _LENGTH
        return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))

    def fill(self, ids: pa.Array) -> pa.Array:
        """The ids with a fresh one for each null."""
        if not ids.null_count:
            return ids
        missing = ids.is_null()
        return pc.replace_with_mask(ids, missing, self.take(ids.null_count))

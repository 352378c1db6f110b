"""Generation of ids for many rows at once."""

from __future__ import annotations

import secrets

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from ulid import ULID

_ALPHABET = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)
_LENGTH = 26
# The last characters are a counter. It starts in the lower half of its range, so it never overflows.
_COUNTER_LENGTH = 8
_SHIFTS = np.arange(5 * (_COUNTER_LENGTH - 1), -1, -5)


class IdGenerator:
    """Generates ULIDs of one moment in ascending order.

    All of them share a random prefix and differ in a counter with a random start, so ids of two generators collide
    as rarely as any two ULIDs.

    >>> ids = IdGenerator().generate(3).to_pylist()
    >>> ids == sorted(set(ids)), {len(item) for item in ids}
    (True, {26})
    """

    def __init__(self) -> None:
        self._prefix = np.frombuffer(str(ULID()).encode()[: _LENGTH - _COUNTER_LENGTH], np.uint8)
        self._next = secrets.randbits(5 * _COUNTER_LENGTH - 1)

    def generate(self, count: int) -> pa.Array:
        """Return `count` new ids."""
        numbers = np.arange(self._next, self._next + count, dtype=np.int64)
        self._next += count
        text = np.empty((count, _LENGTH), np.uint8)
        text[:, : _LENGTH - _COUNTER_LENGTH] = self._prefix
        text[:, _LENGTH - _COUNTER_LENGTH :] = _ALPHABET[(numbers[:, None] >> _SHIFTS) & 31]
        offsets = np.arange(count + 1, dtype=np.int32) * _LENGTH
        return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))

    def fill_nulls(self, ids: pa.Array) -> pa.Array:
        """Return the ids with a new one in place of each null."""
        if not ids.null_count:
            return ids
        return pc.replace_with_mask(ids, ids.is_null(), self.generate(ids.null_count))

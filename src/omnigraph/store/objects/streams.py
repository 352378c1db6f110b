"""A large object as a file to read: from any place, in few requests, with little in memory."""

from __future__ import annotations

import os
from io import RawIOBase
from typing import TYPE_CHECKING

from cachetools import LRUCache

from omnigraph.store.objects.backend import Pinned

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["ObjectReader"]

# A request takes some 30 ms before its first byte comes, as long as a few MB after that.
BLOCK = 8 * 1024 * 1024
# A Parquet file is read at its end first, then from its beginning on, where columns share blocks.
KEPT = 3


class ObjectReader(RawIOBase):
    """The bytes of one version of an object, fetched in whole blocks, of which the last used are kept.

    Reads give as much as was asked for, fewer bytes only at the end. Failures are the errors of the storage and no
    `OSError`. Not for several threads at once.
    """

    def __init__(self, pinned: Pinned, name: str) -> None:
        self._pinned = pinned
        self._position = 0
        self._blocks: LRUCache[int, bytes] = LRUCache(KEPT)
        self.name = name

    @property
    def size(self) -> int:
        """How many bytes there are in all."""
        return self._pinned.size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if self.closed:
            raise ValueError("read of a closed object")
        target = memoryview(buffer).cast("B")
        end = min(self._position + len(target), self.size)
        start = self._position
        while self._position < end:
            number, skipped = divmod(self._position, BLOCK)
            piece = memoryview(self._block(number))[skipped : skipped + end - self._position]
            target[self._position - start :][: len(piece)] = piece
            self._position += len(piece)
        return self._position - start

    def close(self) -> None:
        if not self.closed:
            self._blocks.clear()
            self._pinned.close()
        super().close()

    def _block(self, number: int) -> bytes:
        found = self._blocks.get(number)
        if found is None:
            # Make room first, so that there is never one more in memory.
            while len(self._blocks) >= KEPT:
                self._blocks.popitem()
            found = self._pinned.read(number * BLOCK, min((number + 1) * BLOCK, self.size))
            self._blocks[number] = found
        return found

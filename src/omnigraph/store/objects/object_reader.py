"""An object as a seekable file that is fetched in large blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachetools import LRUCache

from omnigraph.store.objects.backend import RangeReader
from omnigraph.store.objects.seekable_file import SeekableFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["ObjectReader"]

# The first byte of a request takes about 30 ms, as long as the transfer of a few MB.
BLOCK_BYTES = 8 * 1024 * 1024
# A Parquet file is read at its end first, then from its beginning on, where columns share blocks.
CACHED_BLOCKS = 3


class ObjectReader(SeekableFile):
    """The bytes of one version of an object, with an LRU cache of blocks.

    A read returns fewer bytes than requested only at the end. Failures are raised as `StorageError` and not as
    `OSError`. Not safe to share between threads.
    """

    def __init__(self, reader: RangeReader, name: str) -> None:
        self._reader = reader
        self._blocks: LRUCache[int, bytes] = LRUCache(CACHED_BLOCKS)
        self.name = name

    @property
    def size(self) -> int:
        """The size of the object in bytes."""
        return self._reader.size

    def _end(self) -> int:
        return self.size

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if self.closed:
            raise ValueError("read of a closed object")
        target = memoryview(buffer).cast("B")
        end = min(self._position + len(target), self.size)
        start = self._position
        while self._position < end:
            number, skipped = divmod(self._position, BLOCK_BYTES)
            piece = memoryview(self._block(number))[skipped : skipped + end - self._position]
            target[self._position - start :][: len(piece)] = piece
            self._position += len(piece)
        return self._position - start

    def close(self) -> None:
        if not self.closed:
            self._blocks.clear()
            self._reader.close()
        super().close()

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            # Evict first, so that there is never one more block in memory.
            while len(self._blocks) >= CACHED_BLOCKS:
                self._blocks.popitem()
            block = self._reader.read(number * BLOCK_BYTES, min((number + 1) * BLOCK_BYTES, self.size))
            self._blocks[number] = block
        return block

"""The position of a read-only file: the part that all files over ranges of bytes share."""

from __future__ import annotations

import os
from abc import abstractmethod
from io import RawIOBase


class SeekableFile(RawIOBase):
    """A read-only binary file with a position. A subclass reads from `_position` on and moves it."""

    _position = 0

    @abstractmethod
    def _end(self) -> int:
        """Return the position after the last byte."""

    def readable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position, and return it. It may be after the end."""
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._end()}
        if whence not in starts:
            raise ValueError(f"invalid whence {whence}")
        if starts[whence] + offset < 0:
            raise ValueError(f"negative position {starts[whence] + offset}")
        self._position = starts[whence] + offset
        return self._position

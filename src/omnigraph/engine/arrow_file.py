"""Write Arrow formats to objects in storage."""

from __future__ import annotations

from io import RawIOBase
from typing import TYPE_CHECKING

from omnigraph.store.objects.object_store import Writable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ArrowFile(RawIOBase):
    """A writable object with the interface that Arrow expects of a file. Closing it leaves the object open."""

    def __init__(self, file: Writable) -> None:
        self._file = file
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        content = bytes(data)
        self._file.write(content)
        self._written += len(content)
        return len(content)

    def tell(self) -> int:
        return self._written

"""Blob values: how a caller names one, its metadata, and a file-like object that reads it in ranges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.store.objects.seekable_file import SeekableFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from omnigraph.api.results.changes import Kind
    from omnigraph.api.results.commits import At

# The largest part of a value that a read requests at once.
CHUNK_BYTES: Final = 1 << 20
# A small read requests this much, so that small reads in order need few requests.
_READ_AHEAD = 256 << 10


@dataclass(frozen=True, slots=True)
class BlobSelector:
    """A Blob property of one entity, in a state.

    `type_name` is a node or edge type. The prefix ``node:`` or ``edge:`` selects one of two types of the same name.
    """

    type_name: str
    id: str
    property_name: str
    branch: str = "main"
    at: At = None

    @property
    def kinds(self) -> tuple[tuple[Kind, str], ...]:
        """The kinds of type that the name may be of, each with the name, in the order of preference."""
        kind, _, name = self.type_name.rpartition(":")
        kinds: tuple[Kind, ...] = ("node", "edge")
        if kind in kinds:
            return tuple((item, name) for item in kinds if item == kind)
        return tuple((item, self.type_name) for item in kinds)

    def not_found(self, kind: str, name: str) -> NotFound:
        """Return the error for an entity that does not exist or has no value."""
        return NotFound(f"{kind} type '{name}' has no blob for id '{self.id}'")


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """The metadata of a Blob value: `size` and `etag` of a managed value, or the `uri` of an external one."""

    resolved_snapshot: str
    size: int | None = None
    etag: str | None = None
    uri: str | None = None


class BlobContent(Protocol):
    """The bytes of a managed value, read in ranges."""

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`, which is at most the size of the value."""
        ...


class Blob(SeekableFile):
    """A Blob value as a read-only binary file.

    Memory holds the part that is read, not the value. `read_range` reads a range without moving the position. Reads
    of an external value raise `InvalidInput`: the graph stores its address, not its bytes. Later writes
    do not change what a blob reads. Not safe to share between threads.

    >>> import omnigraph as og
    >>> g = og.init("memory://docs-blob", schema="node Photo { name: String @key  data: Blob }")
    >>> _ = g.load({"Photo": [{"name": "a", "data": b"hello world"}]})
    >>> with g.blob("Photo", "a", "data") as blob:
    ...     blob.size, blob.read(5), blob.read_range(6, 11)
    (11, b'hello', b'world')
    """

    def __init__(self, info: BlobInfo, content: BlobContent | None) -> None:
        super().__init__()
        self._info = info
        self._content = content
        self._ahead = b""
        self._ahead_start = 0

    def __repr__(self) -> str:
        shown = f"size={self.size}" if self.uri is None else f"uri={self.uri!r}"
        return f"Blob({shown})"

    @property
    def info(self) -> BlobInfo:
        """The metadata of the value."""
        return self._info

    @property
    def kind(self) -> Literal["managed", "external"]:
        """Whether the graph holds the bytes or the address of an external object."""
        return "managed" if self._info.uri is None else "external"

    @property
    def size(self) -> int | None:
        """The number of bytes; None for an external value."""
        return self._info.size

    @property
    def etag(self) -> str | None:
        """The entity tag of a managed value. It changes if and only if the value is written again."""
        return self._info.etag

    @property
    def uri(self) -> str | None:
        """The address of an external value; None for a managed value."""
        return self._info.uri

    # --- ranges ------------------------------------------------------------------------------------------

    def read_range(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to, but not including, `end`. The position does not move.

        A range ends at the end of the value at the latest. Raises `InvalidInput` for a range that starts after the
        end of the value or ends before its start.
        """
        start, end = self._checked_range(start, end)
        return b"".join(self._chunks(start, end))

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes of a range in chunks of at most 1 MiB. The arguments are those of `read_range`."""
        start, end = self._checked_range(start, self._size() if end is None else end)
        return self._chunks(start, end)

    def _checked_range(self, start: int, end: int) -> tuple[int, int]:
        size = self._size()
        for name, given in (("start", start), ("end", end)):
            if isinstance(given, bool) or not isinstance(given, int):
                raise InvalidInput(f"{name}: expected an integer, got {type(given).__name__}")
        if not 0 <= start <= min(end, size):
            raise InvalidInput(
                f"byte range {start}:{end} is not in the value, which has {size:,} {_noun(size)}",
                details={"start": start, "end": end, "size": size},
            )
        return start, min(end, size)

    def _chunks(self, start: int, end: int) -> Iterator[bytes]:
        assert self._content is not None
        for first in range(start, end, CHUNK_BYTES):
            yield self._content.read(first, min(end, first + CHUNK_BYTES))

    def _size(self) -> int:
        """Return the size of the value. Raises `InvalidInput` if it is external, `ValueError` if it is closed."""
        if self.closed:
            raise ValueError("read of a closed blob")
        if self._info.size is None or self._content is None:
            raise InvalidInput(
                f"the value is external: it is stored at {self.uri}", details={"uri": self.uri}
            )
        return self._info.size

    # --- file --------------------------------------------------------------------------------------------

    def _end(self) -> int:
        return self._info.size or 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes from the position on, or all remaining bytes."""
        total = self._size()
        start = min(self._position, total)
        end = total if size is None or size < 0 else min(total, start + size)
        data = self._read_ahead(start, end) if end - start < _READ_AHEAD else self.read_range(start, end)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """Return all remaining bytes."""
        return self.read()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill a buffer from the position on; return the number of bytes."""
        target = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(target):
            data = self.read(min(len(target) - filled, CHUNK_BYTES))
            if not data:
                break
            target[filled : filled + len(data)] = data
            filled += len(data)
        return filled

    def _read_ahead(self, start: int, end: int) -> bytes:
        """Return a small range, from the part that was read last if it is there."""
        offset = start - self._ahead_start
        if not 0 <= offset <= offset + end - start <= len(self._ahead):
            self._ahead = self.read_range(start, min(self._size(), start + _READ_AHEAD))
            self._ahead_start, offset = start, 0
        return self._ahead[offset : offset + end - start]


def _noun(size: int) -> str:
    return "byte" if size == 1 else "bytes"

"""What a kind of storage has to be able to do to hold objects, and the errors it may raise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

__all__ = ["Backend", "Object", "ObjectInfo", "Pinned", "Writable"]


@dataclass(frozen=True, slots=True)
class Object:
    """One object as it was at one moment: its bytes, and the tag to replace exactly this with."""

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing says of an object; `key` is the key to get it by.

    `etag` is the tag of the version that was listed, None on local disks, which would have to read it for that.
    """

    key: str
    size: int
    last_modified: datetime
    etag: str | None = None


class Pinned(Protocol):
    """One version of an object, held to be read in pieces."""

    @property
    def size(self) -> int: ...

    def read(self, start: int, end: int) -> bytes:
        """Exactly the bytes from `start` up to `end`, which is at most `size`."""
        ...

    def close(self) -> None: ...


class Writable(Protocol):
    """An object that is being written."""

    def write(self, data: bytes, /) -> int: ...


class Backend(Protocol):
    """The operations behind `ObjectStore`, which documents them and has checked keys and prefixes already."""

    def get(self, key: str) -> Object: ...

    def put(self, key: str, data: bytes) -> str: ...

    def create_if_absent(self, key: str, data: bytes) -> bool: ...

    def replace_if_matches(self, key: str, data: bytes, etag: str) -> str | None: ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...

    def delete_many(self, keys: Sequence[str]) -> None: ...

    def head(self, key: str) -> ObjectInfo: ...

    def pin(self, info: ObjectInfo) -> Pinned: ...

    def writing(self, key: str) -> AbstractContextManager[Writable]: ...
